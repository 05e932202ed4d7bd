"""Whether probabilities can be taken at their word."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from lmfcn.report.style import INK, OTHERS, TRAIN, new_figure, tidy

_N_BINS = 10


class Reliability(NamedTuple):
    """Images by their confidence: how many (n_bins,), their mean confidence and their accuracy; NaN for none."""

    counts: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    @property
    def error(self) -> float:
        """Expected calibration error: the mean gap between confidence and accuracy."""
        filled = self.counts > 0
        gaps = np.abs(self.accuracy - self.confidence)[filled] * self.counts[filled]
        return float(gaps.sum() / self.counts.sum())


def reliability(confidences: Sequence[float], correct: Sequence[bool]) -> Reliability:
    """Return images gathered in ten bins of equal width by the probability of the class that they were taken for.

    Examples
    --------
    Confidence 0.85, right in two of four: a gap of 0.35.

    >>> round(reliability([0.85] * 4, [True, True, False, False]).error, 6)
    0.35
    """
    values, right = np.asarray(confidences, dtype=float), np.asarray(correct, dtype=float)
    bins = np.minimum((values * _N_BINS).astype(int), _N_BINS - 1)
    counts, *sums = (np.bincount(bins, weights, minlength=_N_BINS) for weights in (None, values, right))
    means = [np.divide(total, counts, out=np.full(_N_BINS, np.nan), where=counts > 0) for total in sums]
    return Reliability(counts, *means)


def reliability_diagram(confidences: Sequence[float], correct: Sequence[bool]) -> Figure:
    """Draw accuracy against confidence in ten bins, and below it how many images are in each.

    Parameters
    ----------
    confidences : sequence of float (n,)
        Probability of the class that an image was taken for.
    correct : sequence of bool (n,)
        Whether it was right.
    """
    found = reliability(confidences, correct)
    figure = new_figure(3.6, 4.0)
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    filled = found.counts > 0
    axes.plot([0, 1], [0, 1], color=INK, linewidth=0.9, linestyle="--")
    axes.plot(found.confidence[filled], found.accuracy[filled], "o-", color=TRAIN, markeredgecolor=INK, markersize=6)
    axes.set(xlim=(0, 1.02), ylim=(0, 1.04), ylabel="share that was right")
    below.bar((np.arange(_N_BINS) + 0.5) / _N_BINS, found.counts, width=0.09, color=OTHERS)
    below.set(xlabel="confidence", ylabel="images")
    for part in (axes, below):
        tidy(part)
    return figure
