"""Measures what the documentation promises, one row for each promise; `python benchmarks/soak --help`."""
