"""
Find wrong labels
=================

Three labels are made wrong. The audit ranks all images by how doubtful their label is.
"""

# %%
# Photographed textures, with three wrong labels among those for training.

import matplotlib.pyplot as plt
import numpy as np

from lmfcn import LMFCNClassifier
from lmfcn.data.datasets import load_photographed_textures
from lmfcn.explain.audit import audit

train = load_photographed_textures(64).part("train")
images, labels = train.to_array(), np.asarray(train.labels).copy()
wrong = (np.array([0.05, 0.42, 0.73]) * len(labels)).astype(int)
labels[wrong] = ["gravel", "brick", "grass"]

# %%
# The audit needs latents that the wrong labels have hardly touched: `latents`, not `transform`.

classifier = LMFCNClassifier(epochs=2, random_state=0).fit(images, labels)
found = audit(classifier.model_.latents(images).cpu().numpy(), labels)
first = found.order[:6]
print("made wrong:", wrong.tolist(), "; ranked first:", first.tolist())

# %%
# The six most doubtful labels.

figure, grid = plt.subplots(1, len(first), figsize=(10, 2.4), layout="constrained")
for axes, number in zip(grid, first, strict=True):
    axes.imshow(images[number][..., 0], cmap="gray")
    likely = found.classes[found.likeliest[number]]
    axes.set_title(f"labelled {labels[number]}\nlooks like {likely}", fontsize=9)
    axes.set_axis_off()
plt.show()
