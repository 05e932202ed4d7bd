"""Other machines: how far answers differ by threads, sets of instructions, quotas, and company in a batch."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from PIL import Image

import lmfcn
from lmfcn.classifier import LMFCNClassifier
from lmfcn.compute import resources
from lmfcn.data.gaussians import make_gaussians
from lmfcn.predict.stream import FilePredictor
from lmfcn.recipe import Recipe
from soak.children import import_all, start
from soak.rows import Row, first, row

COMMAND = "python benchmarks/soak drift"
LARGEST = 1e-4
"""Difference of probabilities between machines."""
_FOR_ALL = 60.0

MACHINES = {
    "2 threads": {"OMP_NUM_THREADS": "2"},
    "torch without AVX, oneDNN with SSE 4.1": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "4 threads": {"OMP_NUM_THREADS": "4"},
    "torch and oneDNN with AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "torch without oneDNN": {"SOAK_WITHOUT_ONEDNN": "1"},
}
"""What stands for another machine, as variables of a new process."""

_PREDICT = """
import os, sys
import lmfcn
import numpy as np, torch
if os.environ.get("SOAK_WITHOUT_ONEDNN"):
    torch.backends.mkldnn.enabled = False
model = lmfcn.load(sys.argv[1], "cpu")
images, _ = lmfcn.make_gaussians(64, 40, random_state=1)
np.save(sys.argv[2], model.predict_proba(images))
"""


def fit(folder: Path, seed: int = 0) -> None:
    """Fit a model quickly and save it; nothing depends on the generators of the process."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    images, labels = make_gaussians(24, 32, random_state=0)
    quick = LMFCNClassifier(epochs=4, latent_dim=16, widths=(16, 32), recipe=Recipe(passes=2), random_state=0)
    quick.set_params(device="cpu").fit(images, labels).save(folder / f"model-{seed}.lmfcn")


def run(seconds: float, seed: int) -> list[Row]:
    """Compare answers; in a short time, with two other machines only."""
    del seed
    import_all()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ended = [start(lambda number=number: fit(folder, number), folder).wait() for number in (0, 1)]
        if any(end.code for end in ended):
            return [row("a small training", "ends", ended[-1].text[-300:], False, COMMAND)]
        chosen = dict(list(MACHINES.items())[: 2 if seconds < _FOR_ALL else None])
        return [same_training(folder), *other_machines(folder, chosen), small_quota(folder), company(folder)]


def same_training(folder: Path) -> Row:
    same = (folder / "model-0.lmfcn").read_bytes() == (folder / "model-1.lmfcn").read_bytes()
    found = "the same bytes" if same else "other bytes"
    return row("two trainings, the global generators in other states", "the same bytes", found, same, COMMAND)


def other_machines(folder: Path, machines: dict[str, dict[str, str]]) -> list[Row]:
    """Predict the same images in processes that behave like other machines."""
    reference = _predict_as({}, folder)
    rows = []
    for name, variables in machines.items():
        found = _predict_as(variables, folder)
        difference = float(np.abs(found - reference).max())
        same_labels = bool((found.argmax(axis=1) == reference.argmax(axis=1)).all())
        text = f"{difference:.1e} of {np.ptp(reference):.2f}, {'the same' if same_labels else 'other'} labels"
        promise = f"probabilities differ by at most {LARGEST:g}"
        rows.append(row(f"a model on {name}", promise, text, difference <= LARGEST, COMMAND))
    return rows


def _predict_as(variables: dict[str, str], folder: Path) -> np.ndarray:
    answer = folder / "probabilities.npy"
    source = str(Path(lmfcn.__file__).parent.parent)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": source, **variables}
    arguments = [sys.executable, "-c", _PREDICT, str(folder / "model-0.lmfcn"), str(answer)]
    subprocess.run(arguments, env=environment, check=True, capture_output=True)
    return np.load(answer)


def small_quota(folder: Path) -> Row:
    """Look how many threads are taken in a container with a quarter of a processor."""
    (folder / "cpu.max").write_text("25000 100000\n", encoding="ascii")
    answer = folder / "threads"

    def count() -> None:
        os.environ.pop("OMP_NUM_THREADS", None)
        torch.set_num_threads(8)  # as on a large machine
        with mock.patch.object(resources, "_CPU_QUOTA", folder / "cpu.max"):
            answer.write_text(str(resources.allowed_threads()), encoding="ascii")

    start(count, folder).wait()
    found = answer.read_text(encoding="ascii")
    return row("a container with a quarter of a processor", "1 thread", f"{found} thread", found == "1", COMMAND)


def company(folder: Path) -> Row:
    """Compare the answers about files that are predicted together with those about each of them alone."""
    images, _ = make_gaussians(12, 32, random_state=2)
    (folder / "images").mkdir()
    for number, image in enumerate(images):
        Image.fromarray(image).save(folder / "images" / f"{number:02}.png")
    answer = folder / "mistakes"
    start(lambda: answer.write_text("\n".join(mixed_up(folder)), encoding="utf-8"), folder).wait()
    mistakes = answer.read_text(encoding="utf-8").splitlines()
    found = f"{len(mistakes)} of 24 are others'{first(mistakes)}"
    return row("answers about files in one batch", "the same as about each alone", found, not mistakes, COMMAND)


def mixed_up(folder: Path) -> list[str]:
    """Return the files that get another answer in company."""
    paths = [str(path) for path in sorted((folder / "images").iterdir())]
    model = lmfcn.load(folder / "model-0.lmfcn", "cpu")
    predict: Callable = FilePredictor(model)
    together = {found.path: found.probabilities for found in predict(paths)}
    alone = {path: predict([path])[0].probabilities for path in paths}
    return [path for path in paths if np.abs(together[path] - alone[path]).max() > LARGEST]
