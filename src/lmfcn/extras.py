"""Packages that only some parts need."""

from importlib import import_module
from typing import Any


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
