"""
A map of textures
=================

A window slides over an image, and each window gets a label and probabilities.
"""

# %%
# The mosaic is made of places of the photographs that the training tiles do not show.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap

from lmfcn import LMFCNClassifier
from lmfcn.data.datasets import load_photographed_textures, photographed_mosaic
from lmfcn.util.class_style import class_color

tiles = load_photographed_textures(64)
classifier = LMFCNClassifier(epochs=3, random_state=0).fit(tiles.part("train"), validation=tiles.part("val"))
mosaic, labels = photographed_mosaic()

# %%
# `map` predicts every window. `lmfcn map` does the same for files of any size.

found = classifier.model_.map(mosaic, window=64, stride=8)
right = found.at_pixels() == labels
print(f"{found.labels.size} windows; {right.mean():.1%} of all pixels right")

# %%
# The wrong pixels are near the borders, where a window sees two textures. There the highest probability is lower.

numbers = np.searchsorted(classifier.classes_, found.at_pixels())
figure, grid = plt.subplots(1, 3, figsize=(11, 3), layout="constrained")
grid[0].imshow(mosaic, cmap="gray")
grid[1].imshow(numbers, cmap=ListedColormap([class_color(number) for number in range(3)]), vmin=0, vmax=2)
grid[2].imshow(found.probabilities.max(axis=2), cmap="viridis", vmin=1 / 3, vmax=1)
for axes, title in zip(grid, ("mosaic", "map", "highest probability"), strict=True):
    axes.set_title(title)
    axes.set_axis_off()
plt.show()
