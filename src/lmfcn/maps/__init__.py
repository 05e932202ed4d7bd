"""Texture maps of images of any size."""
