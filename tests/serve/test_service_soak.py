"""The soak of the service finds what is wrong: faults are planted into the real command."""

import importlib
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"
FAULTY = """
import random, sys
from lmfcn.serve.predictions import Predictor
from lmfcn.__main__ import main

predict_all, kept, others = Predictor.predict_all, [], [None]

def swapped(self, uploads, *, reasons):
    answers, before = predict_all(self, uploads, reasons=reasons), others[0]
    others[0] = answers[0].probabilities
    if before is not None and random.random() < 0.1:
        answers[0] = answers[0].model_copy(update={"probabilities": before})
    return answers

def lost(self, uploads, *, reasons):
    if random.random() < 0.05:
        raise RuntimeError("lost")
    return predict_all(self, uploads, reasons=reasons)

def leaking(self, uploads, *, reasons):
    kept.append(random.randbytes(1_000_000))
    return predict_all(self, uploads, reasons=reasons)

Predictor.predict_all = globals()[sys.argv.pop(1)]
main()
"""

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc"),
]


@pytest.fixture
def soak(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("soak.service")


@pytest.mark.parametrize(
    ("fault", "what"),
    [("swapped", "requests of 8 clients"), ("lost", "the same requests"), ("leaking", "memory after warm-up")],
)
def test_a_planted_fault_is_found(soak, tmp_path, fault, what):
    program = tmp_path / "faulty.py"
    program.write_text(FAULTY)
    truth = soak.Truth.make(tmp_path, 0)
    with soak.serve([sys.executable, str(program), fault], truth.path, "--max-megabytes", 1) as server:
        rows = soak.mixed_rows(server, truth, 5.0, 0)
    (found,) = [row for row in rows if what in row["what"]]
    assert not found["ok"], found


def test_the_service_keeps_its_promises(soak):
    rows = soak.run(3.0, 0)
    assert len(rows) > 15
    assert [row for row in rows if not row["ok"]] == []
    assert {row["command"] for row in rows} == {"python benchmarks/soak/service.py --seconds 3 --seed 0"}
