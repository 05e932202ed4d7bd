"""A fitted model on its own: without its training data, and without scikit-learn."""
