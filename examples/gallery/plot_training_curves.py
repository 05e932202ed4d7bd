"""
What happens in each epoch
==========================

The history of a training has one record per epoch: accuracies, losses, numbers of support vectors, seconds.
"""

# %%
# Two classes of striped images.

import matplotlib.pyplot as plt

from lmfcn import LMFCNClassifier, make_gaussians

X, y = make_gaussians(n_per_class=50, size=32, random_state=0, stds=(25, 45))
classifier = LMFCNClassifier(epochs=8, random_state=0).fit(X, y)

# %%
# `history_` has the epochs with validation images held out, `refit_history_` those that learn from all images.

history = classifier.history_
for record in history:
    print(f"epoch {record.epoch}: {record.n_support} support vectors, {record.n_backpropagated} images back-propagated")

# %%
# Epoch 0 is the untrained network. The dotted line is the selected epoch.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for part in ("train", "validation"):
    left.plot(history.column("epoch"), history.column(f"{part}_balanced_accuracy"), marker="o", label=part)
left.set(xlabel="epoch", ylabel="balanced accuracy")
left.legend()
for count in ("n_support", "n_misclassified", "n_settled"):
    right.plot(history.column("epoch"), history.column(count), marker="o", label=count.removeprefix("n_"))
right.set(xlabel="epoch", ylabel="training images")
right.legend()
for axes in (left, right):
    axes.axvline(classifier.best_epoch_, color="grey", linestyle=":")
plt.show()
