"""Steps 2 to 5 on given latents, against the loops of the oracles."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import oracles
from lmfcn.compute.encode import encode, to_batch
from lmfcn.method.anchors import analyse_latents
from lmfcn.method.backpropagation import Descent, Head, augment
from lmfcn.method.history import Stopwatch
from lmfcn.method.losses import loss_terms
from lmfcn.method.network import TextureFCN
from lmfcn.recipe import Recipe

PAPER = Recipe(
    sv_close=3,
    wr_close=2,
    sh_close=2,
    C=2.0,
    standardize=False,
    support_loss="pull",
    distance_units="latent",
    fallback_anchors=False,
    batch_size="all",
    anchor_weight=1.0,
    head_weight=0.0,
    augmentation="none",
)
TWO_CLASSES = torch.tensor([0, 1])
VARIANTS = {
    "paper": PAPER,
    "euclidean": replace(PAPER, distance="euclidean"),
    "any class": replace(PAPER, correction_class="any"),
    "kernel units": replace(PAPER, distance_units="kernel"),
    "standardized": replace(PAPER, standardize=True),
    "contrast": replace(PAPER, support_loss="contrast", contrast_scale=1.5),
    "default": Recipe(),
}


def drawn_latents(seed: int, n: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 2
    return torch.randn(n, 3, generator=generator) + labels[:, None] * 1.2, labels


def slow_losses(latents, labels, recipe):
    """Equations 1 to 13 (and the contrast loss) by loops, from S, Q and R of the space itself."""
    space = analyse_latents(latents, labels, recipe, Stopwatch())
    points = space.latents.tolist()
    distances = [[d**0.5 for d in row] for row in oracles.squared_distances(points)]
    support, wrong, settled = (
        indices.tolist() for indices in (space.svm.support, space.svm.misclassified, space.svm.settled)
    )
    labels = labels.tolist()
    if recipe.distance_units == "kernel":
        points = [[x * space.decision.gamma**0.5 for x in point] for point in points]
    own = oracles.support_anchors(distances, labels, support, wrong, recipe.sv_close)
    fix = oracles.correction_anchors(
        distances, labels, support, wrong, recipe.wr_close, any_class=recipe.correction_class == "any"
    )
    squared = recipe.distance == "squared"
    if recipe.support_loss == "pull":
        first = oracles.pull_loss(points, own, squared=squared)
    else:
        other = oracles.opposite_anchors(distances, labels, support, settled, recipe.sv_close)
        first = oracles.contrast_loss(points, own, other, recipe.contrast_scale)
    apart = oracles.opposite_anchors(distances, labels, settled, settled, recipe.sh_close)
    return first, oracles.pull_loss(points, fix, squared=squared), oracles.separation_loss(points, apart)


def fast_losses(latents, labels, recipe):
    space = analyse_latents(latents, labels, recipe, Stopwatch())
    terms = loss_terms(space.latents, torch.arange(len(labels)), space, recipe)
    return terms.support.item(), terms.correction.item(), terms.separation.item()


@pytest.mark.parametrize("recipe", VARIANTS.values(), ids=VARIANTS.keys())
@pytest.mark.parametrize("seed", range(3))
def test_losses_of_an_epoch_agree_with_loops(recipe, seed):
    latents, labels = drawn_latents(seed)
    fast = fast_losses(latents, labels, recipe)
    assert fast == pytest.approx(slow_losses(latents, labels, recipe), rel=1e-4)
    assert fast[0] > 0


@pytest.mark.parametrize("recipe", VARIANTS.values(), ids=VARIANTS.keys())
def test_permuting_the_images_leaves_the_losses_as_they_are(recipe):
    latents, labels = drawn_latents(3)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    assert fast_losses(latents[order], labels[order], recipe) == pytest.approx(
        fast_losses(latents, labels, recipe), rel=1e-5
    )


def test_the_correction_of_the_paper_recipe_is_the_letter_of_its_equations():
    recipe = Recipe.paper()
    latents, labels = drawn_latents(0)
    space = analyse_latents(latents, labels, recipe, Stopwatch())
    support, wrong = space.svm.support.tolist(), space.svm.misclassified.tolist()
    distances = [[d**0.5 for d in row] for row in oracles.squared_distances(latents.tolist())]
    anchors = oracles.equation_7(oracles.equation_6(distances, support, wrong), wrong, recipe.wr_close)
    assert any(labels[i] != labels[j] for i, chosen in anchors.items() for j in chosen)
    correction = loss_terms(space.latents, torch.arange(len(labels)), space, recipe).correction.item()
    assert correction == pytest.approx(oracles.pull_loss(latents.tolist(), anchors), rel=1e-4)


def test_total_is_the_sum_of_the_terms():
    latents, labels = drawn_latents(0)
    space = analyse_latents(latents, labels, PAPER, Stopwatch())
    terms = loss_terms(space.latents, torch.arange(len(labels)), space, PAPER)
    assert terms.total.item() == pytest.approx(sum(fast_losses(latents, labels, PAPER)))
    assert terms.separation.item() > 0


def test_a_batch_costs_the_mean_over_its_own_members():
    latents, labels = drawn_latents(0)
    recipe = replace(PAPER, wr_close=0, sh_close=0)
    space = analyse_latents(latents, labels, recipe, Stopwatch())
    whole = loss_terms(space.latents, torch.arange(len(labels)), space, recipe).support.item()
    first, second = space.svm.support.tensor_split(2)
    parts = [loss_terms(space.latents[half], half, space, recipe).support.item() for half in (first, second)]
    assert (parts[0] * len(first) + parts[1] * len(second)) / (len(first) + len(second)) == pytest.approx(whole)


def test_anchors_carry_no_gradient():
    latents, labels = drawn_latents(0)
    recipe = replace(PAPER, sh_close=0)
    space = analyse_latents(latents, labels, recipe, Stopwatch())
    moved = space.latents.clone().requires_grad_()
    loss_terms(moved, torch.arange(len(labels)), space, recipe).total.backward()
    assert moved.grad is not None
    still = moved.grad.abs().sum(dim=1) == 0
    assert still[space.svm.settled].all()
    assert not space.latents.requires_grad


@pytest.fixture
def small_problem(random):
    images = random.integers(0, 256, (24, 10, 10, 1)).astype(np.uint8)
    images[::2] //= 2
    return images, torch.arange(24) % 2


def make_space(network, images, labels, recipe):
    return analyse_latents(encode(network, images, torch.device("cpu")), labels, recipe, Stopwatch())


def test_every_moving_image_goes_through_once_per_pass(small_problem, generator):
    images, labels = small_problem
    recipe = Recipe(passes=2, batch_size=5)
    network = TextureFCN(1, 4, (4, 4), generator=generator)
    space = make_space(network, images, labels, recipe)
    descent = Descent(network, labels, recipe, generator)
    moved = space.anchors.moved
    seen = np.concatenate(list(descent._batches(images, moved.numpy())))
    assert sorted(seen.tolist()) == sorted(moved.tolist() * 2)
    assert descent.back_propagate(images, space, epoch=0) == 2 * len(moved)


def test_the_whole_set_can_be_one_batch(small_problem, generator):
    images, labels = small_problem
    network = TextureFCN(1, 4, (4, 4), generator=generator)
    moved = make_space(network, images, labels, PAPER).anchors.moved
    batches = list(Descent(network, labels, replace(PAPER, passes=1), generator)._batches(images, moved.numpy()))
    assert [sorted(batch.tolist()) for batch in batches] == [moved.tolist()]


def test_one_batch_costs_what_the_equations_say():
    # One class has no settled image, so part of S has no anchor; the terms still divide by all of S.
    latents, labels = drawn_latents(1, n=12)
    recipe = replace(PAPER, C=1.0, sh_close=0)
    space = analyse_latents(latents, labels, recipe, Stopwatch())
    moved = space.anchors.moved
    batch = loss_terms(space.latents[moved], moved, space, recipe)
    assert space.anchors.n_without > 0
    assert batch.support.item() == pytest.approx(slow_losses(latents, labels, recipe)[0], rel=1e-4)


def test_only_support_vectors_move_when_the_third_term_is_off(small_problem, generator):
    images, labels = small_problem
    network = TextureFCN(1, 4, (4, 4), generator=generator)
    space = make_space(network, images, labels, Recipe())
    assert set(space.anchors.moved.tolist()) <= set(space.svm.support.tolist())
    both = make_space(network, images, labels, Recipe(sh_close=1))
    assert set(both.svm.settled.tolist()) & set(both.anchors.moved.tolist())


def test_a_step_descends_the_total_loss_of_scaled_latents(small_problem, monkeypatch):
    images, labels = small_problem[0], torch.arange(24) // 12  # not what the images show: some stay misclassified
    recipe = Recipe(
        batch_size="all",
        passes=1,
        wr_close=1,
        C=0.5,
        anchor_weight=0.5,
        head_weight=2.0,
        augmentation="none",
        precision="float32",
    )
    network = TextureFCN(1, 4, (4, 4), generator=torch.Generator().manual_seed(1))
    space = make_space(network, images, labels, recipe)
    moved = space.anchors.moved
    assert len(space.svm.misclassified) > 0
    twin = copy.deepcopy(network).train()
    descent = Descent(network, labels, recipe, torch.Generator().manual_seed(0))
    torch.nn.init.uniform_(descent.head.linear.weight, generator=torch.Generator().manual_seed(2))
    latents = twin(to_batch(images[moved.numpy()], torch.device("cpu")))
    terms = loss_terms(space.decision.scale.apply(latents), moved, space, recipe)
    guesses = latents @ descent.head.linear.weight.T  # the bias is 0, the classes are equally frequent
    head = torch.nn.functional.cross_entropy(guesses, labels[moved])
    (0.5 * (terms.support + terms.correction) + 2.0 * head).backward()
    steps = []
    monkeypatch.setattr(descent.optimizer, "step", lambda: steps.append([w.grad.clone() for w in network.parameters()]))
    descent.back_propagate(images, space, epoch=0)
    assert len(steps) == 1
    for gradient, weight in zip(steps[0], twin.parameters(), strict=True):
        torch.testing.assert_close(gradient, weight.grad, rtol=5e-3, atol=1e-5)  # batches come in another order


def test_adamw_gets_its_rate_and_decay(generator):
    optimizer = Descent(
        TextureFCN(1, 2, (2, 2)), TWO_CLASSES, Recipe(learning_rate=0.5, weight_decay=0.25), generator
    ).optimizer
    assert isinstance(optimizer, torch.optim.AdamW)
    assert (optimizer.defaults["lr"], optimizer.defaults["weight_decay"]) == (0.5, 0.25)


def test_learning_rate_falls_along_half_a_cosine(generator):
    recipe = Recipe(epochs=4, learning_rate=1.0, final_rate=0.2)
    descent = Descent(TextureFCN(1, 2, (2, 2)), TWO_CLASSES, recipe, generator)
    rates = [descent.start_epoch(epoch) for epoch in range(5)]
    assert rates == pytest.approx([1.0, 0.8828427, 0.6, 0.3171573, 0.2])
    assert descent.optimizer.param_groups[0]["lr"] == pytest.approx(0.2)


def test_the_head_learns_at_a_multiple_of_the_rate(generator):
    network, recipe = TextureFCN(1, 2, (2, 2)), Recipe(epochs=4, learning_rate=0.3, head_rate=5.0)
    descent = Descent(network, TWO_CLASSES, recipe, generator)
    for epoch in range(3):
        rate = descent.start_epoch(epoch)
        of_network, of_head = descent.optimizer.param_groups
        assert (of_network["lr"], of_head["lr"]) == pytest.approx((rate, 5 * rate))
    assert {id(weight) for weight in of_network["params"]} == {id(weight) for weight in network.parameters()}
    assert {id(weight) for weight in of_head["params"]} == {id(weight) for weight in descent.head.parameters()}


def test_the_paper_recipe_uses_the_authors_optimiser(generator):
    recipe = Recipe(optimizer="adadelta", learning_rate=0.1, weight_decay=0.1)
    optimizer = Descent(TextureFCN(1, 2, (2, 2)), TWO_CLASSES, recipe, generator).optimizer
    assert isinstance(optimizer, torch.optim.Adadelta)
    assert {name: optimizer.defaults[name] for name in ("lr", "rho", "eps", "weight_decay")} == {
        "lr": 0.1,
        "rho": 0.65,
        "eps": 1e-6,
        "weight_decay": 0.1,
    }


def test_the_head_costs_what_a_hand_computes():
    head = Head(2, torch.tensor([0, 0, 0, 1]))  # factors 2/3 and 2
    latents, labels = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
    assert head(latents, labels).item() == pytest.approx(math.log(2))  # a new head knows nothing
    with torch.no_grad():
        head.linear.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    costs = math.log(1 + math.exp(-1)), math.log(2)
    assert head(latents, labels).item() == pytest.approx((costs[0] * 2 / 3 + costs[1] * 2) / (2 / 3 + 2))


def test_the_head_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    Head(4, TWO_CLASSES)
    torch.testing.assert_close(torch.rand(3), expected)


def test_with_a_head_all_support_vectors_move_even_without_anchors(small_problem, generator):
    images, labels = small_problem
    recipe = Recipe(sv_close=0, wr_close=0, passes=1)
    network = TextureFCN(1, 4, (4, 4), generator=generator)
    space = make_space(network, images, labels, recipe)
    assert len(space.anchors.moved) == 0
    descent = Descent(network, labels, recipe, generator)
    assert descent.moved(space).tolist() == space.svm.support.tolist()
    assert descent.back_propagate(images, space, epoch=0) == len(space.svm.support)
    assert float(descent.head.linear.weight.detach().abs().max()) > 0


def as_they_were(network) -> list[torch.Tensor]:
    return [weight.detach().clone() for weight in network.parameters()]


@pytest.fixture
def easy_problem(random):
    """Two classes that differ in brightness: most images are settled from the start."""
    images = random.integers(0, 60, (60, 10, 10, 1)).astype(np.uint8)
    images[::2] += np.linspace(0, 195, 30).astype(np.uint8)[:, None, None, None]
    return images, torch.arange(60) % 2


def test_terms_of_weight_0_move_nothing(easy_problem, generator):
    images, labels = easy_problem
    recipe = Recipe(anchor_weight=0.0, sh_close=1, batch_size=2, passes=1)
    network = TextureFCN(1, 4, (4, 4), generator=generator)
    space = make_space(network, images, labels, recipe)
    assert len(space.svm.settled) > 10
    assert set(space.svm.settled.tolist()) <= set(space.anchors.moved.tolist())
    descent = Descent(network, labels, recipe, generator)
    assert descent.moved(space).tolist() == space.svm.support.tolist()
    assert descent.back_propagate(images, space, epoch=0) == len(space.svm.support)


def test_no_term_at_all_moves_nothing(easy_problem, generator):
    images, labels = easy_problem
    recipe = Recipe(anchor_weight=0.0, sh_close=1)
    object.__setattr__(recipe, "head_weight", 0.0)  # a new recipe would refuse it
    network = TextureFCN(1, 4, (4, 4), generator=generator)
    before = as_they_were(network)
    descent = Descent(network, labels, recipe, generator)
    assert descent.back_propagate(images, make_space(network, images, labels, recipe), epoch=0) == 0
    assert all(map(torch.equal, before, network.parameters()))


def test_a_batch_without_any_cost_takes_no_step(easy_problem, generator):
    # Support vectors have the head's cost. Of the settled images only the first has an anchor.
    images, labels = easy_problem
    recipe = Recipe(sv_close=0, wr_close=0, sh_close=1, batch_size=1, passes=1)
    network = TextureFCN(1, 4, (4, 4), generator=generator)
    space = make_space(network, images, labels, recipe)
    first = torch.arange(len(space.svm.settled)) == 0
    space = replace(space, anchors=replace(space.anchors, opposite=space.anchors.opposite.only_where(first)))
    descent = Descent(network, labels, recipe, generator)
    assert len(descent.moved(space)) == len(images)
    steps = []
    descent.optimizer.register_step_post_hook(lambda *_: steps.append(1))
    assert descent.back_propagate(images, space, epoch=0) == len(steps) == len(space.svm.support) + 1


def all_augmentations(image: torch.Tensor, kind: str) -> list[torch.Tensor]:
    """All flips, or all flips and quarter turns, of an image (c, h, w), written out."""
    flips = [image, image.flip(1), image.flip(2), image.flip(1).flip(2)]
    return flips + [flip.transpose(1, 2) for flip in flips] if kind == "dihedral" else flips


@pytest.mark.parametrize(("kind", "n_results"), [("flips", 4), ("dihedral", 8)])
def test_augmentation_gives_all_flips_and_turns_of_its_kind(kind, n_results, generator):
    image = torch.arange(18.0).reshape(2, 3, 3)
    augmented = augment(image.repeat(200, 1, 1, 1), kind, generator)
    results = all_augmentations(image, kind)
    found = {next(i for i, result in enumerate(results) if torch.equal(result, one)) for one in augmented}
    assert found == set(range(n_results))


def test_augmentation_leaves_shapes_and_its_input_unchanged(generator):
    image = torch.rand(8, 1, 3, 5)
    before = image.clone()
    assert augment(image, "none", generator) is image
    assert augment(image, "dihedral", generator).shape == image.shape  # not square: mirrored only
    torch.testing.assert_close(image, before)
