"""Runs that measure something worth reporting."""
