"""The paper's method, and the options that change its steps: README.md maps every equation to a function."""
