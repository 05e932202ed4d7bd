import json

import pytest
import torch
from PIL import Image
from small_images import FAST

from lmfcn.cli.options import name_options
from lmfcn.compute.resources import available_devices, why_no_cuda
from pretend_device import pretended

MISSING = "cuda:77"
SENTENCE = f"Error: --device must be 'auto' or an available device ({', '.join(available_devices())}), got 'cuda:77'."
if not torch.cuda.is_available():
    SENTENCE += name_options(why_no_cuda(), {"--device"})


@pytest.fixture(scope="module")
def large(trees, tmp_path_factory):
    """An image to map: one of the small ones, enlarged."""
    path = tmp_path_factory.mktemp("large") / "large.png"
    Image.open(next(trees.rglob("*.png"))).resize((96, 80)).save(path)
    return path


def arguments(name, model, trees, large):
    image = next(trees.rglob("*.png"))
    return {
        "train": ["train", trees, "-o", "new.lmfcn", *FAST],
        "predict": ["predict", model, trees, "-o", "rows.csv"],
        "predict in processes": ["predict", model, trees, "-o", "rows.csv", "--jobs", 2],
        "map": ["map", model, large, "--window", 32],
        "map in a process": ["map", model, large, "--window", 32, "--jobs", 1],
        "explain": ["explain", model, image],
        "evaluate": ["evaluate", model, trees, "--csv", "rows.csv"],
        "serve": ["serve", model, "--port", 0],
        "audit": ["audit", trees, "--model", model],
        "quick audit": ["audit", trees, "--quick"],
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        "train",
        "predict",
        "predict in processes",
        "map",
        "map in a process",
        "explain",
        "evaluate",
        "serve",
        "audit",
        "quick audit",
    ],
)
def test_a_device_that_is_not_there_is_one_sentence_and_leaves_nothing(name, command, model, trees, large, tmp_path):
    code, _, error = command(*arguments(name, model, trees, large), "--device", MISSING)
    assert (code, error.strip().splitlines()[-1]) == (2, SENTENCE)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("device", ["mps:0", "cuda:0"])
def test_commands_say_on_a_device_what_they_say_on_the_cpu(device, command, model, trees, large):
    def results(name):
        labels = command("predict", model, trees, "--format", "csv", "--device", name)[1]
        stdout = json.loads(command("evaluate", model, trees, "--part", "all", "--json", "--device", name)[1])
        explained = json.loads(command(*arguments("explain", model, trees, large), "--json", "--device", name)[1])
        code, areas, _ = command(*arguments("map", model, trees, large), "-o", name.replace(":", ""), "--device", name)
        assert code == 0
        return [line.split(",")[:2] for line in labels.splitlines()], stdout["confusion"], explained[0]["label"], areas

    with pretended(device):
        there = results(device)
    *expected, areas = results("cpu")
    assert list(there[:-1]) == expected
    assert there[-1].split("Map:")[0] == areas.split("Map:")[0]
