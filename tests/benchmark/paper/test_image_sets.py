import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from PIL import Image

from lmfcn.benchmark.paper.image_sets import (
    OPTIONS,
    Source,
    check_source,
    collection_of,
    digest_of_source,
    limit_per_class,
    split_published,
)
from lmfcn.data.collection import ImageCollection
from published_trees import make_trees


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    return make_trees(tmp_path_factory.mktemp("trees"), side=20)


def source_of(roots, images, *, binary, **others):
    return Source(images, roots[OPTIONS[images]], **{"size": 16, "n_per_class": None, "binary": binary, **others})


@pytest.mark.parametrize(
    ("images", "binary", "n_classes"),
    [
        *(("BACH", True, 2), ("BACH", False, 4), ("BreaKHis", True, 2), ("BreaKHis", False, 8), ("CRC", True, 2)),
        *(("CRC", False, 8), ("Salzburg", True, 2)),
    ],
)
def test_every_task_is_divided_by_groups(roots, images, binary, n_classes):
    source = source_of(roots, images, binary=binary)
    parts = split_published(source, 0)
    sides = (parts.train, parts.validation, parts.test)
    assert all(len(np.unique(side.labels)) == n_classes for side in sides)
    assert parts.train.images[0].shape == (16, 16, 3)
    if images != "BACH":  # which tells nothing about patients
        groups = [set(side.images.groups) for side in sides]
        assert len(set.union(*groups)) == sum(map(len, groups))
    assert pickle.loads(pickle.dumps(partial(split_published, source)))(0).fingerprint() == parts.fingerprint()
    assert split_published(source, 1).fingerprint() != parts.fingerprint()


def test_groups_can_be_given_up(roots):
    assert collection_of(source_of(roots, "CRC", binary=True, by_image=True)).groups is None


def test_whole_salzburg_images_are_cut_into_tiles_that_stay_together(tmp_path, random):
    for kind in ("Fabric", "Misc"):
        for number in range(3):
            pixels = random.integers(0, 256, (256, 256, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / f"{kind}_{number:04}.ppm")
    images = collection_of(Source("Salzburg", tmp_path, 16, None, binary=True))
    assert len(images) == 6 * 16
    assert images[0].shape == (16, 16, 3)
    assert sorted(set(images.groups)) == [f"{kind}_{n:04}" for kind in ("Fabric", "Misc") for n in range(3)]


def test_thinned_takes_a_class_evenly():
    images = ImageCollection(np.zeros((13, 8, 8), np.uint8), labels=["a"] * 10 + ["b"] * 3)
    assert limit_per_class(images, 4).sources.tolist() == [0, 3, 6, 9, 10, 11, 12]


def test_incomplete_copies_and_small_classes_are_spoken_of(roots):
    (remark,) = check_source(source_of(roots, "BACH", binary=False), range(2))
    assert "has fewer images than BACH (ICIAR 2018): normal 8 of 100" in remark
    with pytest.raises(ValueError, match=r"^BACH: Class 'cancer' has 2 images, too few"):
        check_source(source_of(roots, "BACH", binary=True, n_per_class=2), range(1))


def test_the_digest_follows_files_and_form_but_not_the_folder(roots, tmp_path):
    source = source_of(roots, "BACH", binary=True)
    elsewhere = replace(source, root=make_trees(tmp_path, side=20)["bach"])
    assert digest_of_source(source) == digest_of_source(elsewhere)
    others = [replace(source, size=12), replace(source, binary=False), replace(source, n_per_class=5)]
    assert len({digest_of_source(one) for one in (source, *others)}) == 4
    (elsewhere.root / "Normal" / "n000.tif").unlink()
    collection_of.cache_clear()
    assert digest_of_source(source) != digest_of_source(elsewhere)
