"""Large-margin texture classification with small fully convolutional networks.

>>> import lmfcn
>>> sorted(lmfcn.__all__)
['Callback', 'LMFCNClassifier', 'Recipe', 'TextureModel', '__version__', 'load', 'make_gaussians']
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lmfcn.classifier import LMFCNClassifier
    from lmfcn.data.gaussians import make_gaussians
    from lmfcn.method.epoch import Callback
    from lmfcn.model import TextureModel
    from lmfcn.model_file import load
    from lmfcn.recipe import Recipe

__version__ = "0.1.0"
__all__ = ["Callback", "LMFCNClassifier", "Recipe", "TextureModel", "__version__", "load", "make_gaussians"]

_HOMES = {
    "Callback": "lmfcn.method.epoch",
    "Recipe": "lmfcn.recipe",
    "LMFCNClassifier": "lmfcn.classifier",
    "TextureModel": "lmfcn.model",
    "load": "lmfcn.model_file",
    "make_gaussians": "lmfcn.data.gaussians",
}


def __getattr__(name: str) -> Any:
    # torch and scikit-learn take seconds to import, so they wait until a name is asked for.
    if name not in _HOMES:
        raise AttributeError(f"module 'lmfcn' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
