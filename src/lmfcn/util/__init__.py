"""Helpers that know nothing of the method: files, progress, checks, packages."""
