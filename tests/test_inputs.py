"""What fit, predict and score take as images: folders, lists of several sizes, tensors, collections without y."""

from typing import get_args, get_type_hints

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.model_selection import GridSearchCV, KFold, StratifiedGroupKFold, cross_val_score

import small_model
from lmfcn import LMFCNClassifier
from lmfcn.data.collection import ImageCollection
from lmfcn.data.sources import open_collection, open_images
from lmfcn.networks.registry import NETWORKS
from lmfcn.recipe import RECIPES


@pytest.fixture(scope="module")
def fitted():
    return small_model.fitted()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The images of `three` in class folders, four of each class; and the same without class folders."""
    root = tmp_path_factory.mktemp("images")
    for number, (image, label) in enumerate(zip(*small_model.three(), strict=True)):
        if number % 12 < 4:
            for path in (root / "classes" / label / f"{number:02}.png", root / "flat" / f"{number:02}.png"):
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(image).save(path)
    return root


CHOSEN = np.flatnonzero(np.arange(36) % 12 < 4)


def test_a_flat_folder_is_predicted_in_the_order_of_its_names(fitted, folder):
    images, _ = small_model.three()
    labels, paths = fitted.predict(folder / "flat", return_paths=True)
    assert np.array_equal(labels, fitted.predict(images[CHOSEN]))
    assert paths.tolist() == [str(folder / "flat" / f"{number:02}.png") for number in CHOSEN]
    assert np.array_equal(fitted.model_.predict(str(folder / "flat")), labels)
    assert np.array_equal(fitted.predict_proba(folder / "flat"), fitted.predict_proba(images[CHOSEN]))


def test_class_folders_and_loose_images_are_all_predicted(fitted, folder):
    of_classes = fitted.predict(folder / "classes")
    assert np.array_equal(of_classes, fitted.predict(open_collection(folder / "classes")))
    labels, paths = fitted.model_.predict(folder, return_paths=True)
    assert len(labels) == 24
    assert paths[:12].tolist() == open_collection(folder / "classes").paths
    assert np.array_equal(labels[:12], of_classes)


def test_paths_belong_to_any_kind_of_images(fitted, folder):
    images, _ = small_model.three()
    assert fitted.predict(images[:2], return_paths=True)[1].tolist() == ["image 0", "image 1"]
    assert fitted.predict(list(images[:2]), return_paths=True)[1].tolist() == ["image 0", "image 1"]
    files = [str(folder / "flat" / name) for name in ("15.png", "00.png")]
    assert fitted.predict(files, return_paths=True)[1].tolist() == files
    assert fitted.predict(files[0], return_paths=True)[1].tolist() == files[:1]
    collection = open_images(folder / "flat")
    assert collection.labels is None
    assert fitted.predict_proba(collection).shape == (len(collection.paths), 3)


def test_a_table_in_the_folder_decides_what_is_predicted(fitted, folder, tmp_path):
    (tmp_path / "labels.csv").write_text(f"path\n{folder / 'flat' / '12.png'}\n")
    Image.fromarray(small_model.three()[0][0]).save(tmp_path / "other.png")
    assert fitted.predict(tmp_path, return_paths=True)[1].tolist() == [str(folder / "flat" / "12.png")]


def test_folders_that_do_not_fit_are_refused(fitted, folder, tmp_path):
    with pytest.raises(ValueError, match=rf"^No image was found in {tmp_path}\.$"):
        fitted.predict(tmp_path)
    with pytest.raises(ValueError, match="must hold one folder of images per class, but the 12 images in it are in no"):
        small_model.quick().fit(folder / "flat")
    with pytest.raises(ValueError, match="must hold one folder of images per class, but the 12 images in it are in no"):
        fitted.score(folder / "flat")


def test_score_takes_the_labels_of_a_collection(fitted, folder):
    images, labels = small_model.three()
    wrong = np.where(np.arange(36) < 9, "stripes", labels)  # a quarter; the first twelve images are fine noise
    assert fitted.score(images, labels) == 1.0
    assert fitted.score(ImageCollection(images, wrong)) == fitted.score(images, wrong) == 0.75
    assert fitted.score(ImageCollection(images, wrong), labels) == 1.0
    assert fitted.score(folder / "classes") == fitted.score(open_collection(folder / "classes")) == 1.0
    weights = np.where(np.arange(36) < 9, 0.0, 1.0)
    assert fitted.score(ImageCollection(images, wrong), sample_weight=weights) == 1.0


def test_score_without_labels_is_refused(fitted):
    images, _ = small_model.three()
    for X in (images, ImageCollection(images)):
        with pytest.raises(
            ValueError, match=r"^y is missing: score needs a label for every image, as y or in the coll"
        ):
            fitted.score(X)


def collection_of_three(groups=None):
    return ImageCollection(*small_model.three(), groups)


def splitting():
    """A classifier that may separate the stripes, which are near-identical."""
    return small_model.quick().set_params(recipe__split_duplicates=True)


def test_cross_validation_takes_the_labels_of_a_collection():
    images, folds = collection_of_three(), KFold(3, shuffle=True, random_state=0)
    expected = cross_val_score(splitting(), images, images.labels, cv=folds)
    assert np.array_equal(cross_val_score(splitting(), images, cv=folds), expected)
    assert cross_val_score(splitting(), images, images.labels, cv=3).tolist() == [1.0] * 3
    search = GridSearchCV(splitting(), {"C": [1.0, 10.0]}, cv=folds).fit(images)
    assert search.best_score_ == expected.mean() == 1.0


def test_cross_validation_keeps_the_groups_of_a_collection_together():
    images = collection_of_three(np.arange(36) // 2)
    seen = []

    class Noting(LMFCNClassifier):
        def _check_data(self, *arguments):
            data = super()._check_data(*arguments)
            seen.append((set(data.train.groups.tolist()), set(data.validation.groups.tolist())))
            return data

    classifier = Noting(**splitting().get_params(deep=False))
    scores = cross_val_score(classifier, images, images.labels, groups=images.groups, cv=StratifiedGroupKFold(3))
    assert scores.tolist() == [1.0] * 3
    for train, validation in seen:
        assert not train & validation
        assert len(train) + len(validation) == 12  # of 18 groups, with whole groups held out by the outer split too


def test_folds_in_the_order_of_the_classes_are_noticed():
    images = collection_of_three()
    message = (
        r"^The classifier was not fitted on images of the class 'fine'; in cross_val_score give y=images\.labels:"
        r" without it scikit-learn makes folds in the order of the images, and a folder is sorted by class\.$"
    )
    with pytest.raises(ValueError, match=message):
        small_model.quick().fit(images[12:]).score(images[:12])
    with pytest.raises(ValueError, match="was not fitted on images of the class"):
        cross_val_score(small_model.quick(), images, cv=3, error_score="raise")
    with pytest.warns(UserWarning, match=r"^All 5 images to score are of the class 'fine'; in cross_val_score give y="):
        assert small_model.fitted().score(images[:5]) == 1.0


def images_of_several_sizes():
    images, labels = small_model.three()
    return [image[:, : 22 - number % 3] for number, image in enumerate(images)], labels


def test_a_list_of_images_of_several_sizes_is_fitted_and_predicted(fitted):
    images, labels = images_of_several_sizes()
    classifier = small_model.quick().fit(images, labels, validation=(images, labels))
    assert classifier.score(images, labels) == 1.0
    one_by_one = np.concatenate([fitted.predict_proba(image[None]) for image in images])
    assert fitted.predict_proba(images) == pytest.approx(one_by_one, abs=1e-5)
    assert np.array_equal(fitted.predict_proba(tuple(images)), fitted.predict_proba(images))
    assert cross_val_score(small_model.quick(), images, labels, cv=3).mean() > 0.9


def test_a_list_is_the_same_as_a_collection_an_array_of_arrays_and_tensors(fitted):
    images, labels = images_of_several_sizes()
    expected = fitted.predict_proba(images)
    objects = np.empty(36, dtype=object)
    objects[:] = images
    tensors = [torch.from_numpy(image.copy()) for image in images]
    for X in (ImageCollection(images), objects, tensors):
        assert np.array_equal(fitted.predict_proba(X), expected)
    same = [small_model.quick().fit(X, labels).decision_function(images) for X in (images, ImageCollection(images))]
    assert np.array_equal(*same)


def test_images_of_a_list_must_be_of_one_kind(fitted):
    images, labels = images_of_several_sizes()
    mixed = [*images[:35], np.zeros((20, 20, 3), dtype=np.uint8)]
    with pytest.raises(ValueError, match="image 0 has 1 channel of uint8 but image 35 has 3 channels of uint8"):
        small_model.quick().fit(mixed, labels)
    with pytest.raises(ValueError, match="X has float pixels, but the classifier was fitted on uint8 ones"):
        fitted.predict([image / 255 for image in images])


def test_a_list_is_not_resized_as_an_array_is_not():
    images, labels = small_model.three()
    sized = small_model.quick().fit(ImageCollection(images, labels).resized((24, 24)))
    pair = [images[0], images[1][:, :20]]
    one_by_one = np.concatenate([sized.predict_proba(image[None]) for image in pair])
    assert sized.predict_proba(pair) == pytest.approx(one_by_one, abs=1e-5)


def test_tensors_give_the_same_model_as_arrays(fitted):
    images, labels = small_model.three()
    tensor = torch.from_numpy(images.copy())
    assert np.array_equal(fitted.predict_proba(tensor), fitted.predict_proba(images))
    again = small_model.quick().fit(tensor, labels, validation=None)
    assert np.array_equal(again.decision_function(tensor), fitted.decision_function(images))
    assert cross_val_score(small_model.quick(), tensor, labels, cv=3).tolist() == [1.0] * 3
    with pytest.raises(ValueError, match=r"put the channels last: X\.permute\(0, 2, 3, 1\)"):
        fitted.predict(tensor[:, None])


def test_one_image_is_told_how_to_go_in(fitted):
    images, _ = small_model.three()
    with pytest.raises(ValueError, match=r"got \(18, 22\); a single image goes in as X\[None\]"):
        fitted.predict(images[0])
    with pytest.raises(ValueError, match=r"looks like one image, which goes in as X\[None\]"):
        fitted.predict(np.zeros((18, 22, 3), dtype=np.uint8))
    assert fitted.predict(images[0][None]).shape == (1,)


def test_one_image_of_a_model_with_colours_is_told_too():
    images, labels = small_model.three()
    fitted = small_model.quick().fit(np.repeat(images[..., None], 3, axis=3), labels)
    with pytest.raises(ValueError, match=r"a single image goes in as X\.transpose\(1, 2, 0\)\[None\]\.$"):
        fitted.predict(np.zeros((3, 18, 22), dtype=np.uint8))


def test_the_names_that_the_constructor_takes_are_literals():
    hints = get_type_hints(LMFCNClassifier.__init__)

    def names(parameter):
        return {name for kind in get_args(hints[parameter]) for name in get_args(kind)}

    assert names("strategy") == {"joint", "one-vs-all"}
    assert names("recipe") == set(RECIPES)
    assert names("network") == set(NETWORKS)


def test_the_docstring_starts_with_five_parameters():
    start = LMFCNClassifier.__doc__.partition("A short convolutional network")[0]
    named = [line.split("`")[1].split("=")[0] for line in start.splitlines() if line.strip().startswith("- `")]
    assert named == ["random_state", "epochs", "network", "class_weight", "recipe"]
    assert set(named) <= set(LMFCNClassifier().get_params(deep=False))
