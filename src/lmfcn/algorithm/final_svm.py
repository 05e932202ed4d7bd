"""The last step: one SVM on the latents of the finished networks, which stay as they are."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lmfcn.algorithm.calibration import likeliest
from lmfcn.algorithm.decision import Decision
from lmfcn.algorithm.geometry import gamma_from_scale, latent_scale, rbf_kernel, squared_distances
from lmfcn.algorithm.margin import Margin, fit_margin
from lmfcn.algorithm.settings import Settings

C_FACTORS = (1.0, 0.1, 10.0)
GAMMA_FACTORS = (1.0, 0.3, 0.1, 3.0)
"""What cross-validation tries, as factors on the settings' own C and gamma; the settings themselves come first."""

ALWAYS = -1
"""The fold of images that are in every training part."""


@dataclass(frozen=True)
class FinalSVM:
    """The decision of a finished model.

    Attributes
    ----------
    decision : Decision
    support : Tensor (n_support,)
        Rows of its support vectors, ascending.
    C : float
        The price that was chosen; gamma is in the decision.
    gamma_factor : float
        The factor on the settings' own gamma that was chosen.
    held_out : Tensor (m,)
        Rows that were scored by SVMs that had not learnt from them.
    held_out_scores : Tensor (m, n_scores)
        Each from an SVM, and under a C and gamma, that its image had no part in.
    """

    decision: Decision
    support: Tensor
    C: float
    gamma_factor: float
    held_out: Tensor
    held_out_scores: Tensor


def fit_final_svm(
    latents: Tensor,
    labels: Tensor,
    folds: Tensor,
    settings: Settings,
    weights: Tensor | None = None,
    c_factors: Sequence[float] = C_FACTORS,
    gamma_factors: Sequence[float] = GAMMA_FACTORS,
) -> FinalSVM:
    """Fit the SVM on all latents, after cross-validation that scores every image of a fold.

    Parameters
    ----------
    latents : Tensor (n, phi)
        As the networks give them.
    labels : Tensor (n,)
        Classes 0, 1, ...
    folds : Tensor (n,)
        The fold of every image, or ALWAYS; every class must be left when a fold is taken away. With training
        images in every part and validation images in the folds, an SVM is judged by images that the networks
        have not seen.
    settings : Settings
        With `refit`, the C and gamma under which the held-out classes are most likely; else its own.
    weights : Tensor (n,), optional
        Factor on C for each image.
    c_factors, gamma_factors : sequence of float
        What cross-validation tries.
    """
    scale = latent_scale(latents, standardize=settings.standardize)
    latents = scale.apply(latents)
    squared = squared_distances(latents)
    gamma = gamma_from_scale(latents, settings.gamma_factor) if settings.gamma == "scale" else settings.gamma
    if not settings.refit:
        c_factors, gamma_factors = (1.0,), (1.0,)

    def candidates() -> Iterator[tuple[Rule, Tensor]]:
        for gamma_factor in gamma_factors:
            kernel = rbf_kernel(squared, gamma * gamma_factor)
            for c_factor in c_factors:
                yield Rule(settings.C * c_factor, gamma_factor, settings.balanced, weights), kernel

    rule, scores = choose_rule(candidates(), labels, folds)
    gamma *= rule.gamma_factor
    margin = rule.fit(rbf_kernel(squared, gamma), labels)
    decision = Decision(scale, gamma, latents[margin.support], margin.coefficients, margin.intercepts)
    return FinalSVM(decision, margin.support, rule.C, rule.gamma_factor, (folds != ALWAYS).nonzero()[:, 0], scores)


@dataclass(frozen=True)
class Rule:
    """How to fit an SVM on a kernel; `gamma_factor` tells which one and means nothing if there is only one."""

    C: float
    gamma_factor: float = 1.0
    balanced: bool = False
    weights: Tensor | None = None

    def fit(self, kernel: Tensor, labels: Tensor, part: Tensor | None = None) -> Margin:
        """Fit on a whole kernel, or on the images that `part` lists."""
        weights = self.weights
        if part is not None:
            kernel, labels = kernel[part[:, None], part], labels[part]
            weights = None if weights is None else weights[part]
        return fit_margin(kernel, labels, self.C, balanced=self.balanced, weights=weights)


def choose_rule(candidates: Iterable[tuple[Rule, Tensor]], labels: Tensor, folds: Tensor) -> tuple[Rule, Tensor]:
    """Return the rule with the likeliest held-out scores (the first one on a tie), and honest held-out scores.

    Scores of the chosen rule would flatter it, because it was chosen by them: each fold is scored under the rule
    that the other folds choose.

    Parameters
    ----------
    candidates : iterable of (Rule, Tensor (n, n))
        Rules, each with its kernel.
    labels, folds : Tensor (n,)
        As for `fit_final_svm`. If no image is in a fold, the first rule is returned, without scores.
    """
    held_out = folds != ALWAYS
    labels_out, folds_out = labels[held_out], folds[held_out]
    rules, scores = [], []
    for rule, kernel in candidates:
        if not len(folds_out):
            return rule, kernel.new_empty(0, 1)
        rules.append(rule)
        scores.append(_held_out_scores(rule, kernel, labels, folds)[held_out])
    tried = torch.stack(scores)
    honest = tried[0].clone()
    for fold in folds_out.unique().tolist() if len(rules) > 1 else []:
        mine = folds_out == fold
        others = ~mine if bool((~mine).any()) else mine
        honest[mine] = tried[likeliest(tried[:, others], labels_out[others]), mine]
    return rules[likeliest(tried, labels_out)], honest


def _held_out_scores(rule: Rule, kernel: Tensor, labels: Tensor, folds: Tensor) -> Tensor:
    """Return scores (n, n_scores), each from an SVM on the other folds; those of ALWAYS mean nothing."""
    n_classes = int(labels.max()) + 1
    scores = kernel.new_zeros(len(labels), 1 if n_classes == 2 else n_classes)
    for fold in folds[folds != ALWAYS].unique().tolist():
        mine, others = (folds == fold).nonzero()[:, 0], (folds != fold).nonzero()[:, 0]
        margin = rule.fit(kernel, labels, others)
        scores[mine] = kernel[mine[:, None], others[margin.support]] @ margin.coefficients + margin.intercepts
    return scores
