"""Maps by several processes: which of them computes a block, and whether it survives, must not change the others."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import tifffile
from PIL import Image

import pieces_of_work as pieces
from lmfcn.inference.files import load
from lmfcn.inference.map_grid import Box
from lmfcn.mapping import run
from lmfcn.mapping.blocks import BlockMapper, MapSettings
from lmfcn.mapping.opening import View
from lmfcn.mapping.run import MapRequest, map_image
from patchwork import patchwork


@pytest.fixture
def request_grey(model_files, tmp_path):
    """An image of 300x600 pixels that is mapped in six blocks."""
    Image.fromarray(patchwork(300, 600)[..., 0]).save(tmp_path / "a.png")
    return MapRequest(model_files / "grey.lmfcn", tmp_path / "a.png", tmp_path / "out", 24, 8, block=256)


@pytest.fixture
def expected(request_grey, tmp_path):
    map_image(replace(request_grey, output=tmp_path / "one"), jobs=1)
    return tifffile.imread(tmp_path / "one" / "probabilities.tif")


def test_the_number_of_processes_does_not_change_a_bit(request_grey, expected):
    map_image(request_grey, jobs=2)
    assert len(list(request_grey.output.glob("blocks/*.npy"))) == 6
    assert np.array_equal(tifffile.imread(request_grey.output / "probabilities.tif"), expected)


def test_a_block_that_ends_its_processes_is_told_and_the_rest_is_mapped(request_grey, expected, monkeypatch):
    deadly = Box(0, 32, 32, 64)
    monkeypatch.setattr(run, "BlockMapper", lambda *given: pieces.DeadlyMapper(BlockMapper(*given), deadly))
    outcome = map_image(request_grey, jobs=2)
    (sentence,) = outcome.missing
    assert sentence.startswith("rows 0-271, columns 256-527: every process that was given them died; the likeliest")
    assert outcome.areas["unreadable"] > 0
    expected[deadly.slices] = np.nan
    found = tifffile.imread(request_grey.output / "probabilities.tif")
    assert np.array_equal(found, expected, equal_nan=True)
    monkeypatch.undo()
    assert map_image(request_grey).missing == []  # tried again


def test_a_mapper_that_was_used_can_be_passed_on(request_grey):
    with tifffile.TiffWriter(request_grey.image.with_suffix(".tif")) as file:
        file.write(patchwork(300, 600)[..., 0], tile=(64, 64))
    settings = MapSettings(24, 8, View("tiff"))
    mapper = BlockMapper(load(request_grey.model), request_grey.image.with_suffix(".tif"), settings)
    first = mapper(Box(0, 0, 8, 8)).probabilities
    again = pickle.loads(pickle.dumps(mapper))
    assert np.array_equal(again(Box(0, 0, 8, 8)).probabilities, first)
