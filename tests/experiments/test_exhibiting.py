from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from lmfcn import LMFCNClassifier, make_gaussians
from lmfcn.data.collections import ImageCollection
from lmfcn.experiments.answers import answers_of
from lmfcn.experiments.exhibiting import exhibit_of, make_exhibit
from lmfcn.experiments.tasks import Part, Parts


@pytest.fixture(scope="module")
def parts():
    random = np.random.default_rng(0)
    return Parts(*(Part(*make_gaussians(count, 16, random, stds=(28, 35))) for count in (10, 6, 8)))


@pytest.fixture(scope="module")
def fitted(parts):
    classifier = LMFCNClassifier(epochs=1, latent_dim=4, widths=(4,), passes=1, device="cpu", random_state=0)
    return classifier.fit(*parts.train, validation=parts.validation)


@pytest.fixture(scope="module")
def exhibit(fitted, parts):
    return make_exhibit(fitted, parts)


def test_points_are_the_images_that_were_learnt_from_and_tested_on(fitted, parts, exhibit):
    assert exhibit.learnt.places.shape == (32, 2)
    assert exhibit.test.places.shape == (16, 2)
    assert np.flatnonzero(exhibit.learnt.marked).tolist() == sorted(fitted.support_.tolist())
    assert exhibit.learnt.classes.tolist() == [*parts.train.labels, *parts.validation.labels]
    assert np.array_equal(exhibit.test.marked, fitted.predict(parts.test.images) != parts.test.labels)
    assert 1 >= exhibit.explained[0] >= exhibit.explained[1] >= 0


def test_the_most_confident_mistakes_come_first(fitted, parts, exhibit):
    answers = answers_of(fitted, parts.test)
    assert len(exhibit.hardest) == min(12, int(exhibit.test.marked.sum())) > 0
    confidences = [hard.confidence for hard in exhibit.hardest]
    assert confidences == sorted(confidences, reverse=True)
    for hard in exhibit.hardest:
        position = int(hard.shown.name.removeprefix("image "))
        assert np.array_equal(hard.shown.pixels, parts.test.images[position])
        assert (hard.shown.number, hard.predicted) == (parts.test.labels[position], 1 - parts.test.labels[position])
        assert hard.confidence == answers["confidences"][position]


def test_the_nearest_support_vectors_are_those_of_a_slow_search(fitted, parts, exhibit):
    images = np.concatenate([parts.train.images, parts.validation.images])
    latents = fitted.transform(images).astype(np.float64)
    for hard in exhibit.hardest:
        mine = fitted.transform(parts.test.images[[int(hard.shown.name.removeprefix("image "))]])[0]
        by_distance = sorted(fitted.support_.tolist(), key=lambda one: float(((latents[one] - mine) ** 2).sum()))
        for shown, similarity, one in zip(hard.nearest, hard.similarities, by_distance[:3], strict=True):
            assert np.array_equal(shown.pixels, images[one])
            kernel = np.exp(-fitted.model_.gamma * ((latents[one] - mine) ** 2).sum())
            assert similarity == pytest.approx(kernel, abs=1e-3)


def test_without_mistakes_the_least_sure_are_shown(fitted, parts):
    right = fitted.predict(parts.test.images) == parts.test.labels
    shown = make_exhibit(fitted, replace(parts, test=Part(*(values[right] for values in parts.test)))).hardest
    confidences = [hard.confidence for hard in shown]
    assert len(shown) == min(6, int(right.sum()))
    assert confidences == sorted(confidences)
    assert all(hard.predicted == hard.shown.number for hard in shown)


def test_an_exhibit_is_made_where_it_is_asked_for(fitted, parts):
    assert exhibit_of(fitted, parts) is None
    asked = replace(parts, exhibited=True)
    assert exhibit_of(object(), asked) is None
    assert exhibit_of(fitted, asked).classes == ["0", "1"]


def test_files_are_called_by_folder_and_name(fitted, parts, tmp_path):
    paths = [tmp_path / folder / "a.png" for folder in ("0", "sheet")]
    for path, image in zip(paths, parts.test.images, strict=False):
        path.parent.mkdir()
        Image.fromarray(image).save(path)
    labels = np.array([0, 1])
    images = ImageCollection(paths, labels=labels)
    names = {hard.shown.name for hard in make_exhibit(fitted, replace(parts, test=Part(images, labels))).hardest}
    assert names <= {"a.png", "sheet/a.png"}
    assert names
