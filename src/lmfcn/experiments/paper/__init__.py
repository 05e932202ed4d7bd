"""The paper's experiments: what it printed, and the same measured with this package."""
