"""Optional packages (extras), and the versions and machine that a result comes from."""

import os
import platform
from importlib import import_module
from importlib.metadata import version
from typing import Any

import torch


def needs(module: str, extra: str) -> Any:
    """Return a module of an optional package, or say how to get it.

    Examples
    --------
    >>> needs("numpy.linalg", "textures").norm([3, 4]).item()
    5.0
    """
    try:
        return import_module(module)
    except (ImportError, RuntimeError) as error:  # torchvision beside a torch of another kind raises the second
        package = module.partition(".")[0].replace("skimage", "scikit-image").replace("_", "-")
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ImportError(f"This needs {package}: pip install 'lmfcn[{extra}]' ({reason}).") from error


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
