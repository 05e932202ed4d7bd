"""The methods that LMFCN is compared with, each a scikit-learn estimator."""
