import csv
import json

import numpy as np
import pytest
from PIL import Image

from lmfcn.data.image_form import ImageForm
from lmfcn.maps.outputs import make_legend, write_overlay
from lmfcn.maps.run import MapRequest, map_image
from lmfcn.model_file import load, save
from patchwork import patchwork
from random_models import random_model

CLASSES = ["glass", "rejected", "unreadable"]
NAMES = [*CLASSES, "rejected (no class)", "glass (no class)", "unreadable (no class)", "none of these"]


def test_no_two_names_are_alike():
    assert make_legend(np.array(["calm", "rough"])).names == [
        *("calm", "rough", "rejected"),
        "glass",
        "unreadable",
        "none of these",
    ]
    assert make_legend(np.array(CLASSES)).names == NAMES
    crowded = make_legend(np.array(["glass", "glass (no class)"])).names
    assert crowded == [
        "glass",
        "glass (no class)",
        "rejected",
        "glass (no class) (no class)",
        "unreadable",
        "none of these",
    ]


def test_classes_called_like_what_is_no_class(tmp_path):
    save(random_model(CLASSES, ImageForm(1, "uint8"), ("last",)), tmp_path / "model.lmfcn")
    pixels = patchwork(150, 210)[..., 0]
    Image.fromarray(pixels).save(tmp_path / "a.png")
    expected = load(tmp_path / "model.lmfcn").map(pixels, 24, 8).at_pixels()
    outcome = map_image(MapRequest(tmp_path / "model.lmfcn", tmp_path / "a.png", tmp_path / "out", 24, 8))
    assert outcome.n_classes == 3
    assert outcome.areas == {name: int((expected == name).sum()) for name in NAMES}
    assert sum(outcome.areas.values()) == 150 * 210
    rows = list(csv.DictReader((tmp_path / "out" / "areas.csv").read_text().splitlines()))
    assert {row["label"]: int(row["pixels"]) for row in rows} == outcome.areas
    assert json.loads((tmp_path / "out" / "map.json").read_text())["labels"] == NAMES


@pytest.mark.parametrize(("number", "opacity"), [(0, 0.45), (1, 0.45), (2, 0.45), (3, 0), (4, 0), (5, 1), (6, 0.45)])
def test_only_what_is_no_class_stays_bare(tmp_path, number, opacity):
    legend, areas = make_legend(np.array(CLASSES)), np.array([1, 1, 1, 0, 0, 0, 0])
    labels, image = np.full((520, 520), number), np.full((520, 520, 3), 200, dtype=np.uint8)
    write_overlay(tmp_path / "a.png", labels, image, legend, areas)
    with Image.open(tmp_path / "a.png") as picture:
        found = np.asarray(picture)[0, 0]
    assert found == pytest.approx(200 * (1 - opacity) + legend.colours[number] * opacity, abs=0.51)
