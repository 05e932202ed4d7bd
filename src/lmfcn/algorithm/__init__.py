"""The paper's method: tensors in, tensors out; no printing. README.md beside this file is its map."""
