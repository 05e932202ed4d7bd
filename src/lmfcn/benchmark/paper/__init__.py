"""The paper's experiments: its printed tables, and the same measured with this package."""
