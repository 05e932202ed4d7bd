from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_predict

from lmfcn import make_gaussians
from lmfcn.baselines import METHODS
from lmfcn.baselines.cnn import CNNClassifier
from lmfcn.baselines.descriptors import DESCRIPTORS, DescriptorSVC
from lmfcn.baselines.feature_svm import FeatureCache, FeatureSVC
from lmfcn.baselines.network_svm import CNNSVC, RandomFCN
from lmfcn.data.training_data import LabelledImages
from lmfcn.recipe import Recipe
from lmfcn.training.final_svm import NEVER_HELD_OUT, SVMCandidate, fit_final_svm
from lmfcn.training.fit import joined_groups
from lmfcn.util.packages import needs


class Brightness(FeatureSVC):
    """Two features that anyone can check: mean and spread of an image."""

    def __init__(self, *, validation_fraction=0.0, image_shape=None, random_state=0, verbose=False):
        self.validation_fraction = validation_fraction
        self.image_shape = image_shape
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self):
        pass

    def _learn(self, data, random):
        pass

    def _describe(self, images):
        flat = np.asarray(images, dtype=float).reshape(len(images), -1)
        return torch.from_numpy(np.stack([flat.mean(axis=1), flat.std(axis=1)], axis=1))


@pytest.fixture(scope="module")
def data():
    return make_gaussians(40, 16, random_state=0, stds=(20, 60))


def test_the_svm_separates_what_the_features_separate(data):
    fitted = Brightness().fit(*data)
    fresh = make_gaussians(100, 16, random_state=1, stds=(20, 60))
    assert fitted.score(*fresh) > 0.9
    assert fitted.transform(data[0])[:, 0] == pytest.approx(data[0].mean(axis=(1, 2)))
    assert fitted.get_feature_names_out().tolist() == ["brightness0", "brightness1"]
    assert 0 < fitted.n_support_ < 80
    assert fitted.C_ in (1, 10, 100, 1000)


def test_the_svm_learns_from_validation_images_too():
    # No two of them are near-identical, which would change the folds.
    labels = np.arange(80) % 2
    noise = np.random.default_rng(0).normal(size=(80, 16, 16))
    images = (128 + noise * np.where(labels, 25, 20)[:, None, None]).clip(0, 255).astype(np.uint8)
    alone = Brightness().fit(images[:40], labels[:40])
    beside = Brightness().fit(images[:40], labels[:40], validation=(images[40:], labels[40:]))
    together = Brightness().fit(images, labels)
    assert beside.decision_function(images) == pytest.approx(together.decision_function(images))
    assert beside.decision_function(images) != pytest.approx(alone.decision_function(images), abs=0.01)
    assert 0.7 < beside.held_out_score_ <= 1


def test_features_are_standardised(data):
    class Stretched(Brightness):
        def _describe(self, images):
            return super()._describe(images) * torch.tensor([1000.0, 0.001]) + 5

    plain, stretched = Brightness().fit(*data), Stretched().fit(*data)
    assert stretched.decision_function(data[0]) == pytest.approx(plain.decision_function(data[0]), abs=1e-6)


def test_cross_validation_may_choose_whitened_features():
    class Pixels(Brightness):
        def _describe(self, images):
            return torch.from_numpy(np.asarray(images, dtype=float).reshape(len(images), -1))

    # All pixels of an image rise and fall together; one of them also differs a little between the classes.
    random, labels = np.random.default_rng(0), np.arange(120) % 2
    images = 5 * random.normal(size=(120, 1, 1)) + 0.3 * random.normal(size=(120, 8, 8))
    images[:, 0, 0] += 0.8 * labels
    fitted = Pixels().fit(images, labels)
    assert fitted.whitened_
    assert [rule.whiten for rule in fitted.rules()].count(True) == 1


def test_scores_lean_towards_rare_classes(data):
    images, labels = data
    few = np.concatenate([np.flatnonzero(labels == 0), np.flatnonzero(labels == 1)[:6]])
    fitted = Brightness().fit(images[few], labels[few])
    plain = fit_final_svm(
        fitted._describe(images[few][..., None]),
        torch.from_numpy(labels[few]),
        torch.full((len(few),), NEVER_HELD_OUT),
        replace(Recipe(), gamma=fitted._decision.gamma),
        [SVMCandidate(fitted.C_, whiten=fitted.whitened_)],
    )
    assert fitted._decision.intercepts[0] > plain.decision.intercepts[0]


def test_probabilities_are_calibrated_on_held_out_images(data):
    images, labels = data
    fitted = Brightness().fit(images, np.random.default_rng(0).permutation(labels))  # nothing to learn
    confidence = fitted.predict_proba(images).max(axis=1)
    assert confidence.mean() < 0.75
    assert cross_val_predict(Brightness(), images, labels, cv=3).shape == (80,)


def parts_of(groups, validation_groups):
    def part(groups, n):
        images, numbers = np.zeros((n, 4, 4, 1)), np.arange(n) % 2
        return LabelledImages(images, numbers, None if groups is None else np.array(groups), np.arange(n))

    return [part(groups, 4), part(validation_groups, 2)]


@pytest.mark.parametrize(
    ("groups", "validation_groups", "expected"),
    [
        (None, None, None),
        (["a", "a", "b", "b"], None, [0, 0, 1, 1, 2, 3]),
        (None, ["a", "a"], [0, 1, 2, 3, 4, 4]),
        ([7, 8, 7, 8], [9, 9], [0, 1, 0, 1, 2, 2]),
    ],
)
def test_groups_over_training_and_validation(groups, validation_groups, expected):
    joined = joined_groups(parts_of(groups, validation_groups))
    assert (joined if joined is None else joined.tolist()) == expected


def test_who_is_judged_depends_on_whether_features_were_learnt(random):
    parts = parts_of(["a", "a", "b", "b"], ["c", "c"])
    learnt = CNNSVC()._folds(parts, random)
    assert learnt[:4].tolist() == [NEVER_HELD_OUT] * 4
    assert learnt[4] == learnt[5] != NEVER_HELD_OUT
    fixed = RandomFCN()._folds(parts, random)
    assert (fixed != NEVER_HELD_OUT).all()
    assert fixed[0] == fixed[1] != fixed[2] == fixed[3]


def test_on_a_cnn_that_is_there_already(textures):
    small = {"latent_dim": 4, "widths": (6,), "epochs": 2, "random_state": 0, "device": "cpu"}
    cnn = CNNClassifier(**small).fit(*textures)
    again, given = CNNSVC(**small).fit(*textures), CNNSVC(**small).fit_on(cnn, *textures)
    assert given.network_ is cnn.network_[0]
    assert given.history_ is cnn.history_
    assert np.array_equal(given.decision_function(textures[0]), again.decision_function(textures[0]))
    given.fit(*textures)
    assert given.network_ is not cnn.network_[0]
    with pytest.raises(NotFittedError):
        given.fit_on(CNNClassifier(), *textures)


def test_the_untrained_network_keeps_its_first_weights_and_knows_its_statistics(textures):
    fitted = RandomFCN(latent_dim=4, widths=(6,), random_state=0, device="cpu").fit(*textures)
    latents = fitted.transform(textures[0])
    assert fitted.network_.features[1].running_mean.abs().sum() > 0
    assert np.isfinite(latents).all()
    assert latents.std(axis=0).min() > 0


def test_cached_vectors_are_found_by_content(tmp_path, textures, monkeypatch):
    images, labels = textures
    plain = DescriptorSVC(random_state=0).fit(images, labels)
    expected = plain.transform(images)
    cached = DescriptorSVC(random_state=0, cache_dir=tmp_path).fit(images, labels)
    assert np.array_equal(plain.predict_proba(images), cached.predict_proba(images))
    assert len(list(tmp_path.rglob("*.f8"))) == 32
    monkeypatch.setitem(DESCRIPTORS, "lbp", None)  # cannot be called any more
    again = DescriptorSVC(random_state=0, cache_dir=tmp_path).fit(images[::-1], labels[::-1])
    assert np.array_equal(again.transform(images), expected)
    with pytest.raises(TypeError):
        again.predict(images // 2)


def test_a_damaged_cache_is_computed_anew(tmp_path, textures):
    images, labels = textures
    expected = DescriptorSVC(random_state=0, cache_dir=tmp_path).fit(images, labels).transform(images)
    files = sorted(tmp_path.rglob("*.f8"))
    files[0].write_bytes(b"")
    files[1].write_bytes(files[1].read_bytes()[:-9])
    files[2].write_bytes(b"PK\x03\x04")
    files[3].write_bytes(np.full(59, np.nan).tobytes())
    fitted = DescriptorSVC(random_state=0, cache_dir=tmp_path).fit(images, labels)
    assert np.array_equal(fitted.transform(images), expected)
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("lbp-1-mahotas-")
    cache = FeatureCache(tmp_path, folder.name, 59)
    assert all(cache.get(image[..., None]) is not None for image in images)
    assert cache.get(images[0][..., None].astype(np.uint16)) is None
    assert cache.get(images[0].reshape(8, 32, 1)) is None


@pytest.mark.parametrize("folder", ["file", 5])
def test_a_cache_that_is_no_folder(tmp_path, textures, folder):
    (tmp_path / "file").write_text("here")
    with pytest.raises(ValueError, match="cache_dir must be"):
        DescriptorSVC(cache_dir=tmp_path / folder if folder == "file" else folder).fit(*textures)


def test_workers_give_the_same_features(textures):
    one, two = (DescriptorSVC(descriptor="pftas", random_state=0, n_jobs=n).fit(*textures) for n in (1, 2))
    assert np.array_equal(one.transform(textures[0]), two.transform(textures[0]))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"descriptor": "sift"}, "descriptor must be one of 'glcm', 'lbp', 'pftas', got 'sift'"),
        ({"n_jobs": 0}, "n_jobs must be None or a whole number"),
        ({"validation_fraction": 1.5}, "validation_fraction must be less than 1"),
    ],
)
def test_bad_parameters(textures, parameters, message):
    with pytest.raises(ValueError, match=message):
        DescriptorSVC(**parameters).fit(*textures)


def test_a_missing_package_is_explained():
    with pytest.raises(ImportError, match=r"needs no-such-package: pip install 'lmfcn\[textures\]'"):
        needs("no_such_package.deep", "textures")


def test_untrained_lmfcn_is_what_lmfcn_keeps_of_its_start(textures):
    small = {"latent_dim": 4, "widths": (6, 8), "random_state": 0, "device": "cpu"}
    untrained = METHODS["LMFCN, untrained"](**small).fit(*textures)
    assert untrained.network_.pooling == "all"
    assert untrained.transform(textures[0]).shape == (32, 6 + 8 + 4)
    plain = RandomFCN(**small).fit(*textures)
    start, other = (fitted.network_.features[0].weight for fitted in (plain, untrained))
    assert torch.equal(start[::2], other[::2])
    assert not torch.allclose(start[1::2], other[1::2])
    with pytest.raises(ValueError, match="pooling must be one of 'last', 'all', got 'first'"):
        RandomFCN(pooling="first").fit(*textures)
