from dataclasses import replace

import pytest
import torch
from test_training import QUICK, problem_of, training_of

from lmfcn.algorithm import precision
from lmfcn.algorithm.precision import convolutions_in, has_bfloat16, uses_bfloat16

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx512_bf16": True}, True),
        ({"amx_bf16": True}, True),
        ({"avx512_bf16": False, "avx2": True}, False),
        ({}, False),
    ],
)
def test_the_hardware_is_asked(monkeypatch, capabilities, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert has_bfloat16(CPU) is expected


def test_bfloat16_is_used_where_it_is_asked_for():
    assert [uses_bfloat16(name) for name in precision.PRECISIONS] == [False, False, True]


def test_other_devices_are_asked_too(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *, including_emulation: not including_emulation)
    assert has_bfloat16(torch.device("cuda"))
    assert not has_bfloat16(torch.device("mps"))


def test_only_convolutions_change():
    matrix = torch.rand(1, 1, 4, 4)
    convolve = torch.nn.Conv2d(1, 1, 3)
    with convolutions_in(bfloat16=True, device=CPU):
        assert convolve(matrix).dtype == torch.bfloat16
    with convolutions_in(bfloat16=False, device=CPU):
        assert convolve(matrix).dtype == torch.float32


def test_training_in_bfloat16_learns_and_keeps_float32_weights(textures):
    settings = replace(QUICK, epochs=6, passes=3, precision="bfloat16")
    training = training_of(problem_of(textures), settings)
    kept = training.run().kept
    assert training.descent.bfloat16
    assert training.history[-1].train_balanced_accuracy > 0.9
    assert all(weight.dtype == torch.float32 for weight in kept.network.parameters())
    assert kept.decision.support_latents.dtype == torch.float32
    same = training_of(problem_of(textures), settings)
    same.run()
    assert same.history.column("support_loss") == training.history.column("support_loss")
    plain = training_of(problem_of(textures), replace(settings, precision="float32"))
    plain.run()
    assert plain.history.column("support_loss") != training.history.column("support_loss")


def test_the_first_epoch_is_nearly_the_same_in_both(textures):
    records = [
        training_of(problem_of(textures), replace(QUICK, precision=name)).train_epoch(0)[0]
        for name in precision.PRECISIONS[1:]
    ]
    assert records[0].support_loss == pytest.approx(records[1].support_loss, rel=0.1)
