"""The choice between a pretrained network and the start from scratch."""

import numpy as np
import pytest

from lmfcn import Recipe
from lmfcn.data.collection import ImageCollection
from lmfcn.training import choose_network as choosing
from lmfcn.training.choose_network import choose_network
from small_trunk import SmallTrunk, trunk_images


def collection(images=None, labels=None):
    images, labels = trunk_images() if images is None else (images, labels)
    return ImageCollection(images[..., None], labels)


def test_the_papers_recipe_has_the_papers_network():
    found = choose_network(collection(), Recipe.paper(), verbose=False)
    assert found.network == "texture-fcn"
    assert found.reason == "texture-fcn, from scratch: it is the network of the paper's recipe."
    assert found.scores is None


def test_without_weights_it_is_from_scratch(monkeypatch):
    monkeypatch.setattr(choosing, "has_weights", lambda: False)
    found = choose_network(collection(), Recipe(), verbose=False)
    assert found.network == "texture-fcn"
    assert "not installed (pip install 'lmfcn[pretrained]')" in found.reason


def test_small_images_are_trained_from_scratch(monkeypatch):
    monkeypatch.setattr(choosing, "has_weights", lambda: True)
    images, labels = trunk_images()
    found = choose_network(collection(images[:, :20], labels), Recipe(), verbose=False)
    assert found.network == "texture-fcn"
    assert "the smallest image has a side of 20 pixels, and a pretrained network needs 32" in found.reason


@pytest.fixture
def small_trunk(monkeypatch):
    monkeypatch.setattr(choosing, "has_weights", lambda: True)
    monkeypatch.setattr(choosing, "find_network", lambda *_: SmallTrunk())


@pytest.mark.usefixtures("small_trunk")
def test_the_better_one_is_taken_and_both_scores_are_told():
    images, labels = trunk_images()
    found = choose_network(collection(images, labels), Recipe(), verbose=False)
    pretrained, scratch = found.scores["efficientnet-lite0"], found.scores["texture-fcn"]
    assert found.network == ("efficientnet-lite0" if pretrained >= scratch else "texture-fcn")
    assert max(pretrained, scratch) > 0.8
    assert f"on {len(images)} images is {pretrained:.3f} with the pretrained network and" in found.reason
    assert f"{scratch:.3f} from scratch" in found.reason
    assert found.cost.startswith("The pretrained network takes about")
    assert found.as_dict() == {"network": found.network, "reason": found.reason, "scores": found.scores}
    again = choose_network(collection(images, labels), Recipe(), verbose=False)
    assert again.scores == found.scores


@pytest.mark.usefixtures("small_trunk")
@pytest.mark.parametrize(
    ("pretrained", "scratch", "best"), [(0.9, 0.9, "efficientnet-lite0"), (0.8, 0.9, "texture-fcn")]
)
def test_a_tie_goes_to_the_pretrained_network(monkeypatch, pretrained, scratch, best):
    monkeypatch.setattr(choosing, "_score_pretrained", lambda *_, **__: pretrained)
    monkeypatch.setattr(choosing, "_score_from_scratch", lambda *_: scratch)
    assert choose_network(collection(), Recipe(), verbose=False).network == best


@pytest.mark.usefixtures("small_trunk")
def test_labels_that_nothing_tells_score_near_chance():
    images, labels = trunk_images()
    shuffled = np.random.default_rng(0).permutation(labels)
    found = choose_network(collection(images, shuffled), Recipe(), verbose=False)
    assert max(found.scores.values()) < 0.75  # three classes; cross-validation does not flatter


def test_large_sets_are_sampled_class_by_class():
    labels = np.repeat(["common", "rare"], [1990, 10])
    chosen = choosing._some_of_every_class(labels)
    # 500 of 2000 images: 497.5 of the common class, and five at least of the rare one.
    assert np.unique(labels[chosen], return_counts=True)[1].tolist() == [498, 5]
    assert len(np.unique(chosen)) == len(chosen)
