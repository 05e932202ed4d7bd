import gc
import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
import tifffile
from PIL import Image
from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold, cross_val_score

from lmfcn.data.collection import ImageCollection
from lmfcn.data.image_files import CollectionError, ImageError
from lmfcn.data.image_form import load_images
from some_training import classifier_of


@pytest.fixture
def folder(tmp_path, random):
    """Twelve RGB files of two classes, 20x24 pixels; class 1 is brighter."""
    paths, labels = [], []
    for i in range(12):
        pixels = (random.integers(0, 120, (20, 24, 3)) + 120 * (i % 2)).astype(np.uint8)
        path = tmp_path / f"{i:02d}.png"
        Image.fromarray(pixels).save(path)
        paths.append(path)
        labels.append("bright" if i % 2 else "dark")
    return paths, labels


@pytest.fixture
def collection(folder):
    paths, labels = folder
    return ImageCollection(paths, labels, groups=np.arange(12) // 2, split=["train"] * 8 + ["test"] * 4)


def quick(**changes):
    options = {"latent_dim": 4, "widths": (6, 8), "epochs": 1, "passes": 1, "random_state": 0, "device": "cpu"}
    return classifier_of(**{**options, **changes})


def test_length_indexing_and_paths(collection, folder):
    assert len(collection) == 12
    assert collection.shape == (12,)
    assert np.array_equal(collection[3], np.asarray(Image.open(folder[0][3])))
    assert np.array_equal(collection[-1], collection[11])
    assert collection.paths == [str(path) for path in folder[0]]
    with pytest.raises(IndexError, match="image 12 of a collection of 12"):
        collection[12]
    assert repr(collection) == "ImageCollection(12 images, 2 classes)"
    assert sum(1 for _ in collection) == 12


@pytest.mark.parametrize("key", [[1, 4], np.array([1, 4]), np.isin(np.arange(12), [1, 4]), slice(1, 5, 3)])
def test_subsets_take_everything_along(collection, key):
    for smaller in (collection.subset(key), collection[key], collection[key, ...]):
        assert smaller.paths == [collection.paths[1], collection.paths[4]]
        assert smaller.labels.tolist() == ["bright", "dark"]
        assert smaller.groups.tolist() == [0, 2]
        assert np.array_equal(smaller[1], collection[4])
    assert len(collection) == 12


def test_parts_of_a_given_split(collection, folder):
    assert len(collection.part("train")) == 8
    with pytest.raises(ValueError, match=r"The split has the parts \['test', 'train'\], not 'val'"):
        collection.part("val")
    with pytest.raises(ValueError, match="no given split"):
        ImageCollection(folder[0]).part("train")


def test_arrays_and_files_give_the_same(collection):
    array = collection.to_array()
    assert array.shape == (12, 20, 24, 3)
    again = ImageCollection(array, collection.labels)
    assert all(np.array_equal(a, b) for a, b in zip(collection, again, strict=True))
    assert again.pixel_format() == collection.pixel_format() == (3, "uint8")


def test_gaps_that_evicted_images_leave_are_returned_to_the_system(folder, monkeypatch):
    released, image_bytes = [], 20 * 24 * 3
    monkeypatch.setattr("lmfcn.data.image_store.release_freed_memory", lambda: released.append(True))
    monkeypatch.setattr("lmfcn.data.image_store._RELEASE_BYTES", 3 * image_bytes - 1)
    collection = ImageCollection(*folder, cache_bytes=2 * image_bytes)
    for _ in range(3):
        list(collection)
    n_evicted = 3 * len(collection) - 2
    assert len(released) == n_evicted // 3


def test_images_are_decoded_late_and_remembered(folder, monkeypatch):
    reads = []
    from lmfcn.data import image_store as store

    original = store.read_image
    monkeypatch.setattr(store, "read_image", lambda path: reads.append(path) or original(path))
    collection = ImageCollection(*folder)
    assert reads == []
    first = collection[0]
    assert collection.subset([0, 1])[0] is first
    assert len(reads) == 1
    tight = ImageCollection(*folder, cache_bytes=2 * 20 * 24 * 3)
    for position in (0, 1, 2, 0):
        tight[position]
    assert len(reads) == 1 + 4  # two images fit, so the first is gone when it is asked for again


def test_resized_cropped_and_grey(collection, folder):
    assert collection.resized(16)[0].shape == (16, 16, 3)
    assert collection.resized((10, 12)).to_array().shape == (12, 10, 12, 3)
    assert np.array_equal(collection.cropped((10, 12))[2], collection[2][5:15, 6:18])
    grey = ImageCollection(*folder, color="grey")
    expected = np.rint(collection[0] @ [0.299, 0.587, 0.114])
    assert np.abs(grey[0][..., 0].astype(int) - expected).max() <= 1
    assert grey.pixel_format() == (1, "uint8")


def test_resizing_keeps_the_depth(random):
    deep = random.integers(0, 65536, (2, 32, 32, 5)).astype(np.uint16)
    small = ImageCollection(deep).resized(16).to_array()
    assert small.dtype == np.uint16
    assert small.max() > 255
    assert small.mean() == pytest.approx(deep.mean(), rel=0.05)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_resizing_and_greying_do_not_round_fractions(dtype):
    images = np.full((1, 16, 16, 3), 0.25, dtype)
    small = ImageCollection(images, color="grey").resized(8).to_array()
    assert small.dtype == dtype
    assert small == pytest.approx(np.full((1, 8, 8, 1), 0.25), abs=1e-3)


def test_what_fits_into_memory_depends_on_channels_and_depth(tmp_path):
    for name, channels, dtype in (("deep", 16, np.float32), ("grey", 1, np.uint8)):
        for number in range(4):
            pixels = np.zeros((channels, 10, 12), dtype)
            tifffile.imwrite(tmp_path / f"{name}{number}.tif", pixels, photometric="minisblack")
    deep, grey = (sorted(tmp_path.glob(f"{name}*.tif")) for name in ("deep", "grey"))
    n_pixels = 4 * 10 * 12
    for paths, n_bytes in ((deep, 64 * n_pixels), (grey, n_pixels)):
        assert isinstance(load_images(ImageCollection(paths, cache_bytes=n_bytes)), np.ndarray)
        assert isinstance(load_images(ImageCollection(paths, cache_bytes=n_bytes - 1)), ImageCollection)
    array = np.zeros((4, 10, 12, 2), np.float64)
    assert ImageCollection(array, cache_bytes=16 * n_pixels).fits_in_memory()
    assert not ImageCollection(array, cache_bytes=16 * n_pixels - 1).fits_in_memory()


def test_parts_of_images_do_not_keep_the_whole_in_memory(collection):
    for parts in (collection.tiled(10), collection.cropped(10), collection.cropped(10, random_state=0)):
        assert parts[0].base is None
        assert parts[0].shape == (10, 10, 3)


def test_random_crops_are_drawn_once(collection):
    crops, same, other = (collection.cropped(10, random_state=seed) for seed in (1, 1, 2))
    assert np.array_equal(crops.to_array(), same.to_array())
    assert not np.array_equal(crops.to_array(), other.to_array())
    assert np.array_equal(crops[0], crops[0])


def test_tiles_keep_label_and_source(collection):
    tiles = collection.tiled(10)
    assert len(tiles) == 12 * 4
    assert np.array_equal(tiles[3], collection[0][10:20, 10:20])
    assert tiles.labels[:8].tolist() == ["dark"] * 4 + ["bright"] * 4
    assert tiles.groups[:8].tolist() == [0] * 8
    assert tiles.sources[:8].tolist() == [0] * 4 + [1] * 4
    without_groups = ImageCollection(collection.paths).tiled((20, 12))
    assert without_groups.groups.tolist() == np.repeat(np.arange(12), 2).tolist()
    assert len(collection.tiled(10, stride=5)) == 12 * 3 * 3
    with pytest.raises(ImageError, match=r"00\.png: is 20x24 pixels, too small for tiles of \(30, 30\)"):
        collection.tiled(30)
    with pytest.raises(ValueError, match="tiles or crops, which cannot be cut again"):
        tiles.tiled(5)


def test_votes_bring_tiles_back_to_images(collection):
    tiles = collection.subset([5, 2]).tiled(10)
    sources, labels = tiles.vote(["a", "b", "b", "b", "a", "a", "a", "b"])
    assert sources.tolist() == [2, 5]
    assert labels.tolist() == ["a", "b"]
    _, means = tiles.vote(np.array([1.0, 1, 1, 1, 0, 0, 0, 2]))
    assert means.tolist() == [0.5, 1.0]


@pytest.fixture
def broken(folder, tmp_path):
    paths, labels = folder
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "cut.png").write_bytes(paths[0].read_bytes()[:100])
    bad = [tmp_path / name for name in ("empty.png", "text.png", "cut.png", "missing.png")]
    return ImageCollection([bad[0], *paths, *bad[1:]], ["dark", *labels, "dark", "bright", "dark"])


def test_all_bad_files_are_reported_at_once(broken):
    for attempt in (broken.checked, broken.to_array, lambda: quick().fit(broken)):
        with pytest.raises(CollectionError) as caught:
            attempt()
        message = str(caught.value)
        for name in ("empty.png: is empty", "text.png: is not an image", "missing.png: does not exist"):
            assert name in message
        assert "on_error='skip'" in message
    with pytest.raises(CollectionError, match=r"4 files cannot be used"):
        broken.checked()


def test_bad_files_can_be_left_out_with_a_summary(broken, collection):
    with pytest.warns(UserWarning, match=r"Left out: 4 files cannot be used") as caught:
        readable = broken.checked(on_error="skip")
    assert "cut.png: is damaged or truncated" in str(caught[0].message)
    assert readable.paths == collection.paths
    assert sorted(error.path.rsplit("/", 1)[1] for error in readable.left_out) == [
        "cut.png",
        "empty.png",
        "missing.png",
        "text.png",
    ]
    with pytest.raises(CollectionError):
        broken.subset([0, 13]).checked(on_error="skip")


def test_long_lists_of_bad_files_are_cut(tmp_path):
    with pytest.raises(CollectionError, match=r"30 files cannot be used:(.|\n)*and 10 more"):
        ImageCollection([tmp_path / f"{i}.png" for i in range(30)]).checked()


def test_mixed_forms_are_named(collection, tmp_path):
    Image.new("L", (24, 20)).save(tmp_path / "grey.png")
    mixed = ImageCollection([*collection.paths, tmp_path / "grey.png"])
    with pytest.raises(
        ValueError, match=r"00\.png has 3 channels of uint8 but .*grey\.png has 1 channel of uint8; use color"
    ):
        mixed.pixel_format()
    with pytest.raises(ValueError, match=r"grey\.png is 20x24 with 1 channel of uint8, but .*use resized or cropped"):
        mixed.to_array()
    assert ImageCollection(mixed.paths, color="rgb").to_array().shape == (13, 20, 24, 3)


def test_fit_and_predict_take_a_collection(collection):
    collection.groups = None  # which an array of validation images could not have
    fitted = quick().fit(collection.part("train"), validation=collection.part("test"))
    by_array = quick().fit(
        collection.part("train").to_array(),
        collection.part("train").labels,
        validation=(collection.part("test").to_array(), collection.part("test").labels),
    )
    assert np.array_equal(fitted.decision_function(collection), by_array.decision_function(collection.to_array()))
    assert set(fitted.predict(collection)) <= {"bright", "dark"}
    with pytest.raises(ValueError, match="y is missing"):
        quick().fit(ImageCollection(collection.paths))


def test_mixed_sizes_train_and_predict(tmp_path, random):
    paths, labels = [], []
    for i in range(16):
        side = (12, 16, 21)[i % 3]
        Image.fromarray((random.integers(0, 100, (side, side + i % 2)) + 100 * (i % 2)).astype(np.uint8)).save(
            tmp_path / f"{i}.png"
        )
        paths.append(tmp_path / f"{i}.png")
        labels.append(i % 2)
    mixed = ImageCollection(paths, labels)
    fitted = quick(epochs=2).fit(mixed)
    decisions = fitted.decision_function(mixed)
    alone = [fitted.decision_function(image[None])[0] for image in mixed]
    assert decisions == pytest.approx(alone, abs=1e-4)
    again = quick(epochs=2).fit(mixed)
    assert np.array_equal(again.decision_function(mixed), decisions)


def test_a_collection_larger_than_the_cache_gives_the_same_model(collection, folder):
    tight = ImageCollection(*folder, groups=collection.groups, cache_bytes=5000)
    assert np.array_equal(
        quick().fit(tight).decision_function(tight), quick().fit(collection).decision_function(collection)
    )


def test_cross_validation_and_grid_search(collection):
    scores = cross_val_score(
        quick(validation_fraction=0),
        collection,
        collection.labels,
        groups=collection.groups,
        cv=StratifiedGroupKFold(2),
    )
    assert scores.shape == (2,)
    search = GridSearchCV(quick(validation_fraction=0), {"C": [1.0, 10.0]}, cv=2).fit(collection, collection.labels)
    assert search.best_params_["C"] in (1.0, 10.0)


def test_collections_travel_to_workers(collection):
    collection[0]
    again = pickle.loads(pickle.dumps(collection))
    assert np.array_equal(again[0], collection[0])
    assert again.labels.tolist() == collection.labels.tolist()


def test_bad_arguments(folder):
    paths, labels = folder
    with pytest.raises(ValueError, match=r"labels must hold one entry per image, shape \(12,\), got shape \(3,\)"):
        ImageCollection(paths, labels[:3])
    with pytest.raises(ValueError, match="at least one image, got none"):
        ImageCollection([])
    with pytest.raises(ValueError, match="positive number of pixels"):
        ImageCollection(paths).resized(0)
    with pytest.raises(ValueError, match="at least 8x8 pixels, got 6x6"):
        quick().fit(ImageCollection(paths, labels).resized(6))


@pytest.mark.thorough
@pytest.mark.slow
def test_memory_stays_flat_over_many_files(folder):
    paths, _ = folder
    many = ImageCollection(list(paths) * 1700, cache_bytes=100_000)
    assert len(many) > 20_000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for image in many.subset(slice(0, 500)):
            image.sum()
        gc.collect()
        tracemalloc.start()
        for image in many.subset(slice(500, None)):
            image.sum()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 3_000_000


def test_resizing_is_described_and_keeps_proportions_on_demand(random):
    sizes = [(12, 30), (40, 20), (16, 16)]
    images = ImageCollection([random.integers(0, 256, size, dtype=np.uint8) for size in sizes])
    assert images.describe_resizing() is None
    cut = images.resized(16, "crop")
    assert cut.describe_resizing() == "3 images of 16x16 to 40x20 pixels (height x width) scaled and cut to 16x16"
    assert cut.source_sizes().tolist() == [list(size) for size in sizes]
    assert "scaled and padded to 16x16" in images.resized(16, "pad").describe_resizing()
    assert "resized to 16x16" in images.resized(16).describe_resizing()
    with pytest.raises(ValueError, match="fit must be one of 'crop', 'pad', 'stretch', got 'fill'"):
        images.resized(16, "fill")
