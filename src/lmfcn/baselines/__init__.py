"""The methods that LMFCN is compared with, each a scikit-learn estimator that takes the same images.

>>> from lmfcn.baselines import METHODS
>>> METHODS["CNN-H"](epochs=5).loss
'hinge'
"""

from lmfcn.baselines.registry import METHODS

__all__ = ["METHODS"]
