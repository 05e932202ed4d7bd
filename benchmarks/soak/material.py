"""Small images, and small files of every kind made from them, in a folder."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from lmfcn.__main__ import app

FAST = ("--network", "texture-fcn", "--epochs", "4", "--passes", "1", "--latent-dim", "2", "--threads", "1")
PLAIN = ("--no-report", "--quiet", "--device", "cpu")


def save_images(folder: Path, n_per_class: int = 12, side: int = 16) -> Path:
    """Write noise of three kinds, a folder for each."""
    random = np.random.default_rng(0)
    for label, low in (("bark", 0), ("moss", 60), ("wood", 110)):
        (folder / label).mkdir(parents=True)
        for number in range(n_per_class):
            pixels = random.integers(low, low + 140, (side, side), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{number:02}.png")
    return folder


def save_large_image(path: Path, side: int = 96) -> Path:
    """Write an image of several blocks of noise."""
    coarse = np.random.default_rng(1).integers(0, 256, (side // 8, side // 8), dtype=np.uint8)
    Image.fromarray(np.kron(coarse, np.ones((8, 8), np.uint8))).save(path)
    return path


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Run a block in another working folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def command(*arguments: object) -> int:
    """Run a command of ours in this process; return its exit code, or raise its error."""
    words = [str(argument) for argument in arguments]
    sys.argv = ["lmfcn", *words]
    return app(words, standalone_mode=False) or 0


def copy_folder(source: Path, target: Path) -> Path:
    """Replace a folder by a copy of another one, times of the files included."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target
