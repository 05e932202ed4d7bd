import json

import numpy as np
import pytest

from lmfcn.maps.geojson import label_regions, read_annotations, signed_area, write_geojson

shapely = pytest.importorskip("shapely")


def edges(labels, side=10):
    return tuple(np.arange(length + 1) * side for length in labels.shape)


def polygons(labels, shown=(1,)):
    return [
        (number, shapely.Polygon(outer, holes))
        for number, (outer, *holes) in label_regions(labels, edges(labels), shown)
    ]


def test_a_ring_of_cells_has_a_hole():
    labels = np.ones((3, 3), dtype=int)
    labels[1, 1] = 0
    ((_, (outer, hole)),) = label_regions(labels, edges(labels), [1])
    assert outer == [(0, 0), (30, 0), (30, 30), (0, 30), (0, 0)]
    assert sorted(set(hole)) == [(10, 10), (10, 20), (20, 10), (20, 20)]
    assert hole[0] == hole[-1]
    assert (signed_area(outer), signed_area(hole)) == (900, -100)


def test_cells_that_share_a_corner_are_two_regions():
    found = polygons(np.eye(2, dtype=int))
    assert [polygon.area for _, polygon in found] == [100, 100]


def test_a_hole_that_touches_the_outside_at_a_corner():
    labels = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 0]])
    ((_, polygon),) = polygons(labels)
    assert polygon.is_valid
    assert polygon.area == 700
    assert len(polygon.interiors) == 1


@pytest.mark.parametrize("seed", range(5))
def test_regions_of_noise_are_valid_and_cover_every_cell_once(seed):
    labels = np.random.default_rng(seed).integers(0, 3, (17, 23))
    found = polygons(labels, (0, 1, 2))
    assert all(polygon.is_valid for _, polygon in found)
    for number in range(3):
        parts = [polygon for label, polygon in found if label == number]
        assert sum(part.area for part in parts) == 100 * (labels == number).sum()
    for row, column in np.ndindex(labels.shape):
        here = shapely.Point(10 * column + 5, 10 * row + 5)
        assert [number for number, polygon in found if polygon.contains(here)] == [labels[row, column]]


def test_the_file_has_what_qupath_reads(tmp_path):
    labels = np.array([[1, 1], [0, 1]])
    regions = [("Tumor", (200, 0, 0), rings) for _, rings in label_regions(labels, edges(labels), [1])]
    write_geojson(tmp_path / "a.geojson", regions)
    content = json.loads((tmp_path / "a.geojson").read_text())
    (feature,) = content["features"]
    assert (content["type"], feature["type"]) == ("FeatureCollection", "Feature")
    assert feature["properties"] == {
        "objectType": "annotation",
        "classification": {"name": "Tumor", "color": [200, 0, 0]},
    }
    assert shapely.geometry.shape(feature["geometry"]).area == 300
    (annotation,) = read_annotations(tmp_path / "a.geojson")
    assert (annotation.label, signed_area(annotation.polygons[0][0])) == ("Tumor", 300)


def square(left, **properties):
    ring = [[left, 0], [left + 9, 0], [left + 9, 9], [left, 9], [left, 0]]
    return {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]}, "properties": properties}


def test_annotations_of_several_versions_of_qupath(tmp_path):
    many = square(0, classification={"name": "b", "colorRGB": -1})
    many["geometry"] = {"type": "MultiPolygon", "coordinates": [square(i)["geometry"]["coordinates"] for i in (0, 20)]}
    point = {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [1, 2]},
        "properties": {"classification": "c"},
    }
    features = [square(0, classification={"names": ["Tumor", "CD8"]}), many, square(0), point]
    (tmp_path / "list.geojson").write_text(json.dumps(features))
    found = read_annotations(tmp_path / "list.geojson")
    assert [(annotation.label, len(annotation.polygons)) for annotation in found] == [("Tumor: CD8", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a GeoJSON file with polygons"),
        ('{"type": "FeatureCollection", "features": []}', "has no polygon with a class; give every annotation a class"),
        (
            '[{"geometry": {"type": "Polygon", "coordinates": [[[0, 0]]]}, "properties": {"classification": "a"}}]',
            "1 points",
        ),
        ("7", "is not a GeoJSON file"),
    ],
)
def test_other_files_are_refused(tmp_path, text, message):
    (tmp_path / "a.geojson").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_annotations(tmp_path / "a.geojson")
