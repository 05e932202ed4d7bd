import csv
import errno
import json
from dataclasses import replace

import numpy as np
import pytest
import tifffile
from PIL import Image

import lmfcn
from lmfcn.mapping import run
from lmfcn.mapping.opening import View
from lmfcn.mapping.run import MapRequest, map_image
from patchwork import patchwork

OUTPUTS = ["areas.csv", "blocks", "labels.png", "map.json", "map.png", "overlay.png", "probabilities.tif"]


@pytest.fixture
def request_grey(model_files, tmp_path):
    """An image of 150x210 pixels that is mapped in six blocks."""
    Image.fromarray(patchwork(150, 210)[..., 0]).save(tmp_path / "a.png")
    return MapRequest(model_files / "grey.lmfcn", tmp_path / "a.png", tmp_path / "out", 24, 8, block=70)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr("lmfcn.inference.map_grid._PATCH", 96)
    monkeypatch.setattr("lmfcn.inference.map_grid._GROUP", 4)


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
    assert outcome.areas == {**counted, "rejected": 0, "glass": 0, "unreadable": 0}
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


def test_an_interrupted_map_goes_on(request_grey, monkeypatch):
    computed = []

    def counting(model, image, block, settings):
        if len(computed) == 2:
            raise KeyboardInterrupt
        computed.append(block)
        return original(model, image, block, settings)

    original = run.map_block
    monkeypatch.setattr(run, "map_block", counting)
    with pytest.raises(KeyboardInterrupt):
        map_image(request_grey)
    assert sorted(path.name for path in request_grey.output.iterdir()) == ["blocks"]
    first = computed.copy()
    computed[:] = []
    monkeypatch.setattr(run, "map_block", lambda *a: computed.append(a[2]) or original(*a))
    map_image(request_grey)
    assert len(computed) == 4
    assert not set(computed) & set(first)
    found = tifffile.imread(request_grey.output / "probabilities.tif")
    assert np.array_equal(found, in_memory(request_grey).probabilities)
    map_image(replace(request_grey, reject=0.6))  # needs no block anew
    assert len(computed) == 4


def test_other_settings_start_anew(request_grey):
    map_image(request_grey)
    changed = replace(request_grey, stride=12)
    outcome = map_image(changed)
    assert outcome.notes == ["Model, image or options had changed: blocks of the former run were not used."]
    found = tifffile.imread(request_grey.output / "probabilities.tif")
    assert np.array_equal(found, in_memory(changed).probabilities)


def test_doubtful_windows_are_rejected(request_grey):
    expected = in_memory(request_grey).probabilities
    threshold = float(np.median(expected.max(axis=2)))
    outcome = map_image(replace(request_grey, reject=threshold))
    with Image.open(request_grey.output / "labels.png") as labels:
        assert np.array_equal(np.asarray(labels) == 3, expected.max(axis=2) < threshold)
    assert outcome.areas["rejected"] > 0


@pytest.fixture
def request_slide(model_files, tmp_path):
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


def test_a_full_disk_is_told_in_a_sentence_and_nothing_is_half_written(request_grey, monkeypatch):
    def full(path, content):
        path.with_name(path.name + ".part").write_bytes(content[:10])
        path.with_name(path.name + ".part").unlink()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("lmfcn.mapping.blocks.write_bytes", full)
    with pytest.raises(OSError, match=r"No space is left for .*out; free some and run the same again: finished blocks"):
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
        ({"resolution": 0.5}, "does not say how large its pixels are"),
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
