"""
Doubt: sets of classes, and "ask a person"
==========================================

An image that turns from grass into gravel shows when the model starts to doubt.
"""

# %%
# Train on three photographed textures, and mix a test tile of grass with one of gravel.

import matplotlib.pyplot as plt
import numpy as np

from lmfcn import LMFCNClassifier
from lmfcn.data.datasets import load_photographed_textures

tiles = load_photographed_textures(64)
classifier = LMFCNClassifier(epochs=3, random_state=0).fit(tiles.part("train"), validation=tiles.part("val"))
test = tiles.part("test")
labels = np.asarray(test.labels)
grass, gravel = (test[int(np.flatnonzero(labels == label)[0])].astype(float) for label in ("grass", "gravel"))
shares = np.linspace(0, 1, 9)
mixed = np.stack([np.rint((1 - share) * grass + share * gravel).astype(np.uint8) for share in shares])

# %%
# A prediction set holds the classes that cannot be ruled out; a rejected image is for a person.

sets = classifier.predict_set(mixed, coverage=0.95)
answers = classifier.predict_or_reject(mixed, confidence=0.8, rejected="ask a person")
for share, in_set, answer in zip(shares, sets, answers, strict=True):
    print(f"{share:.0%} gravel: {' or '.join(classifier.classes_[in_set])}; {answer}")

# %%
# The probabilities of all three classes.

figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
for label, values in zip(classifier.classes_, classifier.predict_proba(mixed).T, strict=True):
    axes.plot(shares, values, marker="o", label=label)
axes.axhline(0.8, color="grey", linestyle=":")
axes.set(xlabel="share of gravel in the mixture", ylabel="probability")
axes.legend()
plt.show()
