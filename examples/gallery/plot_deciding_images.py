"""
Which training images decide
============================

A decision value is a sum over training images. The images with the largest weights for and against a class are the
reason for the prediction.
"""

# %%
# A model of three photographed textures, and a gallery: small pictures of what it has learnt from.

import io

import matplotlib.pyplot as plt
import numpy as np

from lmfcn import LMFCNClassifier
from lmfcn.data.datasets import load_photographed_textures
from lmfcn.explain.explanation import explain
from lmfcn.explain.gallery import Gallery

tiles = load_photographed_textures(64)
train, validation, test = (tiles.part(name) for name in ("train", "val", "test"))
classifier = LMFCNClassifier(epochs=3, random_state=0).fit(train, validation=validation)
gallery = Gallery.of(classifier, train, validation=validation)

# %%
# The test tile of which the model is least sure.

hardest = int(classifier.predict_proba(test).max(axis=1).argmin())
found = explain(classifier.model_, test[hardest], gallery, top=3)
print(f"predicted {found.label}, is {test.labels[hardest]}; decision value {found.value:+.3f}")
print("weights, all others and the constant add up to it:")
weights = [image.weight for image in (*found.supporting, *found.opposing)]
print(
    f"{sum(weights):+.3f} {found.rest:+.3f} {found.intercept:+.3f} = {sum(weights) + found.rest + found.intercept:+.3f}"
)

# %%
# The tile, then the training tiles for and against its class.

entries = [("the tile", test[hardest][..., 0])]
entries += [
    (f"{image.label} {image.weight:+.2f}", plt.imread(io.BytesIO(image.picture), format="jpeg"))
    for image in (*found.supporting, *found.opposing)
]
figure, grid = plt.subplots(1, len(entries), figsize=(1.6 * len(entries), 2.2), layout="constrained")
for axes, (title, picture) in zip(np.atleast_1d(grid), entries, strict=True):
    axes.imshow(picture, cmap="gray", vmin=0, vmax=255)
    axes.set_title(title, fontsize=9)
    axes.set_axis_off()
plt.show()
