"""Which numbers the convolutions of a training compute with."""

from contextlib import AbstractContextManager

import torch

PRECISIONS = ("auto", "float32", "bfloat16")


def uses_bfloat16(precision: str) -> bool:
    """Tell whether training computes in bfloat16.

    "auto" does not yet: that accuracy does not suffer has not been measured on hardware that has it.
    """
    return precision == "bfloat16"


def has_bfloat16(device: torch.device) -> bool:
    """Tell whether a device has instructions for products of bfloat16 numbers."""
    if device.type == "cpu":
        has = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
        return bool(has.get("avx512_bf16") or has.get("amx_bf16"))
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def convolutions_in(*, bfloat16: bool, device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which convolutions compute in bfloat16, or one that changes nothing."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=bfloat16)
