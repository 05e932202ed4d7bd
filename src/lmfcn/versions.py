"""Which software and which machine a result comes from."""

import os
import platform
from importlib.metadata import version
from typing import Any

import torch

_PACKAGES = ("lmfcn", "torch", "numpy", "scikit-learn")


def versions() -> dict[str, str]:
    """Return the versions of the packages that numbers depend on most."""
    return {**{package: version(package) for package in _PACKAGES}, "python": platform.python_version()}


def machine() -> dict[str, Any]:
    """Return what seconds, and the last digits of results, depend on beside the software."""
    return {
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
