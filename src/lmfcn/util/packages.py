"""Optional packages (extras), and the versions and machine that a result comes from."""

import os
import platform
from importlib import import_module
from importlib.metadata import version
from typing import Any

import torch

_PACKAGES = ("lmfcn", "torch", "numpy", "scikit-learn")


def needs(module: str, extra: str) -> Any:
    """Import a module of an optional package; if it is missing, raise ImportError with the extra to install.

    Examples
    --------
    >>> needs("numpy.linalg", "textures").norm([3, 4]).item()
    5.0
    """
    try:
        return import_module(module)
    except (ImportError, RuntimeError) as error:  # torchvision with another build of torch raises RuntimeError
        package = module.partition(".")[0].replace("skimage", "scikit-image").replace("_", "-")
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ImportError(f"This needs {package}: pip install 'lmfcn[{extra}]' ({reason}).") from error


def versions() -> dict[str, str]:
    """Return the versions of the packages on which results depend most."""
    return {**{package: version(package) for package in _PACKAGES}, "python": platform.python_version()}


def machine() -> dict[str, Any]:
    """Return properties of the machine that affect run time and the last digits of results."""
    return {
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
