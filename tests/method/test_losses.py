import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from lmfcn.method.losses import contrast_loss, correction_loss, separation_loss, support_loss

# Two moving images at (0, 0) and (1, 1), two anchors each; the second anchor of the second is not allowed.
MOVED = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
ANCHORS = torch.tensor([[[3.0, 4.0], [0.0, 1.0]], [[1.0, 3.0], [9.0, 9.0]]])
VALID = torch.tensor([[True, True], [True, False]])


@pytest.mark.parametrize("pull", [support_loss, correction_loss])
def test_equations_11_and_12_by_hand(pull):
    assert pull(MOVED, ANCHORS, VALID).item() == pytest.approx((25 + 1 + 4) / 2)
    assert pull(MOVED, ANCHORS, VALID, squared=False).item() == pytest.approx((5 + 1 + 2) / 2)


def test_equation_13_by_hand():
    assert separation_loss(MOVED, ANCHORS, VALID).item() == pytest.approx(2 / (25 + 1 + 4))


def test_contrast_by_hand():
    # Image 1 has own anchors at mean squared distance 13 and other ones at 2; image 2: 4 and 18.
    other = (MOVED, torch.tensor([[[1.0, 1.0]], [[4.0, 4.0]]]), torch.tensor([[True], [True]]))
    expected = (math.log1p(math.exp(0.5 * (13 - 2) + 1)) + math.log1p(math.exp(0.5 * (4 - 18) + 1))) / 2
    assert contrast_loss((MOVED, ANCHORS, VALID), other, scale=0.5).item() == pytest.approx(expected, rel=1e-5)


def test_contrast_needs_anchors_on_both_sides():
    own = (MOVED, ANCHORS, torch.tensor([[True, True], [False, False]]))
    other = (MOVED, ANCHORS, torch.tensor([[False, False], [True, True]]))
    assert contrast_loss(own, other, scale=1.0).item() == 0.0


@st.composite
def pairs(draw):
    m, k, width = draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    moved = torch.randn(m, width, generator=generator, dtype=torch.float64)
    anchors = torch.randn(m, k, width, generator=generator, dtype=torch.float64)
    valid = torch.rand(m, k, generator=generator) < 0.7
    return moved, anchors, valid


def as_points(moved, anchors, valid):
    """Put all points in one list, as the oracles want them."""
    m, k, width = anchors.shape
    points = moved.tolist() + anchors.reshape(m * k, width).tolist()
    return points, {i: [m + i * k + j for j in range(k) if valid[i, j]] for i in range(m)}


@settings(deadline=None)
@given(pairs())
def test_losses_agree_with_loops(drawn):
    points, chosen = as_points(*drawn)
    assert support_loss(*drawn).item() == pytest.approx(oracles.pull_loss(points, chosen))
    assert correction_loss(*drawn, squared=False).item() == pytest.approx(
        oracles.pull_loss(points, chosen, squared=False)
    )
    assert separation_loss(*drawn).item() == pytest.approx(oracles.separation_loss(points, chosen))


@settings(deadline=None)
@given(pairs(), st.integers(0, 1000))
def test_contrast_agrees_with_loops(own, seed):
    generator = torch.Generator().manual_seed(seed)
    other = (own[0], torch.randn(own[1].shape, generator=generator, dtype=torch.float64), own[2].flip(0))
    points, near = as_points(*own)
    shift = len(points) - len(own[0])
    points += as_points(*other)[0][len(own[0]) :]
    far = {i: [j + shift for j in row] for i, row in as_points(*other)[1].items()}
    assert contrast_loss(own, other, 2.0).item() == pytest.approx(oracles.contrast_loss(points, near, far, 2.0))


@pytest.mark.parametrize(
    "loss",
    [
        support_loss,
        lambda *drawn: correction_loss(*drawn, squared=False),
        separation_loss,
        lambda *drawn: contrast_loss(drawn, (drawn[0], drawn[1] + 1.0, drawn[2]), 2.0),
    ],
    ids=["pull squared", "pull euclidean", "separation", "contrast"],
)
def test_gradients_in_double_precision(loss):
    moved = MOVED.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda latents: loss(latents, ANCHORS.double(), VALID), moved)


@pytest.mark.parametrize("squared", [True, False])
def test_an_image_on_its_anchor_has_a_finite_gradient(squared):
    moved = torch.zeros(1, 2, requires_grad=True)
    support_loss(moved, torch.zeros(1, 1, 2), torch.ones(1, 1, dtype=torch.bool), squared=squared).backward()
    assert moved.grad is not None
    assert moved.grad.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("loss", [support_loss, correction_loss, separation_loss])
def test_nobody_to_move_costs_nothing(loss):
    moved = torch.zeros(0, 2, requires_grad=True)
    cost = loss(moved, torch.zeros(0, 3, 2), torch.zeros(0, 3, dtype=torch.bool))
    cost.backward()
    assert cost.item() == 0.0


@pytest.mark.parametrize("loss", [support_loss, correction_loss, separation_loss])
def test_no_allowed_anchor_costs_nothing(loss):
    assert loss(MOVED, ANCHORS, torch.zeros(2, 2, dtype=torch.bool)).item() == 0.0
