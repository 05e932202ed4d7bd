import csv
import errno
import json

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from large_images import break_tile, quarters, save_model, save_pyramid
from lmfcn.data.framing import Preprocessing
from lmfcn.data.image_form import ImageForm
from lmfcn.maps.blocks import BlockMapper
from lmfcn.maps.geojson import signed_area
from lmfcn.model import TypicalDistances
from lmfcn.model_file import load, save
from random_models import random_model

WRITTEN = ["areas.csv", "labels.png", "map.json", "map.png", "overlay.png", "probabilities.tif"]


@pytest.fixture(scope="module")
def model_path(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model") / "model.lmfcn")


@pytest.fixture(scope="module")
def image_path(tmp_path_factory):
    """An image of three levels; tests must not change it."""
    return save_pyramid(tmp_path_factory.mktemp("image") / "image.tif", quarters(330, 410))


@pytest.fixture
def mapped(command, model_path, tmp_path):
    """Map an image into `tmp_path / "out"`; return the exit code and what was printed."""

    def run_map(image, *options):
        return command("map", model_path, image, "-o", tmp_path / "out", "--window", 32, *options)

    run_map.command = command
    return run_map


def written(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_file()) if folder.exists() else []


def test_other_programs_get_regions_and_an_image_of_the_labels(mapped, model_path, image_path, tmp_path):
    code, out, err = mapped(image_path, "--stride", 16, "--level", 1, "--geojson", "--ome-tiff")
    assert code == 0, err
    assert "areas.csv, regions.geojson, labels.ome.tif" in out
    areas = {
        row["label"]: int(row["pixels"])
        for row in csv.DictReader((tmp_path / "out" / "areas.csv").read_text().splitlines())
    }
    content = json.loads((tmp_path / "out" / "regions.geojson").read_text())
    found = dict.fromkeys(areas, 0.0)
    for feature in content["features"]:
        found[feature["properties"]["classification"]["name"]] += sum(
            map(signed_area, feature["geometry"]["coordinates"])
        )
    # Level 1 has half as many pixels in both directions; polygons are in those of level 0.
    assert found == pytest.approx({name: 4 * area for name, area in areas.items()})
    corners = np.concatenate([ring for feature in content["features"] for ring in feature["geometry"]["coordinates"]])
    assert corners.max(axis=0).tolist() == [410, 330]
    with tifffile.TiffFile(tmp_path / "out" / "labels.ome.tif") as file:
        labels, metadata = file.asarray(), file.ome_metadata
    whole = load(model_path).map(quarters(330, 410)[::2, ::2], window=32, stride=16)
    assert labels.shape == (11, 13)
    names = np.array(["coarse", "fine", "flat"])
    # Its 11 and 13 pixels cover the 165 and 205 of the level.
    assert names[labels[5, 6]] == whole.at_pixels()[82, 102]
    assert names[labels[0, 12]] == whole.at_pixels()[7, 197]
    assert "0 coarse; 1 fine; 2 flat" in metadata


def test_windows_that_look_like_no_class_get_no_label(mapped, model_path, image_path, tmp_path):
    _, _, err = mapped(image_path, "--none-of-these", 0.1)
    assert "does not know how far images of its classes may be" in err
    model = load(model_path)
    image = quarters(330, 410)
    features = model.transform(np.stack([image[:32, :32], image[200:232, 300:332]]))
    centres, near = torch.from_numpy(features[:1]), torch.full((19,), 1e-6, dtype=torch.float64)
    model.typical = TypicalDistances(centres.repeat(3, 1).float(), near)
    save(model, tmp_path / "known.lmfcn")
    options = ("--window", 32, "-o", tmp_path / "known", "--none-of-these", 0.05)
    code, out, err = mapped.command("map", tmp_path / "known.lmfcn", image_path, *options)
    assert code == 0, err
    with Image.open(tmp_path / "known" / "labels.png") as picture:
        labels = np.asarray(picture)
    assert labels[0, 0] < 3
    assert labels[12, 18] == 6
    assert "none of these" in out
    assert tifffile.imread(tmp_path / "known" / "probabilities.tif").shape[2] == 3
    code, _, err = mapped.command("map", tmp_path / "known.lmfcn", image_path, *options[:-2])
    assert (code, "holds another map: with --none-of-these" in err) == (2, True)


def test_the_files_hold_what_the_model_says(mapped, model_path, image_path, tmp_path):
    code, out, err = mapped(image_path, "--stride", 16)
    assert code == 0, err
    assert written(tmp_path / "out") == WRITTEN
    whole = load(model_path).map(quarters(330, 410), window=32, stride=16)
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "out" / "probabilities.tif"), whole.probabilities)
    with Image.open(tmp_path / "out" / "labels.png") as picture:
        assert picture.mode == "P"
        np.testing.assert_array_equal(np.asarray(picture), whole.probabilities.argmax(axis=2))
    rows = list(csv.DictReader((tmp_path / "out" / "areas.csv").read_text().splitlines()))
    labels = whole.at_pixels()
    assert {row["label"]: int(row["pixels"]) for row in rows if row["pixels"] != "0"} == {
        label: int((labels == label).sum()) for label in np.unique(labels)
    }
    assert all(label in out for label in np.unique(labels))


def test_doubtful_windows_are_rejected(mapped, image_path, tmp_path):
    assert mapped(image_path, "--stride", 32, "--reject", 0.9, "--quiet")[0] == 0
    likeliest = tifffile.imread(tmp_path / "out" / "probabilities.tif").max(axis=2)
    with Image.open(tmp_path / "out" / "labels.png") as picture:
        shown = np.asarray(picture)
    assert 0 < (likeliest < 0.9).sum() < likeliest.size
    np.testing.assert_array_equal(shown == 3, likeliest < 0.9)
    assert json.loads((tmp_path / "out" / "map.json").read_text())["reject"] == 0.9


@pytest.mark.parametrize("where", ["jobs", "cluster"])
def test_two_processes_come_to_the_same(where, mapped, monkeypatch, model_path, cluster, tmp_path):
    monkeypatch.setattr("lmfcn.maps.texture_map._BLOCK_PIXELS", 1024)
    tall = save_pyramid(tmp_path / "tall.tif", quarters(1100, 64))
    places = ("--jobs", 2) if where == "jobs" else ("--scheduler", cluster.grow_to(2))
    code, _, err = mapped(tall, "--stride", 32, *places, "--quiet")
    assert code == 0, err
    assert len(list((tmp_path / "out" / "blocks").glob("*.npy"))) == 2
    whole = load(model_path).map(quarters(1100, 64), window=32, stride=32)
    # Processes that share the cores have fewer threads each, which may round otherwise.
    found = tifffile.imread(tmp_path / "out" / "probabilities.tif")
    np.testing.assert_allclose(found, whole.probabilities, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(found.argmax(axis=2), whole.probabilities.argmax(axis=2))


@pytest.fixture
def small_blocks(monkeypatch):
    """Several blocks in a small image; returns the list of those that are computed."""
    computed, whole = [], BlockMapper.__call__
    monkeypatch.setattr("lmfcn.maps.texture_map._BLOCK_PIXELS", 128)
    monkeypatch.setattr("lmfcn.maps.texture_map._GROUP_PIXELS", 128)

    def counted(mapper, block):
        if len(computed) == 2:
            computed.append("stopped")
            raise KeyboardInterrupt
        computed.append(block)
        return whole(mapper, block)

    monkeypatch.setattr(BlockMapper, "__call__", counted)
    return computed


def test_an_interrupted_map_goes_on(mapped, small_blocks, model_path, image_path, tmp_path):
    code, out, err = mapped(image_path, "--stride", 32)
    assert (code, out) == (130, "")
    assert "Stopped; 2 of 4 blocks are finished, the same command continues.\n" in err
    assert written(tmp_path / "out") == []
    assert mapped(image_path, "--stride", 32)[0] == 0
    computed = [block for block in small_blocks if block != "stopped"]
    assert len(computed) == len(set(computed)) > 3
    whole = load(model_path).map(quarters(330, 410), window=32, stride=32)
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "out" / "probabilities.tif"), whole.probabilities)


def test_a_folder_with_another_map_is_refused(mapped, image_path, tmp_path):
    assert mapped(image_path, "--stride", 32)[0] == 0
    code, _, err = mapped(image_path, "--stride", 16)
    out = tmp_path / "out"
    sentence = "with stride 32 instead of 16; choose another folder with -o, or remove"
    assert (code, err) == (2, f"Error: {out} holds another map: {sentence} {out / 'blocks'} to start again.\n")
    assert written(out) == WRITTEN
    assert tifffile.imread(out / "probabilities.tif").shape == (10, 12, 3)


def test_names_are_shown_as_they_are_and_notes_go_to_standard_error(command, image_path, tmp_path):
    frame = Preprocessing(fit="resize", size=(32, 32))
    names = ["[bold]wood", "a[/b]", "glass"]
    save(random_model(names, ImageForm(3, "uint8", frame), ("last",)), tmp_path / "odd.lmfcn")
    code, out, err = command("map", tmp_path / "odd.lmfcn", image_path, "--stride", 32)
    assert code == 0
    assert all(f"│ {name} " in out for name in names)
    assert "(no class)" not in out
    assert "Note: The model was trained on images that had been resized to 32x32 pixels" in err
    assert "Note" not in out
    code, quiet, err = command("map", tmp_path / "odd.lmfcn", image_path, "--stride", 32, "--quiet")
    assert (code, quiet, err) == (0, out, "")


def test_a_broken_tile_is_named_and_the_rest_is_mapped(mapped, tmp_path):
    broken = save_pyramid(tmp_path / "broken.tif", quarters(330, 410))
    break_tile(broken, 5)  # of four in a row
    code, out, err = mapped(broken, "--stride", 32)
    assert code == 1
    assert "rows 128-255, columns 128-255: " in err
    assert "unreadable" in out
    assert written(tmp_path / "out") == WRITTEN
    assert np.isnan(tifffile.imread(tmp_path / "out" / "probabilities.tif")[..., 0]).sum() == 16


def test_a_full_disk_leaves_no_half_files(mapped, monkeypatch, image_path, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("lmfcn.util.files.os.fsync", full)
    code, _, err = mapped(image_path, "--stride", 32)
    assert code == 2
    assert "No space is left for" in err
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--level", 3], "has 3 levels, 0 (the finest) to 2, got 3."),
        (["--stride", 6], "--stride must be a multiple of 4 pixels"),
        (["--stride", 64], "--stride must not be larger than the window"),
        (["--window", 512], "The window must fit into the image, got a window of 512 and an image of 330x410 pixels"),
        (["--window", 30], "--window must be a multiple of 4 pixels"),
        (["--reject", 1.5], "--reject must be a probability between 0 and 1, got 1.5."),
        (["--reader", "word"], "word"),
        (["--resolution", 0.5], "does not contain its pixel size"),
    ],
)
def test_options_that_cannot_be(mapped, image_path, tmp_path, options, sentence):
    code, _, err = mapped(image_path, *options)
    assert code == 2
    assert sentence in err
    assert written(tmp_path / "out") == []


def test_images_that_cannot_be(command, model_path, image_path, tmp_path):
    code, _, err = command("map", model_path, tmp_path / "nothing.tif")
    assert (code, err) == (2, f"Error: {tmp_path / 'nothing.tif'} does not exist or is not a file.\n")
    (tmp_path / "text.tif").write_text("no image")
    code, _, err = command("map", model_path, tmp_path / "text.tif")
    assert (code, "text.tif: is not an image of a known format" in err) == (2, True)
    code, _, err = command("map", image_path, image_path)
    assert (code, "is not in the safetensors format" in err) == (2, True)


def test_an_output_that_is_a_file(command, model_path, image_path, tmp_path):
    (tmp_path / "out.png").write_text("mine")
    code, _, err = command("map", model_path, image_path, "-o", tmp_path / "out.png")
    assert (code, f"{tmp_path / 'out.png'} is a file; give the name of a folder." in err) == (2, True)
    assert (tmp_path / "out.png").read_text() == "mine"


def test_channels_that_do_not_fit(command, image_path, tmp_path):
    grey = save_model(tmp_path / "grey.lmfcn", channels=1)
    code, _, err = command("map", grey, image_path)
    assert code == 2
    assert "has 3 channels of uint8, but the model was trained on images with 1 channel of uint8" in err
    assert not (tmp_path / "map").exists()


def test_colours_become_grey_as_in_training_or_are_refused(command, image_path, tmp_path):
    save(random_model(["x", "y"], ImageForm(1, "uint8", Preprocessing("grey")), ("last",)), tmp_path / "grey.lmfcn")
    options = ("--window", 32, "--stride", 32, "--quiet")
    assert command("map", tmp_path / "grey.lmfcn", image_path, *options)[0] == 0
    pixels = np.zeros((64, 64, 6), np.uint8)
    tifffile.imwrite(tmp_path / "six.tif", pixels, photometric="minisblack", planarconfig="contig", tile=(32, 32))
    code, _, err = command("map", tmp_path / "grey.lmfcn", tmp_path / "six.tif", *options)
    assert code == 2
    assert "an image with 6 channels cannot become grey" in err
