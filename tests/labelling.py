"""Folders of small images for tests of labelling."""

import numpy as np
from PIL import Image

from small_model import textures


def write_textures(folder, n=10, by_class=False, seed=0):
    """Write n images of each of three easy textures; return their names and classes."""
    images, labels = textures(n, 18, 22, seed)
    truth = {}
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        name = f"{label}/{number:02}.png" if by_class else f"{number:02}.png"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / name)
        truth[name] = str(label)
    return truth


CLASSES = ("fine", "coarse")


def write_mosaic(path, height=160, width=256, seed=0):
    """Write an image of two textures side by side: fine noise on the left half, coarse noise on the right one."""
    random = np.random.default_rng(seed)
    fine = random.integers(0, 255, (height, width // 2), dtype=np.uint8)
    coarse = random.integers(0, 255, (height // 8, width // 16), dtype=np.uint8).repeat(8, axis=0).repeat(8, axis=1)
    Image.fromarray(np.concatenate([fine, coarse], axis=1)).save(path)
    return path
