"""Predictions for many files: streams, journals, writers, evaluation."""
