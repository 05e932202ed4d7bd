"""An image of several textures for tests of maps."""

import numpy as np


def patchwork(height, width, channels=1):
    """Noise whose strength differs from square to square."""
    random = np.random.default_rng(5)
    strength = np.kron(random.choice([10, 60, 30], (-(-height // 40), -(-width // 40))), np.ones((40, 40)))
    pixels = 128 + strength[:height, :width, None] * random.normal(0, 0.5, (height, width, channels))
    return pixels.clip(0, 255).astype(np.uint8)
