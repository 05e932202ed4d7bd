"""
From scratch or pretrained
==========================

Both on the same few images: four tiles per class for training. Needs the extra `pretrained`.
"""

# %%
# Four tiles of each texture, and all test tiles.

import matplotlib.pyplot as plt
import numpy as np

from lmfcn import LMFCNClassifier
from lmfcn.data.datasets import load_photographed_textures

tiles = load_photographed_textures(64)
train, test = tiles.part("train"), tiles.part("test")
labels = np.asarray(train.labels)
few = train[np.concatenate([np.flatnonzero(labels == label)[:4] for label in np.unique(labels)])]

# %%
# One parameter chooses the network.

scores = {}
for network in ("texture-fcn", "efficientnet-lite0"):
    classifier = LMFCNClassifier(network=network, epochs=3, validation_fraction=0.25, random_state=0)
    scores[network] = classifier.fit(few.to_array(), few.labels).score(test)
    print(f"{network}: {scores[network]:.3f} of {len(test)} test tiles right")

# %%
# These photographs are easy; `lmfcn compare` says how it is with your images.

figure, axes = plt.subplots(figsize=(6, 2.4), layout="constrained")
axes.bar_label(axes.barh(list(scores), list(scores.values()), color=["#0072B2", "#D55E00"]), fmt="%.3f", padding=3)
axes.set(xlim=(0, 1.15), xlabel="accuracy on test tiles")
plt.show()
