"""Which software a result comes from."""

import platform
from importlib.metadata import version

_PACKAGES = ("lmfcn", "torch", "numpy", "scikit-learn")


def versions() -> dict[str, str]:
    """Return the versions of the packages that numbers depend on most."""
    return {**{package: version(package) for package in _PACKAGES}, "python": platform.python_version()}
