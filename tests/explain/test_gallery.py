import copy
import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import lmfcn
from lmfcn.data.collection import ImageCollection
from lmfcn.data.sources import open_collection
from lmfcn.explain.explanation import explain
from lmfcn.explain.gallery import (
    KIND,
    VERSION,
    Gallery,
    Projection,
    fingerprint_of,
    gallery_path,
    load_gallery,
    save_gallery,
)
from lmfcn.util.tensor_files import FileError, read_tensors, write_tensors
from small_model import fitted, gallery, quick, three
from small_trunk import trunk_classifier, trunk_images


def test_projection_is_the_plane_of_most_variance(random):
    latents = random.normal(size=(50, 6)) * [5, 1, 1, 3, 1, 1] + 7
    plane = Projection.of(latents)
    centred = latents - latents.mean(axis=0)
    values = np.linalg.svd(centred, compute_uv=False)
    coordinates = plane.transform(latents)
    assert np.allclose(np.square(coordinates).sum(axis=0), np.square(values[:2]))
    assert np.allclose(plane.axes @ plane.axes.T, np.eye(2))
    assert np.allclose(plane.shares, np.square(values[:2]) / np.square(values).sum(), atol=1e-6)
    assert (plane.axes[np.arange(2), abs(plane.axes).argmax(axis=1)] > 0).all()


def test_one_feature_and_latents_without_spread():
    assert Projection.of(np.array([[1.0], [3.0]])).transform(np.array([[3.0]])).tolist() == [[1.0, 0.0]]
    flat = Projection.of(np.ones((3, 4)))
    assert flat.shares == (0.0, 0.0)
    assert np.allclose(flat.transform(np.ones((1, 4))), 0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("gallery") / "model.gallery"
    save_gallery(gallery(), path)
    return path


def test_a_gallery_holds_names_labels_latents_and_pictures():
    X, y = three()
    held = gallery()
    assert len(held) == 36
    assert held.names[30] == "stripes/30.png"
    assert held.labels == y.tolist()
    assert np.allclose(held.latents, fitted().transform(X), atol=1e-5)
    with Image.open(io.BytesIO(held.pictures[5])) as picture:
        assert (picture.size, picture.format) == ((22, 18), "JPEG")
        assert np.abs(np.asarray(picture).astype(float) - X[5]).mean() < 12


def test_support_vectors_are_the_images_that_they_come_from():
    held, model = gallery(), fitted().model_
    assert np.allclose(held.latents[held.support], model.support_latents.numpy(), atol=1e-4)
    assert set(np.sign(model.coefficients.numpy())[np.arange(len(held.support)), held.numbers[held.support]]) <= {0, 1}


@pytest.mark.parametrize("changes", [{"refit": False, "keep_untrained": False}, {"validation_fraction": 0.0}])
def test_support_vectors_with_other_parameters(changes):
    X, y = three()
    classifier = quick(**changes).fit(X, y)
    held = Gallery.of(classifier, X, y)
    assert np.allclose(held.latents[held.support], classifier.model_.support_latents.numpy(), atol=1e-3)


def test_validation_images_follow_those_of_training():
    X, y = three()
    classifier = quick().fit(X[::2], y[::2], validation=(X[1::2], y[1::2]))
    held = Gallery.of(classifier, X[::2], y[::2], validation=(X[1::2], y[1::2]))
    assert held.labels == [*y[::2], *y[1::2]]
    assert np.allclose(held.latents[held.support], classifier.model_.support_latents.numpy(), atol=1e-4)
    collection = ImageCollection(X[1::2], y[1::2])
    assert Gallery.of(classifier, X[::2], y[::2], validation=collection).names[-1] == "image 35"
    with pytest.raises(ValueError, match="fitted on 36 images, and the 18 given here are not the same"):
        Gallery.of(classifier, X[::2], y[::2])


def test_names_are_paths_of_files(tmp_path):
    X, y = three()
    for i, (image, label) in enumerate(zip(X, y, strict=True)):
        (tmp_path / label).mkdir(exist_ok=True)
        Image.fromarray(image).save(tmp_path / label / f"{i}.png")
    collection = open_collection(tmp_path)
    held = Gallery.of(quick().fit(collection), collection)
    assert held.names == collection.paths
    assert held.labels == collection.labels.tolist()


@pytest.mark.parametrize(
    ("images", "labels", "names", "message"),
    [
        (slice(None, None, -1), slice(None, None, -1), None, "not the same in the same order"),
        (slice(0, 30), slice(0, 30), None, "fitted on 36 images, and the 30 given here"),
        (slice(None), slice(0, 30), None, "as many labels as images, got 30 for 36 images"),
        (slice(None), slice(None), ["a"], "as many names as images, got 1 for 36 images"),
    ],
)
def test_wrong_images_are_refused(images, labels, names, message):
    X, y = three()
    with pytest.raises(ValueError, match=message):
        Gallery.of(fitted(), X[images], y[labels], names)


def test_missing_and_unknown_labels_are_refused():
    X, y = three()
    with pytest.raises(ValueError, match="labels are missing"):
        Gallery.of(fitted(), X)
    with pytest.raises(ValueError, match="labels hold 'mud', which the classifier does not know"):
        Gallery.of(fitted(), X, ["mud", *y[1:]])


def test_the_same_after_loading(saved, tmp_path):
    loaded = load_gallery(saved)
    for name in ("model", "names", "classes", "pictures"):
        assert getattr(loaded, name) == getattr(gallery(), name)
    for name in ("numbers", "latents", "support", "coordinates"):
        assert np.array_equal(getattr(loaded, name), getattr(gallery(), name))
    save_gallery(loaded, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == saved.read_bytes()


def test_it_belongs_to_the_model_of_the_file_and_to_no_other(saved, tmp_path):
    fitted().save(tmp_path / "model.lmfcn")
    model = lmfcn.load(tmp_path / "model.lmfcn")
    assert fingerprint_of(model) == fingerprint_of(fitted().model_)
    assert len(load_gallery(saved, model)) == 36
    other = quick(random_state=1).fit(*three()).model_
    with pytest.raises(FileError, match=r"model.gallery cannot be used as a gallery: The gallery belongs to another"):
        load_gallery(saved, other)


def test_a_model_is_no_gallery_and_the_reverse(saved, tmp_path):
    fitted().save(tmp_path / "model.lmfcn")
    with pytest.raises(FileError, match="is not a file of the kind 'lmfcn gallery'; it says 'lmfcn model'"):
        load_gallery(tmp_path / "model.lmfcn")
    with pytest.raises(FileError, match="is not a file of the kind 'lmfcn model'"):
        lmfcn.load(saved)


def test_broken_files_are_refused(saved, tmp_path):
    content = saved.read_bytes()
    path = tmp_path / "broken"
    for end in (0, 5, 200, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:end])
        with pytest.raises(FileError, match=r"truncated|not in the safetensors format"):
            load_gallery(path)
    changed = bytearray(content)
    changed[-3] ^= 1
    path.write_bytes(bytes(changed))
    with pytest.raises(FileError, match="was changed after it was written"):
        load_gallery(path)
    with pytest.raises(FileNotFoundError):
        load_gallery(tmp_path / "nothing")


def png() -> torch.Tensor:
    buffer = io.BytesIO()
    Image.new("L", (8, 8)).save(buffer, format="PNG")
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def large_jpeg() -> torch.Tensor:
    buffer = io.BytesIO()
    Image.new("L", (97, 8)).save(buffer, format="JPEG")
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def one_image(picture):
    """Cut a gallery down to one image with the given picture."""

    def change(values, tensors):
        values["names"] = ["a"]
        tensors |= {"numbers": torch.zeros(1, dtype=torch.int64), "support": torch.zeros(1, dtype=torch.int64)}
        tensors |= {"latents": torch.zeros(1, 22), "pictures": picture, "ends": torch.tensor([len(picture)])}

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda values, _: values.pop("names"), "It has no 'names'"),
        (lambda values, _: values.update(names=[]), "Its names are missing"),
        (lambda values, _: values.update(names=values["names"][1:]), "do not have the same number of images"),
        (lambda values, _: values["names"].__setitem__(0, 7), "Its names are not texts"),
        (
            lambda values, _: values["names"].__setitem__(0, "a" * 5000),
            "Its names are not texts of at most 4096 characters",
        ),
        (lambda values, _: values.update(classes=["one"]), "does not say which model"),
        (lambda values, _: values.update(model=None), "does not say which model"),
        (lambda values, _: values.update(classes=["one", "two"]), "Its classes have indices out of range"),
        (lambda _, tensors: tensors.pop("ends"), "Its parts are not those of a gallery"),
        (lambda _, tensors: tensors.update(extra=torch.zeros(1)), "Its parts are not those of a gallery"),
        (lambda _, tensors: tensors.update(latents=torch.zeros(36)), "do not have the same number of images"),
        (lambda _, tensors: tensors.update(support=torch.tensor([99])), "support vectors have indices out of range"),
        (lambda _, tensors: tensors.update(support=torch.tensor([-1])), "support vectors have indices out of range"),
        (lambda _, tensors: tensors["ends"].__setitem__(0, 10**9), "pictures have ends out of range"),
        (lambda _, tensors: tensors["ends"].__setitem__(0, -5), "pictures have ends out of range"),
        (one_image(png()), "not a JPEG file"),
        (one_image(torch.zeros(5, dtype=torch.uint8)), "not a JPEG file"),
        (one_image(large_jpeg()), "larger than 96 pixels"),
    ],
)
def test_a_file_with_wrong_content_is_refused_with_a_reason(saved, tmp_path, change, message):
    values, tensors = read_tensors(saved, KIND, VERSION)
    values, tensors = copy.deepcopy(values), dict(tensors)
    change(values, tensors)
    write_tensors(tmp_path / "edited", KIND, VERSION, values, tensors)
    with pytest.raises(FileError, match=message):
        load_gallery(tmp_path / "edited")


def test_neighbours_and_coordinates():
    held = gallery()
    assert held.nearest(held.latents[7], 3)[0] == 7
    assert np.allclose(held.projection.transform(held.latents[:2]), held.coordinates[:2])


def test_the_gallery_is_beside_its_model():
    assert gallery_path("a/b/steel.lmfcn").as_posix() == "a/b/steel.gallery"


def test_a_gallery_of_a_model_with_a_trunk(tmp_path):
    classifier, (X, y) = trunk_classifier(), trunk_images()
    save_gallery(Gallery.of(classifier, X, y), tmp_path / "model.gallery")
    classifier.save(tmp_path / "model.lmfcn")
    model = lmfcn.load(tmp_path / "model.lmfcn", network=classifier.model_.trunk.network)
    held = load_gallery(tmp_path / "model.gallery", model)
    found = explain(model, X[3], held)
    weights = [image.weight for image in found.supporting + found.opposing]
    assert sum(weights) + found.rest + found.intercept == pytest.approx(found.value, abs=1e-9)
    assert held.nearest(found.latent).tolist() == [3]
    with pytest.raises(ValueError, match="are not the same in the same order"):
        Gallery.of(classifier, X[::-1], y[::-1])


def test_thumbnails_in_the_form_of_the_model():
    images = gallery().images_for(fitted().model_)
    assert (images.shape, images.dtype) == ((36, 18, 22, 1), np.uint8)
    difference = abs(images[..., 0].astype(int) - three()[0])
    assert np.median(difference) < 16  # JPEG


@pytest.mark.parametrize(
    "changes", [{"channels": 2}, {"pixels": "uint16"}, {"row_shape": (18, 22)}, {"smallest_side": 32}]
)
def test_a_model_of_other_pixels_has_no_use_for_thumbnails(changes):
    model = copy.deepcopy(fitted().model_)
    model.form = replace(model.form, **changes)
    assert gallery().images_for(model) is None


def test_pictures_keep_the_shape_of_resized_files(tmp_path, random):
    for number in range(12):
        path = tmp_path / ("bark" if number % 2 else "wood") / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(random.integers(0, 256, (20, 60), dtype=np.uint8)).save(path)
    images = open_collection(tmp_path).resized(16)
    assert images.unstretched()[0].shape == (20, 60, 1)
    assert open_collection(tmp_path).cropped(16).unstretched()[0].shape == (16, 16, 1)
    found = Gallery.of(quick().fit(images), images)
    assert {Image.open(io.BytesIO(picture)).size for picture in found.pictures} == {(60, 20)}
