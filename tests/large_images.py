"""A model that is ready at once, and image files of several levels, tiles and faults for tests of large maps."""

from pathlib import Path

import numpy as np
import tifffile

from lmfcn.data.image_form import ImageForm
from lmfcn.model_file import save
from random_models import random_model

TILE = 128


def save_model(path: Path, channels: int = 3) -> Path:
    """Write a model of three classes; it was never trained, and tells textures apart all the same."""
    save(random_model(["coarse", "fine", "flat"], ImageForm(channels, "uint8"), ("last",)), path)
    return path


def quarters(height: int, width: int) -> np.ndarray:
    """RGB noise of a different grain and contrast in every quarter."""
    random = np.random.default_rng(0)
    fine = random.integers(0, 256, (height, width, 3))
    coarse = np.kron(fine[: -(-height // 4), : -(-width // 4)], np.ones((4, 4, 1), dtype=int))[:height, :width]
    pixels = np.where(np.arange(width)[:, None] < width // 2, fine, coarse)
    pixels[height // 2 :] = pixels[height // 2 :] // 8 + 100
    return pixels.astype(np.uint8)


def save_pyramid(path: Path, pixels: np.ndarray, n_levels: int = 3) -> Path:
    """Write tiles, each level as a page of its own, as OpenSlide and tifffile both know pyramids."""
    with tifffile.TiffWriter(path) as file:
        for level in range(n_levels):
            smaller = np.ascontiguousarray(pixels[:: 2**level, :: 2**level])
            file.write(smaller, tile=(TILE, TILE), photometric="rgb", compression="zlib", subfiletype=1 if level else 0)
    return path


def break_tile(path: Path, number: int) -> None:
    """Overwrite a tile of the finest level with bytes that mean nothing."""
    with tifffile.TiffFile(path) as file:
        start, length = file.pages[0].dataoffsets[number], file.pages[0].databytecounts[number]
    with path.open("r+b") as file:
        file.seek(start)
        file.write(b"\xff" * length)
