"""
A rare class
============

The default leans half of the way towards rare classes. `class_weight=None` follows the frequencies of the data.
"""

# %%
# Ninety images of one class and nine of the other, of the same stripes with more noise.

import matplotlib.pyplot as plt
import numpy as np

from lmfcn import LMFCNClassifier, make_gaussians

images, numbers = make_gaussians(n_per_class=90, size=32, random_state=0, stds=(25, 40))
kept = np.concatenate([np.flatnonzero(numbers == 0), np.flatnonzero(numbers == 1)[:9]])
X, y = images[kept], np.array(["usual", "rare"])[numbers[kept]]
X_new, numbers_new = make_gaussians(n_per_class=60, size=32, random_state=1, stds=(25, 40))
y_new = np.array(["usual", "rare"])[numbers_new]

# %%
# The recall of a class is the share of its images that are found.

recalls = {}
for weight in ("auto", None):
    classifier = LMFCNClassifier(epochs=4, class_weight=weight, random_state=0).fit(X, y)
    predicted = classifier.predict(X_new)
    recalls[weight] = [(predicted[y_new == label] == label).mean() for label in ("usual", "rare")]
    print(f"class_weight={weight!r}: recall of usual {recalls[weight][0]:.2f}, of rare {recalls[weight][1]:.2f}")

# %%
# Balanced accuracy is the mean of both bars.

figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
for place, (weight, values) in enumerate(recalls.items()):
    bars = axes.bar(np.arange(2) + 0.38 * place, values, width=0.36, label=f"class_weight={weight!r}")
    axes.bar_label(bars, fmt="%.2f")
axes.set(xticks=np.arange(2) + 0.19, xticklabels=["usual", "rare"], ylabel="recall", ylim=(0, 1.15))
axes.legend(loc="lower left")
plt.show()
