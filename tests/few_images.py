"""Small sets of images for tests of encoding."""

import numpy as np


def some_images(random, n, dtype=np.uint8):
    return random.integers(0, 256, (n, 12, 10, 2)).astype(dtype)


class TwoSizes:
    """Forty small images and a bright larger one."""

    def __init__(self, random):
        self.small = random.integers(0, 100, (40, 12, 12, 2)).astype(np.uint8)
        self.large = random.integers(200, 256, (1, 20, 20, 2)).astype(np.uint8)
        self.size_numbers = np.repeat([0, 1], [40, 1])

    def sizes(self):
        return np.array([image.shape[:2] for part in (self.small, self.large) for image in part])

    def __len__(self):
        return 41

    def batch(self, positions):
        return self.large if positions[0] == 40 else self.small[positions]
