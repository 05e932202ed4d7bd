"""The paper's method, nothing else: README.md maps every equation to a function."""
