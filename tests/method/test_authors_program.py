"""The choices of the authors' published program: one step per term, image by image, running averages."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from lmfcn import LMFCNClassifier
from lmfcn.compute.encode import encode, to_batch
from lmfcn.method.anchors import analyse_latents
from lmfcn.method.history import Stopwatch
from lmfcn.recipe import Recipe
from some_training import measured, problem_of, training_of

CPU = torch.device("cpu")
PROGRAM = replace(Recipe.authors_program(), latent_dim=4, epochs=2, strategy="joint", C=10.0)


@pytest.fixture
def problem(textures):
    """Half of the labels are wrong, so some images stay misclassified."""
    found = problem_of(textures)
    return replace(found, labels=torch.arange(20) % 2)


@pytest.fixture
def spaces(problem):
    """A training, and the latent space at its start."""
    training = training_of(problem, PROGRAM)
    latents = encode(training.network, problem.images, CPU)
    return training, analyse_latents(latents, problem.labels, PROGRAM, Stopwatch())


def test_images_are_normalised_one_by_one_and_their_losses_added(problem, spaces):
    training, space = spaces
    support = space.anchors.single_terms()[0]
    network = copy.deepcopy(training.network).train()
    n_images = training.descent.back_propagate(problem.images, replace(space, anchors=support), 0)
    moved = space.svm.support
    for image, anchors in zip(moved, support.support.anchor, strict=True):
        latents = network(to_batch(problem.images[image][None], CPU))
        torch.linalg.vector_norm(latents - space.latents[anchors], dim=1).sum().backward()
    assert n_images == len(moved) > 5
    for found, expected in zip(training.network.parameters(), network.parameters(), strict=True):
        assert torch.allclose(found.grad, expected.grad, rtol=1e-4, atol=1e-6)
    # The running averages have seen one class after the other.
    order = moved[problem.labels[moved].argsort(stable=True)]
    by_class = copy.deepcopy(network).train()
    for layer in by_class.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.reset_running_stats()
    for image in order:
        by_class(to_batch(problem.images[image][None], CPU))
    for found, expected in zip(training.network.buffers(), by_class.buffers(), strict=True):
        assert torch.allclose(found.float(), expected.float(), rtol=1e-4, atol=1e-6)


def test_every_term_has_its_step(problem, spaces):
    training, space = spaces
    assert len(space.svm.misclassified) > 0
    shares, steps = [], []
    training.descent.optimizer.register_step_post_hook(lambda *_: steps.append(1))
    training._batch_done = shares.append
    record, space = training.train_epoch(0)
    assert len(steps) == 2  # supports and misclassified; the third term is off
    assert shares == [0.5, 1.0]
    assert record.n_backpropagated == record.n_support + record.n_misclassified
    together = training_of(problem, replace(PROGRAM, step_per="batch"))
    together.descent.optimizer.register_step_post_hook(lambda *_: steps.append(1))
    assert together.train_epoch(0)[0].n_backpropagated == record.n_support
    assert len(steps) == 3


def test_latents_come_from_running_averages(problem):
    running, refreshed = (
        training_of(problem, replace(PROGRAM, batch_statistics=statistics)) for statistics in ("running", "refreshed")
    )
    untouched = encode(copy.deepcopy(running.network), problem.images, CPU)
    _, space = running.train_epoch(0)
    assert torch.equal(space.latents, untouched)  # nothing has passed in train mode yet
    _, other = refreshed.train_epoch(0)
    assert not torch.allclose(other.latents, untouched)
    after = encode(copy.deepcopy(running.network), problem.images, CPU)
    assert torch.equal(running.train_epoch(1)[1].latents, after)


def test_too_few_anchors_are_filled_and_corrections_go_to_settled_images():
    labels = torch.arange(40) % 2
    latents = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)) + labels[:, None] * 1.2
    recipe = replace(PROGRAM, sv_close=30, wr_close=1, C=1.0)
    space = analyse_latents(latents, labels, recipe, Stopwatch())
    anchors, settled = space.anchors, space.svm.settled
    assert 0 < len(settled) < 30
    assert anchors.support.valid.shape == (len(space.svm.support), 30)
    assert anchors.support.valid.all()
    assert anchors.n_without == 0
    allowed = analyse_latents(latents, labels, replace(recipe, fill_anchors=False), Stopwatch()).anchors.support
    assert torch.equal(anchors.support.anchor[allowed.valid], allowed.anchor[allowed.valid])
    assert not allowed.valid.all()
    correction = anchors.correction
    assert len(correction.moved) > 0
    assert torch.isin(correction.anchor, settled).all()
    assert torch.equal(labels[correction.anchor[:, 0]], labels[correction.moved])


def test_the_last_epoch_counts(problem):
    result = training_of(problem, PROGRAM).run()
    assert result.selected.epoch == 2
    assert [record.epoch for record in result.history] == [0, 1, 2]
    again = training_of(problem, PROGRAM).run()
    assert measured(result.history) == measured(again.history)


@pytest.mark.filterwarnings("ignore:Training ended")
def test_the_recipe_by_its_name(textures):
    images, labels = textures
    classifier = LMFCNClassifier(recipe="authors-program", epochs=1, latent_dim=4, random_state=0)
    classifier.fit(images, labels)
    assert classifier.recipe_.batch_statistics == "running"
    assert classifier.best_epoch_ == 1
    three = np.where(np.arange(len(labels)) % 3 == 0, "other", labels.astype(str))
    assert len(classifier.fit(images, three).history_) == 3
    assert set(classifier.predict(images)) <= set(three)
