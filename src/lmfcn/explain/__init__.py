"""Explanations of predictions, audits of labels, galleries of training images."""
