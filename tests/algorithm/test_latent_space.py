"""How settings reach steps 2 to 4."""

from dataclasses import replace

import pytest
import torch

from lmfcn.algorithm.geometry import gamma_from_scale
from lmfcn.algorithm.history import Stopwatch
from lmfcn.algorithm.latent_space import choose_anchors, survey
from lmfcn.algorithm.margin import Margin
from lmfcn.algorithm.settings import PRESETS, Settings

# Seven images on a line; class 1 (right) has support vectors only, and 4 is misclassified.
PLACES = torch.tensor([0.0, 1.0, 2.0, 4.0, 3.0, 7.0, 9.0])
LABELS = torch.tensor([0, 0, 0, 0, 1, 1, 1])
MARGIN = Margin(
    support=torch.tensor([3, 4, 5, 6]),
    misclassified=torch.tensor([4]),
    settled=torch.tensor([0, 1, 2]),
    coefficients=torch.zeros(4, 1),
    intercepts=torch.zeros(1),
)


def chosen(**changes):
    distances = (PLACES[:, None] - PLACES).abs()
    return choose_anchors(distances, LABELS, MARGIN, replace(Settings(sv_close=2, wr_close=2, sh_close=1), **changes))


def rows(anchors):
    return {int(i): row[ok].tolist() for i, row, ok in zip(anchors.moved, anchors.anchor, anchors.valid, strict=True)}


def test_stand_ins_serve_support_vectors_and_nobody_else():
    anchors = chosen()
    assert rows(anchors.support) == {3: [2, 1], 4: [5, 6], 5: [6], 6: [5]}
    assert rows(anchors.contrast) == {3: [5, 6], 4: [2, 1], 5: [2, 1], 6: [2, 1]}
    assert rows(anchors.opposite) == {0: [], 1: [], 2: []}
    assert anchors.n_without == 3


def test_without_stand_ins_a_class_without_settled_images_has_no_anchors():
    anchors = chosen(stand_ins=False, support_loss="pull")
    assert rows(anchors.support) == {3: [2, 1], 4: [], 5: [], 6: []}
    assert rows(anchors.correction) == {4: [5, 6]}
    assert anchors.n_without == 3 + 3


def test_a_comparison_needs_anchors_on_both_sides():
    # Class 1 is wholly misclassified, so not even stand-ins can be had for it.
    lost = replace(MARGIN, misclassified=torch.tensor([4, 5, 6]))
    distances = (PLACES[:, None] - PLACES).abs()
    compared = choose_anchors(distances, LABELS, lost, Settings(wr_close=0))
    assert compared.n_without == 4
    assert compared.moved.tolist() == []
    pulled = choose_anchors(distances, LABELS, lost, Settings(wr_close=0, support_loss="pull"))
    assert pulled.n_without == 3


def test_images_without_anchors_go_along_but_not_alone():
    assert chosen(stand_ins=False, wr_close=0, sh_close=0, support_loss="pull").moved.tolist() == [3, 4, 5, 6]
    nobody_settled = replace(MARGIN, support=torch.arange(7), settled=torch.arange(0))
    settings = Settings(wr_close=0, stand_ins=False)
    distances = (PLACES[:, None] - PLACES).abs()
    assert choose_anchors(distances, LABELS, nobody_settled, settings).moved.tolist() == []


def drawn(seed=0, n=40):
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.arange(n) < n // 5).long()
    return torch.randn(n, 3, generator=generator) + labels[:, None] * 0.8, labels


def surveyed(**changes):
    return survey(*drawn(), Settings(**changes), Stopwatch())


def test_gamma_is_the_scale_times_the_factor_or_the_given_number():
    plain = surveyed(standardize=False).decision.gamma
    assert plain == pytest.approx(gamma_from_scale(drawn()[0]))
    assert surveyed(standardize=False, gamma_factor=2.5).decision.gamma == pytest.approx(2.5 * plain)
    assert surveyed(gamma=0.07).decision.gamma == 0.07


def test_weights_and_balance_reach_the_svm():
    latents, labels = drawn()

    def missed(weights=None, **changes):
        settings = Settings(C=0.3, **changes)
        wrong = survey(latents, labels, settings, Stopwatch(), weights).margin.misclassified
        return int((labels[wrong] == 1).sum())

    assert missed(1.0 + 49.0 * labels) < missed()
    assert missed(balanced=True) <= missed()


def test_losses_are_measured_in_the_chosen_unit():
    space = surveyed(units="kernel")
    assert space.loss_unit**2 == pytest.approx(space.decision.gamma)
    assert surveyed(units="latent").loss_unit == 1.0


def test_seconds_are_counted_under_their_step():
    clock = Stopwatch()
    survey(*drawn(), Settings(), clock)
    assert set(clock.seconds) == {"svm", "anchors"}


def test_the_paper_preset_is_the_paper_with_its_authors_constants():
    assert PRESETS["paper"] == {
        "closing_epochs": 0,
        "latent_dim": 16,
        "strategy": "one-vs-all",
        "first_filters": "random",
        "keep_untrained": False,
        "C": 1.0,
        "standardize": False,
        "support_loss": "pull",
        "units": "latent",
        "correction_class": "any",
        "anchor_weight": 1.0,
        "head_weight": 0.0,
        "views": "none",
        "stand_ins": False,
        "batch_size": "all",
        "passes": 1,
        "keep": "best",
        "optimizer": "adadelta",
        "learning_rate": 0.1,
        "weight_decay": 0.1,
        "prior_shift": 0.0,
        "whiten": False,
        "refit": False,
    }
    shape = ("latent_dim", "strategy", "first_filters", "keep_untrained")
    paper = Settings(**{name: value for name, value in PRESETS["paper"].items() if name not in shape})
    assert (paper.sv_close, paper.wr_close, paper.sh_close, paper.epochs) == (5, 1, 0, 15)
    assert (paper.distance, paper.gamma, paper.gamma_factor) == ("squared", "scale", 1.0)
    assert Settings().correction_class == "own"
