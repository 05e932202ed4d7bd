"""
The latent space, before and after training
===========================================

With two latent features, an image is a point. Training moves the support vectors towards their own class.
"""

# %%
# Striped images of two classes, which differ in their noise only.

import matplotlib.pyplot as plt

from lmfcn import Callback, LMFCNClassifier, Recipe, make_gaussians
from lmfcn.report.latent_plots import draw_space, shared_limits

X, y = make_gaussians(n_per_class=40, size=32, random_state=0, stds=(20, 50))
X_validation, y_validation = make_gaussians(n_per_class=40, size=32, random_state=1, stds=(20, 50))

# %%
# A callback keeps the latent space of every epoch. Three steps of the default recipe are switched off, so that the
# picture shows all that decides.


class Spaces(Callback):
    """Keeps what every epoch starts with."""

    def __init__(self):
        self.seen = []

    def on_epoch_end(self, training, record, space):
        """Keep the latents, their SVM, and what was measured."""
        self.seen.append((record, space))


spaces = Spaces()
recipe = Recipe(keep_untrained=False, deviations=False, whiten=False, refit_epochs=0)
classifier = LMFCNClassifier(latent_dim=2, epochs=8, recipe=recipe, random_state=0)
classifier.fit(X, y, validation=(X_validation, y_validation), callbacks=[spaces])

# %%
# Large marks are support vectors. The line is the decision boundary, the dashes are its margin.

shown = [spaces.seen[0], spaces.seen[classifier.best_epoch_]]
limits = shared_limits([space for _, space in shown])
figure, grid = plt.subplots(1, 2, figsize=(9, 4.2), sharey=True, layout="constrained")
for axes, (record, space) in zip(grid, shown, strict=True):
    draw_space(axes, space, y, limits)
    axes.set_title(f"epoch {record.epoch}: {record.n_support} support vectors", fontsize=10)
for record, _ in shown:
    print(f"Epoch {record.epoch}: {record.n_support} support vectors of {len(y)} images")
plt.show()
