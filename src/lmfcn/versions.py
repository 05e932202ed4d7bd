"""Which software a result comes from."""

import platform
from importlib.metadata import version

_PACKAGES = ("lmfcn", "torch", "numpy", "scikit-learn")


def versions() -> dict[str, str]:
    """Return the versions of everything that can change a number."""
    return {**{package: version(package) for package in _PACKAGES}, "python": platform.python_version()}
