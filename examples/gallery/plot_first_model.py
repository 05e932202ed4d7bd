"""
A first model
=============

Train on photographs of brick, grass and gravel, and predict tiles from other places of the photographs.
"""

# %%
# scikit-image brings the photographs. Each is cut into tiles; the tiles for training, validation and test come from
# separate bands of the photograph.

import matplotlib.pyplot as plt

from lmfcn import LMFCNClassifier
from lmfcn.data.datasets import load_photographed_textures

tiles = load_photographed_textures(64)
train, validation, test = (tiles.part(name) for name in ("train", "val", "test"))

# %%
# Three epochs are enough for textures that differ this much; the default is 15.

classifier = LMFCNClassifier(epochs=3, random_state=0).fit(train, validation=validation)
print(f"accuracy on {len(test)} new tiles: {classifier.score(test):.3f}")

# %%
# Every prediction comes with probabilities. They are calibrated on the validation tiles.

chances = classifier.predict_proba(test)
figure, grid = plt.subplots(2, 4, figsize=(9, 5.2), layout="constrained")
for axes, number in zip(grid.flat, range(0, len(test), len(test) // 8), strict=False):
    best = chances[number].argmax()
    axes.imshow(test[number][..., 0], cmap="gray")
    axes.set_title(f"{classifier.classes_[best]} {chances[number][best]:.2f}\nis {test.labels[number]}", fontsize=10)
    axes.set_axis_off()
plt.show()
