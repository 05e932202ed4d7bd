"""General helpers: files, progress bars, parameter checks and optional packages."""
