"""Small images for tests of commands."""

import numpy as np
from PIL import Image

FAST = ("--epochs", "1", "--passes", "1", "--latent-dim", "2")


def save_images(folder, n_per_class=10, side=16, channels=1, seed=0):
    """Write bright and dark noise, a folder for each."""
    random = np.random.default_rng(seed)
    for label, low in (("bark", 0), ("wood", 110)):
        (folder / label).mkdir(parents=True, exist_ok=True)
        for number in range(n_per_class):
            pixels = random.integers(low, low + 140, (side, side, channels), dtype=np.uint8)
            Image.fromarray(pixels[..., 0] if channels == 1 else pixels).save(folder / label / f"{number}.png")
    return folder
