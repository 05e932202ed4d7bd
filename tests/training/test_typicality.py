"""None of these: distances to the class centres, and what they promise."""

import numpy as np
import pytest
import torch

import lmfcn
from lmfcn import Recipe
from lmfcn.method.kernel_svm import latent_scale
from lmfcn.model import TypicalDistances, class_centres, nearest_centre
from lmfcn.model_file import KIND, VERSION
from lmfcn.training.final_svm import NEVER_HELD_OUT, fit_final_svm, svm_candidates, within_class_whitening
from lmfcn.util.tensor_files import FileError, read_tensors, write_tensors
from small_model import fitted, quick, textures, three


def final_svm(latents, labels, folds, **values):
    recipe = Recipe(**values)
    return fit_final_svm(latents, labels, torch.tensor(folds), recipe, svm_candidates(recipe))


def test_distances_by_hand():
    latents, labels = torch.tensor([[0.0], [2.0], [10.0], [13.0]]), torch.tensor([0, 0, 1, 1])
    final = final_svm(latents, labels, [0, 1, 0, 1], whiten=False, standardize=False)
    # The centres are 2 and 13 for the first and third image, 0 and 10 for the others.
    assert final.held_out_distances.tolist() == [4, 4, 9, 9]


def test_distances_of_whitened_latents_know_nothing_of_the_held_out_images(random):
    latents = torch.from_numpy(random.normal(size=(40, 5)) * [1, 2, 3, 4, 5]).float()
    labels = torch.arange(40) % 2
    latents[labels == 1] += 4
    folds = np.where(np.arange(40) < 20, NEVER_HELD_OUT, np.arange(40) // 2 % 3)
    found = final_svm(latents, labels, folds).held_out_distances
    for position, image in enumerate(range(20, 40)):
        known = torch.from_numpy(folds != folds[image])
        scale = latent_scale(latents[known], standardize=True)
        whitening = within_class_whitening(scale.apply(latents[known]), labels[known])
        features = scale.apply(latents) @ whitening
        means = [features[known & (labels == number)].double().mean(dim=0) for number in (0, 1)]
        expected = min(float((features[image].double() - mean).square().sum()) for mean in means)
        assert found[position].item() == pytest.approx(expected, rel=1e-5)


def test_no_more_false_alarms_than_promised(random):
    """Held-out and new images of one kind: of these at most a tenth has a typicality of a tenth or less."""
    shares = []
    for _ in range(300):
        distances = torch.from_numpy(np.sort(random.normal(size=19) ** 2))
        known = TypicalDistances(torch.zeros(1, 1), distances)
        shares.append((known.typicality(torch.from_numpy(random.normal(size=(50, 1)))) <= 0.1).mean())
    assert np.mean(shares) == pytest.approx(0.1, abs=0.015)


def test_centres_are_means_and_the_nearest_counts():
    centres = class_centres(torch.tensor([[0.0, 0.0], [2.0, 0.0], [5.0, 5.0]]), torch.tensor([0, 0, 1]))
    assert centres.tolist() == [[1, 0], [5, 5]]
    assert nearest_centre(torch.tensor([[1.0, 3.0]]).double(), centres).tolist() == pytest.approx([9])


def test_images_of_no_class_are_less_typical_than_those_of_a_class():
    classifier = fitted()
    images, _ = textures(8, 18, 22, seed=1)
    bright = np.full((8, 18, 22), 250, dtype=np.uint8) - np.random.default_rng(0).integers(
        0, 3, (8, 18, 22), dtype=np.uint8
    )
    assert classifier.typicality(bright).max() < np.median(classifier.typicality(images))
    rate = 1 / (len(classifier.model_.typical.distances) + 1)
    labels = classifier.predict_or_reject(bright, confidence=0, rejected="none of these", false_alarms=rate + 1e-9)
    assert set(labels.tolist()) == {"none of these"}


def test_typicality_beside_probabilities_is_the_same():
    images, _ = three()
    predicted, typicality = fitted().model_.predict_with_typicality(images)
    np.testing.assert_array_equal(predicted, fitted().predict_proba(images))
    np.testing.assert_array_equal(typicality, fitted().typicality(images))
    known = fitted().model_.typical
    assert len(known.distances) == len(fitted().held_out_.numbers)


def test_a_file_keeps_it_and_an_earlier_file_says_that_it_has_none(tmp_path):
    images, _ = three()
    fitted().save(tmp_path / "new.lmfcn")
    np.testing.assert_array_equal(lmfcn.load(tmp_path / "new.lmfcn").typicality(images), fitted().typicality(images))
    values, tensors = read_tensors(tmp_path / "new.lmfcn", KIND, VERSION)
    earlier = {name: tensor for name, tensor in tensors.items() if not name.startswith("typical.")}
    write_tensors(tmp_path / "earlier.lmfcn", KIND, VERSION, values, earlier)
    model = lmfcn.load(tmp_path / "earlier.lmfcn")
    np.testing.assert_array_equal(model.predict_proba(images), fitted().predict_proba(images))
    assert model.predict_with_typicality(images)[1] is None
    with pytest.raises(ValueError, match="or written by an earlier version; fit it again"):
        model.typicality(images)


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("typical.distances", lambda tensor: tensor.flip(0), "not a row of ascending numbers"),
        ("typical.distances", lambda tensor: tensor[:0], "not a row of ascending numbers"),
        ("typical.distances", lambda tensor: tensor.float(), "not complete"),
        ("typical.centres", lambda tensor: tensor[:, 1:].contiguous(), "do not fit its decision"),
        ("typical.centres", None, "not complete"),
    ],
)
def test_damaged_distances_are_refused(tmp_path, name, change, reason):
    fitted().save(tmp_path / "a.lmfcn")
    values, tensors = read_tensors(tmp_path / "a.lmfcn", KIND, VERSION)
    changed = {key: tensor for key, tensor in tensors.items() if key != name}
    if change is not None:
        changed[name] = change(tensors[name]).contiguous()
    write_tensors(tmp_path / "a.lmfcn", KIND, VERSION, values, changed)
    with pytest.raises(FileError, match=reason):
        lmfcn.load(tmp_path / "a.lmfcn")


def test_a_rate_that_few_images_cannot_promise_is_refused():
    model = fitted().model_
    n_held_out = len(model.typical.distances)
    with pytest.raises(ValueError, match=f"With {n_held_out} held-out images the smallest share of false_alarms is"):
        model.predict_or_reject(three()[0], 0, false_alarms=0.5 / (n_held_out + 1))
    with pytest.raises(ValueError, match="false_alarms must be between 0 and 1, got 2"):
        model.predict_or_reject(three()[0], 0, false_alarms=2)


@pytest.mark.parametrize("changes", [{"validation_fraction": 0.0}, {"refit": False}, {"recipe": "paper"}])
def test_other_recipes(changes):
    classifier = quick(**changes).fit(*three())
    known = classifier.model_.typical
    if changes == {"validation_fraction": 0.0}:
        assert known is None
        return
    assert len(known.distances) == len(classifier.held_out_.numbers)
    assert known.centres.shape == (3, classifier.model_.n_features)
