"""Pictures of the images themselves."""

import numpy as np
from matplotlib.figure import Figure

from lmfcn.report.style import new_figure


def sample_images(images: np.ndarray, labels: np.ndarray, per_class: int = 8) -> Figure:
    """Draw the first images of every class, one row a class."""
    classes = np.unique(labels)
    figure = new_figure(1.15 * per_class, 1.3 * len(classes))
    grid = figure.subplots(len(classes), per_class, squeeze=False)
    for row, label in zip(grid, classes, strict=True):
        row[0].set_ylabel(f"class {label}", fontsize=9)
        for axes in row:
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
        for axes, image in zip(row, images[labels == label], strict=False):
            axes.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    return figure
