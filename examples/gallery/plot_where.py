"""
Where in the image
==================

The map of an explanation shows how much each place adds to the decision value. Here an image is half brick, half
grass.
"""

# %%
# Train on two photographed textures.

import io

import matplotlib.pyplot as plt
import numpy as np

from lmfcn import LMFCNClassifier
from lmfcn.data.datasets import load_photographed_textures
from lmfcn.explain.score_map import score_map
from lmfcn.report.overlay import overlay

tiles = load_photographed_textures(64)
tiles = tiles[np.isin(tiles.labels, ["brick", "grass"])]
train, validation, test = (tiles.part(name) for name in ("train", "val", "test"))
classifier = LMFCNClassifier(epochs=3, random_state=0).fit(train, validation=validation)

# %%
# Put two test tiles side by side, and ask for the map of "brick".

labels = np.asarray(test.labels)
halves = [test[int(np.flatnonzero(labels == label)[3])] for label in ("brick", "grass")]
image = np.concatenate(halves, axis=1)
found = score_map(classifier.model_, image, "brick")
middle = image.shape[1] // 2
print(f"mean over brick {found.values[:, :middle].mean():+.2f}, over grass {found.values[:, middle:].mean():+.2f}")

# %%
# Orange is evidence for brick, blue against it.

figure, grid = plt.subplots(2, 1, figsize=(6, 6.4), layout="constrained")
grid[0].imshow(image[..., 0], cmap="gray")
grid[0].set_title("brick beside grass")
grid[1].imshow(plt.imread(io.BytesIO(overlay(image, found.values))))
grid[1].set_title("evidence for brick")
for axes in grid:
    axes.set_axis_off()
plt.show()
