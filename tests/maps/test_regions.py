import json

import numpy as np
import pytest
from PIL import Image

from lmfcn.maps.regions import open_regions


def feature(label, *rings):
    closed = [[*ring, ring[0]] for ring in rings]
    return {
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": closed},
        "properties": {"objectType": "annotation", "classification": {"name": label}},
    }


def box(left, top, right, bottom):
    return [[left, top], [right, top], [right, bottom], [left, bottom]]


@pytest.fixture
def image(tmp_path):
    """Pixels that tell their place: the row in the first channel, the column in the second."""
    rows, columns = np.mgrid[:200, :240]
    Image.fromarray(np.stack([rows, columns, 0 * rows], axis=2).astype(np.uint8)).save(tmp_path / "a.png")
    return tmp_path / "a.png"


def tiles(image, *features, tile=20, **options):
    (image.parent / "a.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": list(features)}))
    return open_regions(image, image.parent / "a.geojson", tile, **options)


def test_tiles_lie_inside_their_annotation(image):
    found = tiles(
        image, feature("a", box(10, 30, 55, 70)), feature("b", box(100, 100, 140, 140), box(105, 105, 115, 115))
    )
    assert found.labels.tolist() == ["a"] * 4 + ["b"] * 3
    assert found.groups.tolist() == [0] * 4 + [1] * 3
    corners = [(int(tile[0, 0, 0]), int(tile[0, 0, 1])) for tile in found]
    assert corners[:4] == [(30, 10), (30, 30), (50, 10), (50, 30)]
    assert corners[4:] == [(100, 120), (120, 100), (120, 120)]  # the first tile has the hole
    assert found[0].shape == (20, 20, 3)


def test_a_slanting_side_leaves_out_the_tiles_that_it_cuts(image):
    found = tiles(image, feature("a", [[0, 0], [80, 0], [0, 80]]), feature("b", box(100, 0, 120, 20)))
    corners = [(int(tile[0, 0, 0]), int(tile[0, 0, 1])) for tile in found.subset(found.labels == "a")]
    assert corners == [(0, 0), (0, 20), (20, 0)] or corners == [(0, 0), (0, 20), (0, 40), (20, 0), (20, 20), (40, 0)]


def test_a_class_without_room_is_named(image):
    with pytest.raises(ValueError, match=r"no tile of 20x20 pixels fits into the annotations of 'b'; draw larger"):
        tiles(image, feature("a", box(0, 0, 50, 50)), feature("b", box(0, 0, 10, 50)))
    with pytest.raises(ValueError, match="annotations of one class, 'a'; at least two are needed"):
        tiles(image, feature("a", box(0, 0, 50, 50)))
    with pytest.raises(ValueError, match="does not contain its pixel size"):
        tiles(image, feature("a", box(0, 0, 50, 50)), resolution=0.5)


def test_annotations_may_reach_over_the_border(image):
    found = tiles(image, feature("a", box(-50, -50, 30, 30)), feature("b", box(200, 180, 300, 300)))
    assert found.labels.tolist() == ["a", "b", "b"]
