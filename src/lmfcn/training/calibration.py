"""Calibration: fit an inverse temperature to held-out scores, measure its error, shift scores to rare classes."""

import math

import torch
from torch import Tensor

from lmfcn.compute.resources import to_cpu_double
from lmfcn.model import Calibration, probabilities, sorted_true_probabilities, to_logits

_LARGEST = 1e4
_N_HALVINGS = 40


def calibrate(scores: Tensor, labels: Tensor, *, held_out: bool) -> Calibration:
    """Learn from the scores (m, n_scores) of held-out images and their classes (m,)."""
    scores, labels = _on_cpu(scores, labels)
    if len(labels) == 0:
        return Calibration(1.0, scores.new_empty(0), None, held_out=False)
    inverse_temperature = fit_inverse_temperature(scores, labels)
    error = expected_calibration_error(labels, probabilities(scores, inverse_temperature))
    true = sorted_true_probabilities(scores, labels, inverse_temperature)
    return Calibration(inverse_temperature, true, error, held_out)


def fit_inverse_temperature(scores: Tensor, labels: Tensor) -> float:
    """Return the factor under which the classes (m,) are most likely.

    The targets are smoothed as if one more image had been right and one wrong (Platt's correction, for any
    number of classes): without it, a set on which all is right would ask for an infinite factor. The likelihood
    is concave in the factor, so the place where its slope is zero is found by halving.
    """
    scores, labels = _on_cpu(scores, labels)
    return float(_best_inverse_temperatures(to_logits(scores)[None], labels))


def select_most_likely(candidates: Tensor, labels: Tensor) -> int:
    """Return which scores (n_candidates, m, n_scores) make the classes (m,) most likely.

    Each candidate is judged under its own best inverse_temperature; the first one wins a tie.
    """
    candidates, labels = _on_cpu(candidates, labels)
    logits = to_logits(candidates)
    likelihoods = (logits * _best_inverse_temperatures(logits, labels)[:, None, None]).log_softmax(dim=2)
    places = labels[None, :, None].expand(len(logits), -1, 1)
    return int(likelihoods.gather(2, places).mean(dim=(1, 2)).argmax())


def _best_inverse_temperatures(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the best factor (r,) for each of several sets of logits (r, m, n_classes)."""
    n_images, n_classes = logits.shape[1:]
    targets = torch.full_like(logits[0], 1 / (n_images + 2) / (n_classes - 1))
    targets.scatter_(1, labels[:, None], (n_images + 1) / (n_images + 2))
    low = logits.new_full((len(logits),), math.log(1 / _LARGEST))
    high = -low
    for _ in range(_N_HALVINGS):
        middle = (low + high) / 2
        factors = middle.exp()[:, None, None]
        too_low = (((logits * factors).softmax(dim=2) - targets) * logits).sum(dim=(1, 2)) < 0
        low, high = torch.where(too_low, middle, low), torch.where(too_low, high, middle)
    return ((low + high) / 2).exp()


def expected_calibration_error(labels: Tensor, predicted: Tensor, n_bins: int = 10) -> float:
    """Return the mean gap between confidence and accuracy, over bins of equal width.

    Parameters
    ----------
    labels : Tensor (m,)
    predicted : Tensor (m, n_classes)
        Probabilities.
    n_bins : int

    Examples
    --------
    Confidence 0.8, right in two of four: a gap of 0.3.

    >>> import torch
    >>> predicted = torch.tensor([[0.8, 0.2]] * 4, dtype=torch.float64)
    >>> round(expected_calibration_error(torch.tensor([0, 0, 1, 1]), predicted), 6)
    0.3
    """
    confidence, numbers = predicted.max(dim=1)
    gaps = (numbers == labels).to(confidence) - confidence
    bins = (confidence * n_bins).long().clamp(max=n_bins - 1)
    return sum(float(gaps[bins == number].sum().abs()) for number in range(n_bins)) / len(labels)


def equal_prior_shift(labels: Tensor, inverse_temperature: float, scores: Tensor) -> Tensor:
    """Return what to add to the scores (n_scores,) for probabilities as if all classes were equally frequent.

    By Bayes' rule, a probability divided by its class's share among `labels` is the one under equal shares.
    Held-out scores (m, n_scores) that tell the classes apart by little bound the shift.
    """
    logs = torch.bincount(labels.cpu()).double().log()
    shift = (logs.mean() - logs if len(logs) > 2 else logs[:1] - logs[1:]) / inverse_temperature
    size = float(logs.max() - logs.min()) / inverse_temperature
    reach = 2 * _mean_lead(scores) if len(scores) else math.inf
    # An inverse temperature near 0 means that the scores say little. The shift would then be far larger than any score,
    # and every image would get the rarest class. But the calibrated probabilities are then nearly even, as they are
    # under equal shares: there is nothing to correct. So a shift of more than two typical scores (the default adds half
    # of it) does not stop there but falls back, to 0 for scores that tell nothing.
    return shift if size <= reach else shift * (reach / size) ** 2


def _mean_lead(scores: Tensor) -> float:
    """Return by how much the best class leads the mean of the others, on average: a typical score of two classes."""
    logits = to_logits(scores.cpu().double())
    best, n_classes = logits.max(dim=1).values, logits.shape[1]
    return float((best - (logits.sum(dim=1) - best) / (n_classes - 1)).mean())


def _on_cpu(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    return to_cpu_double(scores), labels.cpu()
