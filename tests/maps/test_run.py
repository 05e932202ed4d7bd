"""Whole maps: their files, interruptions, damaged images, and several processes."""

import csv
import errno
import json
import os
import pickle
import shutil
from dataclasses import replace

import numpy as np
import pytest
import tifffile
from PIL import Image

import lmfcn
import pieces_of_work as pieces
from lmfcn.data.framing import Preprocessing
from lmfcn.maps import large_image as images
from lmfcn.maps import run
from lmfcn.maps.blocks import BlockMapper, MapSettings
from lmfcn.maps.readers import View
from lmfcn.maps.run import MapRequest, map_image
from lmfcn.maps.texture_map import Box
from lmfcn.model_file import load, save
from patchwork import patchwork

OUTPUTS = ["areas.csv", "blocks", "labels.png", "map.json", "map.png", "overlay.png", "probabilities.tif"]


@pytest.fixture
def request_grey(model_files, tmp_path, small_pieces):  # noqa: ARG001
    """An image of 150x210 pixels that is mapped in six blocks."""
    Image.fromarray(patchwork(150, 210)[..., 0]).save(tmp_path / "a.png")
    return MapRequest(model_files / "grey.lmfcn", tmp_path / "a.png", tmp_path / "out", 24, 8, block=70)


@pytest.fixture
def small_pieces(monkeypatch):
    """Several patches and groups in a small image; only in this process, so not for tests with workers."""
    monkeypatch.setattr("lmfcn.maps.texture_map._PATCH", 96)
    monkeypatch.setattr("lmfcn.maps.texture_map._GROUP", 4)


def in_memory(request):
    pixels = np.asarray(Image.open(request.image))
    return lmfcn.load(request.model).map(pixels, request.window, request.stride)


def test_the_files_hold_what_one_pass_finds(request_grey):
    outcome = map_image(request_grey)
    expected = in_memory(request_grey)
    out = request_grey.output
    assert sorted(path.name for path in out.iterdir()) == OUTPUTS
    assert len(list((out / "blocks").glob("block-*.npy"))) == 6
    probabilities = tifffile.imread(out / "probabilities.tif")
    assert probabilities.dtype == np.float32
    assert np.array_equal(probabilities, expected.probabilities)
    with Image.open(out / "labels.png") as labels:
        assert labels.mode == "P"
        assert np.array_equal(np.asarray(labels), expected.probabilities.argmax(axis=2))
        assert labels.info["Comment"].startswith("0 calm; 1 rough; 2 uneven; 3 rejected")
    counted = {name: int((expected.at_pixels() == name).sum()) for name in ("calm", "rough", "uneven")}
    assert outcome.areas == {**counted, "rejected": 0, "glass": 0, "unreadable": 0, "none of these": 0}
    rows = list(csv.DictReader((out / "areas.csv").read_text().splitlines()))
    assert {row["label"]: int(row["pixels"]) for row in rows} == outcome.areas
    assert sum(float(row["share"]) for row in rows) == pytest.approx(1, abs=1e-5)
    about = json.loads((out / "map.json").read_text())
    assert (about["window"], about["stride"], about["rows"]) == (24, 8, expected.grid.rows)


def test_pictures_show_labels_in_their_places(request_grey):
    map_image(request_grey)
    numbers = np.searchsorted(["calm", "rough", "uneven"], in_memory(request_grey).at_pixels())
    with Image.open(request_grey.output / "labels.png") as labels:
        colours = np.array(labels.getpalette()[:9]).reshape(3, 3)
    with Image.open(request_grey.output / "map.png") as picture:
        shown = np.asarray(picture)[:366, :512]
    rows, columns = (np.arange(366) * 150 / 366).astype(int), (np.arange(512) * 210 / 512).astype(int)
    assert (shown == colours[numbers[rows[:, None], columns]]).all(axis=2).mean() > 0.98
    with Image.open(request_grey.output / "overlay.png") as picture:
        assert picture.width > 512
        assert picture.height == 366


@pytest.mark.parametrize("damage", [lambda _: b"", lambda old: old[:-100], lambda old: old[:300] + b"?" + old[301:]])
def test_a_damaged_block_is_computed_again(request_grey, damage):
    map_image(request_grey)
    before = (request_grey.output / "probabilities.tif").read_bytes()
    block = sorted((request_grey.output / "blocks").glob("block-*.npy"))[2]
    block.write_bytes(damage(block.read_bytes()))
    map_image(request_grey)
    assert (request_grey.output / "probabilities.tif").read_bytes() == before


def test_what_a_killed_process_left_unfinished_is_removed(request_grey):
    map_image(request_grey)
    before = sorted(request_grey.output.rglob("*"))
    for name in ("labels.png.123.part", "map.json.45.part", "blocks/block-0-0.npy.6.part"):
        (request_grey.output / name).write_bytes(b"half")
    (request_grey.output / "mine.7.part").write_bytes(b"of somebody else")
    map_image(request_grey)
    assert sorted(request_grey.output.rglob("*")) == sorted([*before, request_grey.output / "mine.7.part"])


def test_an_interrupted_map_goes_on(request_grey, monkeypatch):
    computed = []

    def counting(mapper, block):
        if len(computed) == 2:
            raise KeyboardInterrupt
        computed.append(block)
        return original(mapper, block)

    original, notes = BlockMapper.__call__, []
    monkeypatch.setattr(BlockMapper, "__call__", counting)
    with pytest.raises(KeyboardInterrupt):
        map_image(request_grey, announce=notes.append)
    assert notes == ["Stopped; 2 of 6 blocks are finished, the same command continues."]
    assert sorted(path.name for path in request_grey.output.iterdir()) == ["blocks"]
    first = computed.copy()
    computed[:] = []
    monkeypatch.setattr(
        BlockMapper, "__call__", lambda *arguments: computed.append(arguments[1]) or original(*arguments)
    )
    map_image(request_grey)
    assert len(computed) == 4
    assert not set(computed) & set(first)
    found = tifffile.imread(request_grey.output / "probabilities.tif")
    assert np.array_equal(found, in_memory(request_grey).probabilities)
    map_image(replace(request_grey, reject=0.6))  # needs no block anew
    assert len(computed) == 4


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"stride": 12}, "with stride 8 instead of 12"),
        ({"window": 32, "view": View(scale=0.9)}, "with window 24 instead of 32"),
        ({"view": View(scale=0.9)}, "with scale 1.0 instead of 0.9"),
        ({"block": 140}, "in other blocks"),
        ({"tissue": True}, "with another tissue mask, or without"),
    ],
)
def test_a_folder_with_another_map_is_refused_and_left_alone(request_grey, changes, difference):
    map_image(request_grey)
    before = contents(request_grey.output)
    with pytest.raises(ValueError, match=rf"out holds another map: {difference}; choose another folder with -o, or re"):
        map_image(replace(request_grey, **changes))
    assert contents(request_grey.output) == before


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_other_models_images_and_versions_are_refused(request_grey, tmp_path):
    map_image(request_grey)
    Image.fromarray(patchwork(150, 210)[..., 0]).save(tmp_path / "b.png")
    with pytest.raises(ValueError, match=r"out holds another map: of .*a\.png; choose"):
        map_image(replace(request_grey, image=tmp_path / "b.png"))
    other = lmfcn.load(request_grey.model)
    other.classes[0] = "still"
    save(other, tmp_path / "other.lmfcn")
    with pytest.raises(ValueError, match="another map: of another model; choose"):
        map_image(replace(request_grey, model=tmp_path / "other.lmfcn"))
    os.utime(request_grey.image, (1, 1))
    with pytest.raises(ValueError, match="another map: of the image before it was changed; choose"):
        map_image(request_grey)
    (request_grey.output / "blocks" / "settings.json").write_text("{")
    with pytest.raises(ValueError, match=r"another version of lmfcn; choose .* remove .*blocks to start again"):
        map_image(request_grey)


def test_files_of_two_maps_never_stand_side_by_side(request_grey, monkeypatch):
    map_image(request_grey)
    shutil.rmtree(request_grey.output / "blocks")
    monkeypatch.setattr(BlockMapper, "__call__", interrupted_at(BlockMapper.__call__, 1))
    with pytest.raises(KeyboardInterrupt):
        map_image(replace(request_grey, stride=12))
    assert sorted(path.name for path in request_grey.output.iterdir()) == ["blocks"]


def test_a_map_that_cannot_begin_costs_nothing(request_grey, monkeypatch):
    map_image(request_grey)
    shutil.rmtree(request_grey.output / "blocks")
    before = contents(request_grey.output)
    monkeypatch.setattr(BlockMapper, "__call__", interrupted_at(BlockMapper.__call__, 0))
    with pytest.raises(KeyboardInterrupt):
        map_image(replace(request_grey, stride=12))
    assert contents(request_grey.output) == before


def interrupted_at(original, number):
    calls = []

    def function(mapper, block):
        calls.append(block)
        if len(calls) > number:
            raise KeyboardInterrupt
        return original(mapper, block)

    return function


def test_without_map_json_files_are_not_complete(request_grey, monkeypatch):
    map_image(request_grey)

    def fail(*_):
        raise RuntimeError

    monkeypatch.setattr("lmfcn.maps.outputs.write_overlay", fail)
    with pytest.raises(RuntimeError):
        map_image(replace(request_grey, reject=0.6))
    assert not (request_grey.output / "map.json").exists()


def test_a_plain_image_is_decoded_once(request_grey, monkeypatch):
    decoded, read = [], images.read_image
    monkeypatch.setattr(images, "read_image", lambda path: decoded.append(path) or read(path))
    map_image(replace(request_grey, tissue=True))
    assert decoded == [request_grey.image]


def test_notes_come_before_the_work(request_grey, tmp_path, monkeypatch):
    model = lmfcn.load(request_grey.model)
    model.form = replace(model.form, preprocessing=Preprocessing(fit="resize", size=(24, 24)))
    save(model, tmp_path / "resized.lmfcn")
    notes = []

    def stop(*_):
        notes.append("work")
        raise KeyboardInterrupt

    monkeypatch.setattr(BlockMapper, "__call__", stop)
    with pytest.raises(KeyboardInterrupt):
        map_image(replace(request_grey, model=tmp_path / "resized.lmfcn"), announce=notes.append)
    assert notes[0].startswith("Note: The model was trained on images that had been resized to 24x24 pixels; if they")
    assert notes[1:] == ["work", "Stopped; 0 of 6 blocks are finished, the same command continues."]


MANY_SCALES = {"smallest": [112, 284], "largest": [606, 245]}


def test_a_model_of_many_scales_is_noted(request_grey, tmp_path):
    model = lmfcn.load(request_grey.model)
    model.form = replace(model.form, preprocessing=Preprocessing(fit="resize", size=(24, 24)))
    model.record["image_sizes"] = MANY_SCALES
    save(model, tmp_path / "resized.lmfcn")
    notes = []
    map_image(replace(request_grey, model=tmp_path / "resized.lmfcn"), announce=notes.append)
    assert notes == [
        "Note: The model was trained on images of 112x284 to 606x245 pixels (height x width), each resized to 24x24:"
        " it knows textures at many scales, but a map has one. Do not rely on this map. To train for maps, cut tiles of"
        " one size from images at the scale of the map (ImageCollection.tiled), and do not resize them."
    ]


def test_doubtful_windows_are_rejected(request_grey):
    expected = in_memory(request_grey).probabilities
    surest = expected.max(axis=2)
    threshold = float(surest.min() + surest.max()) / 2
    outcome = map_image(replace(request_grey, reject=threshold))
    with Image.open(request_grey.output / "labels.png") as labels:
        assert np.array_equal(np.asarray(labels) == 3, surest < threshold)
    assert 0 < outcome.areas["rejected"] < sum(outcome.areas.values())


@pytest.fixture
def request_slide(model_files, tmp_path, small_pieces):  # noqa: ARG001
    """A pyramid of two levels."""
    pixels = patchwork(200, 300, 3)
    with tifffile.TiffWriter(tmp_path / "slide.tif") as file:
        for step in (1, 2):
            reduced = np.ascontiguousarray(pixels[::step, ::step])
            options = {"tile": (64, 64), "photometric": "rgb", "compression": "deflate", "metadata": None}
            file.write(reduced, subfiletype=step - 1, **options)
    return MapRequest(model_files / "rgb.lmfcn", tmp_path / "slide.tif", tmp_path / "out", 24, 8, tissue=False)


def test_openslide_and_tifffile_give_the_same_map(request_slide, tmp_path):
    found = []
    for reader in ("tiff", "openslide"):
        map_image(replace(request_slide, view=View(reader, level=1), output=tmp_path / reader))
        found.append(tifffile.imread(tmp_path / reader / "probabilities.tif"))
    assert found[0].shape == ((100 - 24) // 8 + 1, (150 - 24) // 8 + 1, 3)
    assert np.array_equal(found[0], found[1])


def test_a_broken_tile_costs_its_windows_only(request_slide):
    map_image(request_slide)
    sound = tifffile.imread(request_slide.output / "probabilities.tif")
    with tifffile.TiffFile(request_slide.image) as tiff:
        offset, count = (entry[7] for entry in (tiff.pages[0].dataoffsets, tiff.pages[0].databytecounts))
    with request_slide.image.open("r+b") as file:
        file.seek(offset)
        file.write(bytes(count))
    request_slide = replace(request_slide, output=request_slide.output.with_name("broken"))
    outcome = map_image(request_slide)
    (sentence,) = outcome.missing  # the tile in the second row, third column
    assert sentence.startswith("rows 64-127, columns 128-191: ")
    found = tifffile.imread(request_slide.output / "probabilities.tif")
    rows, columns = (np.arange(count) * 8 for count in found.shape[:2])
    touched = ((rows < 128) & (rows + 24 > 64))[:, None] & ((columns < 192) & (columns + 24 > 128))
    assert np.isnan(found[touched]).all()
    # Beside it rounding may differ: neighbours have no part in a window, but their digits cancel.
    assert found[~touched] == pytest.approx(sound[~touched], abs=1e-5)
    assert outcome.areas["unreadable"] > 0
    assert map_image(request_slide).missing == outcome.missing


def test_glass_is_passed_over(request_slide, tmp_path):
    pixels = patchwork(150, 200, 3)
    pixels[..., 1] //= 2
    pixels[:, 100:] = 244
    Image.fromarray(pixels).save(tmp_path / "half.png")
    request = replace(request_slide, image=tmp_path / "half.png", tissue=True)
    outcome = map_image(request)
    found = tifffile.imread(request.output / "probabilities.tif")
    assert np.isnan(found[:, 14:]).all()
    assert np.array_equal(found[:, :8], in_memory(request).probabilities[:, :8])
    assert 0.4 < outcome.areas["glass"] / (150 * 200) < 0.55
    assert outcome.missing == []


def test_scaled_images(request_grey, tmp_path):
    with Image.open(request_grey.image) as picture:
        picture.resize((420, 300), Image.Resampling.NEAREST).save(tmp_path / "large.png")
    map_image(replace(request_grey, image=tmp_path / "large.png", view=View(scale=0.5)))
    about = json.loads((request_grey.output / "map.json").read_text())
    assert (about["image_height"], about["image_width"], about["scale"]) == (150, 210, 0.5)


def test_a_full_disk_is_one_sentence_and_leaves_no_partial_files(request_grey, monkeypatch):
    def full(path, content):
        path.with_name(path.name + ".part").write_bytes(content[:10])
        path.with_name(path.name + ".part").unlink()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("lmfcn.maps.blocks.write_bytes", full)
    with pytest.raises(
        OSError, match=r"No space is left for .*out; free some and run the same command again: finished"
    ):
        map_image(request_grey)
    assert [path.name for path in request_grey.output.rglob("*") if path.is_file()] == ["settings.json"]
    monkeypatch.undo()
    map_image(request_grey)
    assert sorted(path.name for path in request_grey.output.iterdir()) == OUTPUTS


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"window": 160}, "The window must fit into the image, got a window of 160 and an image of 150x210 pixels"),
        ({"stride": 0}, "stride must be a multiple of 4 pixels"),
        ({"reject": 1.5}, "reject must be a probability between 0 and 1, got 1.5"),
        ({"view": View(level=2)}, "a.png has one level, 0, got 2"),
        ({"view": View(scale=0.0)}, "scale must be positive, got 0"),
        ({"resolution": 0.5}, "does not contain its pixel size"),
    ],
)
def test_bad_requests_write_nothing(request_grey, changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        map_image(replace(request_grey, **changes))
    assert not request_grey.output.exists()


def test_a_model_for_other_channels(request_grey, model_files):
    with pytest.raises(ValueError, match=r"a.png has 1 channel of uint8, but the model was trained on images with 3"):
        map_image(replace(request_grey, model=model_files / "rgb.lmfcn"))
    assert not request_grey.output.exists()


def test_a_resolution_finer_than_the_file_is_noted(request_grey, tmp_path):
    pixels = patchwork(80, 90)[..., 0]
    tifffile.imwrite(tmp_path / "a.tif", pixels, resolution=(40000, 40000), resolutionunit="CENTIMETER")
    notes, request = [], replace(request_grey, image=tmp_path / "a.tif", resolution=0.125)
    map_image(request, announce=notes.append)
    assert notes == [
        "Note: The finest pixels in the file are 0.25 micrometres wide; for a resolution of 0.125 the image is enlarged"
        " 2 times, which adds no detail."
    ]
    rows = list(csv.DictReader((request.output / "areas.csv").read_text().splitlines()))
    assert sum(float(row["square_millimetres"]) for row in rows) == pytest.approx(80 * 90 * 0.25**2 / 1e6, rel=1e-3)


@pytest.fixture
def large_request(model_files, tmp_path):
    """An image of 300x600 pixels that is mapped in six blocks."""
    Image.fromarray(patchwork(300, 600)[..., 0]).save(tmp_path / "a.png")
    return MapRequest(model_files / "grey.lmfcn", tmp_path / "a.png", tmp_path / "out", 24, 8, block=256)


@pytest.fixture
def expected(large_request, tmp_path):
    map_image(replace(large_request, output=tmp_path / "one"), jobs=1)
    return tifffile.imread(tmp_path / "one" / "probabilities.tif")


def test_the_number_of_processes_does_not_change_a_bit(large_request, expected):
    map_image(large_request, jobs=2)
    assert len(list(large_request.output.glob("blocks/*.npy"))) == 6
    assert np.array_equal(tifffile.imread(large_request.output / "probabilities.tif"), expected)


def test_a_block_that_kills_its_processes_is_reported_and_the_rest_is_mapped(large_request, expected, monkeypatch):
    deadly = Box(0, 32, 32, 64)
    monkeypatch.setattr(run, "BlockMapper", lambda *arguments: pieces.DeadlyMapper(BlockMapper(*arguments), deadly))
    outcome = map_image(large_request, jobs=2)
    (sentence,) = outcome.missing
    assert sentence.startswith("rows 0-271, columns 256-527: every process that worked on it died; the likeliest")
    assert outcome.areas["unreadable"] > 0
    expected[deadly.slices] = np.nan
    found = tifffile.imread(large_request.output / "probabilities.tif")
    assert np.array_equal(found, expected, equal_nan=True)
    monkeypatch.undo()
    assert map_image(large_request).missing == []  # tried again


def test_a_mapper_that_was_used_can_be_passed_on(large_request):
    with tifffile.TiffWriter(large_request.image.with_suffix(".tif")) as file:
        file.write(patchwork(300, 600)[..., 0], tile=(64, 64))
    settings = MapSettings(24, 8, View("tiff"))
    mapper = BlockMapper(load(large_request.model), large_request.image.with_suffix(".tif"), settings)
    first = mapper(Box(0, 0, 8, 8)).probabilities
    again = pickle.loads(pickle.dumps(mapper))
    assert np.array_equal(again(Box(0, 0, 8, 8)).probabilities, first)
