"""Anchors by hand, by the rules of the paper, and as a recipe chooses them."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from lmfcn.method.anchors import (
    Anchors,
    analyse_latents,
    choose_anchors,
    correction_anchors,
    opposite_anchors,
    support_anchors,
    with_fallback_anchors,
)
from lmfcn.method.history import Stopwatch
from lmfcn.method.kernel_svm import FittedSVM, gamma_from_scale
from lmfcn.recipe import Recipe

# Six images on a line at 0, 1, 3, 6, 10, 15; class 0 on the left. Image 2 is misclassified.
PLACES = torch.tensor([0.0, 1.0, 3.0, 6.0, 10.0, 15.0])
DISTANCES = (PLACES[:, None] - PLACES).abs()
LABELS = torch.tensor([0, 0, 1, 0, 1, 1])
SUPPORT, MISCLASSIFIED, SETTLED = torch.tensor([2, 3, 4]), torch.tensor([2]), torch.tensor([0, 1, 5])


def as_dict(anchors: Anchors) -> dict[int, list[int]]:
    return {
        int(i): [int(j) for j, valid in zip(row, ok, strict=True) if valid]
        for i, row, ok in zip(anchors.moved, anchors.anchor, anchors.valid, strict=True)
    }


def test_type_1_by_hand():
    anchors = support_anchors(DISTANCES, LABELS, SUPPORT, SETTLED, k=2)
    assert as_dict(anchors) == {2: [5], 3: [1, 0], 4: [5]}
    assert anchors.n_without == 0


def test_type_2_by_hand():
    own = correction_anchors(DISTANCES, LABELS, MISCLASSIFIED, SUPPORT, k=2)
    assert as_dict(own) == {2: [4]}
    literal = correction_anchors(DISTANCES, LABELS, MISCLASSIFIED, SUPPORT, k=2, any_class=True)
    assert as_dict(literal) == {2: [3, 4]}


def test_type_3_by_hand():
    assert as_dict(opposite_anchors(DISTANCES, LABELS, SETTLED, SETTLED, k=1)) == {0: [5], 1: [5], 5: [1]}


def test_anchors_of_the_other_class_for_support_vectors():
    assert as_dict(opposite_anchors(DISTANCES, LABELS, SUPPORT, SETTLED, k=2)) == {2: [1, 0], 3: [5], 4: [1, 0]}


def test_everyone_a_support_vector_leaves_no_anchor():
    anchors = support_anchors(DISTANCES, LABELS, torch.arange(6), torch.arange(0), k=3)
    assert as_dict(anchors) == {i: [] for i in range(6)}
    assert anchors.n_without == 6


def test_a_class_without_settled_images_gets_its_correct_support_vectors():
    # Class 1 is images 2, 4 and 5, all support vectors; 2 is misclassified.
    pool = with_fallback_anchors(LABELS, settled=torch.tensor([0, 1]), misclassified=MISCLASSIFIED)
    assert pool.tolist() == [0, 1, 4, 5]
    anchors = support_anchors(DISTANCES, LABELS, torch.tensor([2, 3, 4, 5]), pool, k=2)
    assert as_dict(anchors) == {2: [4, 5], 3: [1, 0], 4: [5], 5: [4]}


def test_stand_ins_are_not_called_where_there_are_settled_images():
    assert with_fallback_anchors(LABELS, SETTLED, MISCLASSIFIED).tolist() == SETTLED.tolist()


def test_nobody_to_move_gives_no_anchors():
    nobody = torch.arange(0)
    for anchors in (
        support_anchors(DISTANCES, LABELS, nobody, SETTLED, k=3),
        correction_anchors(DISTANCES, LABELS, nobody, SUPPORT, k=3),
        opposite_anchors(DISTANCES, LABELS, nobody, nobody, k=3),
    ):
        assert anchors.anchor.shape[0] == anchors.n_without == 0


def test_the_only_support_vector_of_a_class_is_not_its_own_anchor():
    anchors = correction_anchors(DISTANCES, LABELS, torch.tensor([3]), torch.tensor([2, 3, 4]), k=2)
    assert as_dict(anchors) == {3: []}


def test_more_anchors_than_images_is_no_error():
    assert as_dict(support_anchors(DISTANCES, LABELS, SUPPORT, SETTLED, k=99))[3] == [1, 0]


def test_match_finds_rows_of_a_batch():
    anchors = support_anchors(DISTANCES, LABELS, SUPPORT, SETTLED, k=1)
    places, rows = anchors.match(torch.tensor([4, 0, 2]))
    assert places.tolist() == [0, 2]
    assert rows.tolist() == [2, 0]


def test_distances_stay_unchanged():
    before = DISTANCES.clone()
    support_anchors(DISTANCES, LABELS, SUPPORT, SETTLED, k=2)
    assert torch.equal(DISTANCES, before)


@st.composite
def divided_images(draw):
    """Distances without ties, labels and a division into S (with Q inside) and R."""
    n = draw(st.integers(2, 14))
    seed = draw(st.integers(0, 10_000))
    generator = torch.Generator().manual_seed(seed)
    distances = torch.rand(n, n, generator=generator, dtype=torch.float64)
    distances = distances + distances.T
    labels = torch.randint(0, 2, (n,), generator=generator)
    role = torch.randint(0, 3, (n,), generator=generator)  # settled, support, misclassified
    support, misclassified, settled = (mask.nonzero()[:, 0] for mask in (role > 0, role == 2, role == 0))
    return distances, labels, support, misclassified, settled, draw(st.integers(1, 4))


@settings(deadline=None)
@given(divided_images(), st.booleans())
def test_agree_with_the_rules_of_the_paper(images, any_class):
    distances, labels, support, misclassified, settled, k = images
    plain = (distances.tolist(), labels.tolist())
    members = [indices.tolist() for indices in (support, misclassified, settled)]
    assert as_dict(support_anchors(distances, labels, support, settled, k)) == oracles.support_anchors(
        *plain, members[0], members[1], k
    )
    assert as_dict(
        correction_anchors(distances, labels, misclassified, support, k, any_class=any_class)
    ) == oracles.correction_anchors(*plain, members[0], members[1], k, any_class=any_class)
    for moved in (support, settled):
        assert as_dict(opposite_anchors(distances, labels, moved, settled, k)) == oracles.opposite_anchors(
            *plain, moved.tolist(), members[2], k
        )


@settings(deadline=None)
@given(divided_images())
def test_anchors_of_any_class_are_equations_6_and_7(images):
    distances, labels, support, misclassified, _, k = images
    z = oracles.equation_6(distances.tolist(), support.tolist(), misclassified.tolist())
    literal = correction_anchors(distances, labels, misclassified, support, k, any_class=True)
    assert as_dict(literal) == oracles.equation_7(z, misclassified.tolist(), k)


@settings(deadline=None)
@given(divided_images(), st.randoms(use_true_random=False))
def test_permuting_the_images_permutes_the_anchors(images, shuffler):
    distances, labels, support, _, settled, k = images
    order = list(range(len(labels)))
    shuffler.shuffle(order)
    new_place = torch.tensor(order).argsort()
    plain = as_dict(support_anchors(distances, labels, support, settled, k))
    permuted = as_dict(
        support_anchors(
            distances[order][:, order],
            labels[order],
            new_place[support].sort().values,
            new_place[settled].sort().values,
            k,
        )
    )
    assert {order[i]: [order[j] for j in row] for i, row in permuted.items()} == plain


# Seven images on a line; class 1 (right) has support vectors only, and 4 is misclassified.
PLACES_latent_space = torch.tensor([0.0, 1.0, 2.0, 4.0, 3.0, 7.0, 9.0])
LABELS_latent_space = torch.tensor([0, 0, 0, 0, 1, 1, 1])
MARGIN = FittedSVM(
    support=torch.tensor([3, 4, 5, 6]),
    misclassified=torch.tensor([4]),
    settled=torch.tensor([0, 1, 2]),
    coefficients=torch.zeros(4, 1),
    intercepts=torch.zeros(1),
)


def chosen(**changes):
    distances = (PLACES_latent_space[:, None] - PLACES_latent_space).abs()
    return choose_anchors(
        distances, LABELS_latent_space, MARGIN, replace(Recipe(sv_close=2, wr_close=2, sh_close=1), **changes)
    )


def rows(anchors):
    return {int(i): row[ok].tolist() for i, row, ok in zip(anchors.moved, anchors.anchor, anchors.valid, strict=True)}


def test_stand_ins_serve_support_vectors_and_nobody_else():
    anchors = chosen()
    assert rows(anchors.support) == {3: [2, 1], 4: [5, 6], 5: [6], 6: [5]}
    assert rows(anchors.contrast) == {3: [5, 6], 4: [2, 1], 5: [2, 1], 6: [2, 1]}
    assert rows(anchors.opposite) == {0: [], 1: [], 2: []}
    assert anchors.n_without == 3


def test_without_stand_ins_a_class_without_settled_images_has_no_anchors():
    anchors = chosen(fallback_anchors=False, support_loss="pull")
    assert rows(anchors.support) == {3: [2, 1], 4: [], 5: [], 6: []}
    assert rows(anchors.correction) == {4: [5, 6]}
    assert anchors.n_without == 3 + 3


def test_a_comparison_needs_anchors_on_both_sides():
    # Class 1 is wholly misclassified, so not even stand-ins can be had for it.
    lost = replace(MARGIN, misclassified=torch.tensor([4, 5, 6]))
    distances = (PLACES_latent_space[:, None] - PLACES_latent_space).abs()
    compared = choose_anchors(distances, LABELS_latent_space, lost, Recipe(wr_close=0))
    assert compared.n_without == 4
    assert compared.moved.tolist() == []
    pulled = choose_anchors(distances, LABELS_latent_space, lost, Recipe(wr_close=0, support_loss="pull"))
    assert pulled.n_without == 3


def test_images_without_anchors_go_along_but_not_alone():
    assert chosen(fallback_anchors=False, wr_close=0, sh_close=0, support_loss="pull").moved.tolist() == [3, 4, 5, 6]
    nobody_settled = replace(MARGIN, support=torch.arange(7), settled=torch.arange(0))
    recipe = Recipe(wr_close=0, fallback_anchors=False)
    distances = (PLACES_latent_space[:, None] - PLACES_latent_space).abs()
    assert choose_anchors(distances, LABELS_latent_space, nobody_settled, recipe).moved.tolist() == []


def drawn(seed=0, n=40):
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.arange(n) < n // 5).long()
    return torch.randn(n, 3, generator=generator) + labels[:, None] * 0.8, labels


def surveyed(**changes):
    return analyse_latents(*drawn(), Recipe(**changes), Stopwatch())


def test_gamma_is_the_scale_times_the_factor_or_the_given_number():
    plain = surveyed(standardize=False).decision.gamma
    assert plain == pytest.approx(gamma_from_scale(drawn()[0]))
    assert surveyed(standardize=False, gamma_factor=2.5).decision.gamma == pytest.approx(2.5 * plain)
    assert surveyed(gamma=0.07).decision.gamma == 0.07


def test_weights_and_balance_reach_the_svm():
    latents, labels = drawn()

    def missed(weights=None, **changes):
        recipe = Recipe(C=0.3, **changes)
        wrong = analyse_latents(latents, labels, recipe, Stopwatch(), weights).svm.misclassified
        return int((labels[wrong] == 1).sum())

    assert missed(1.0 + 49.0 * labels) < missed()
    assert missed(balanced=True) <= missed()


def test_losses_are_measured_in_the_chosen_unit():
    space = surveyed(distance_units="kernel")
    assert space.loss_unit**2 == pytest.approx(space.decision.gamma)
    assert surveyed(distance_units="latent").loss_unit == 1.0


def test_seconds_are_counted_under_their_step():
    clock = Stopwatch()
    analyse_latents(*drawn(), Recipe(), clock)
    assert set(clock.seconds) == {"svm", "anchors"}
