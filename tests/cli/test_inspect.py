import json
import re

import numpy as np
from PIL import Image
from small_images import FAST, save_images
from test_cli import lmfcn


def test_inspect_tells_and_judges(tmp_path, random):
    for i in range(8):
        path = tmp_path / ("bark" if i % 2 else "wood") / f"{i}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(random.integers(0, 255, (16, 16)).astype(np.uint8)).save(path)
    result = lmfcn("inspect", tmp_path)
    assert result.returncode == 0
    for text in ("8 images, 2 classes", "bark", "16x16 (8)", "PNG (8)", "Fit for training."):
        assert text in result.stdout
    (tmp_path / "wood" / "bad.png").write_bytes(b"")
    result = lmfcn("inspect", tmp_path, "--quiet")
    assert result.returncode == 1
    assert "bad.png: is empty (0 bytes)" in result.stdout
    assert "Not fit for training." in result.stdout
    assert result.stderr == ""


def test_inspect_of_nothing_ends_with_code_2(tmp_path):
    result = lmfcn("inspect", tmp_path / "nothing")
    assert result.returncode == 2
    assert "does not exist" in result.stderr


def test_the_next_step_is_told_and_odd_names_are_shown_as_they_are(command, tmp_path):
    save_images(tmp_path / "my trees", n_per_class=3)
    (tmp_path / "my trees" / "bark").rename(tmp_path / "my trees" / "[red]oak")
    code, out, err = command("inspect", "my trees")
    assert code == 0
    assert "[red]oak" in out
    *before, forecast, proposed = err.splitlines()
    assert before == ["Reading headers: 6", "Comparing images: 6"]
    assert re.match(r"Training on this machine: at most about .* GB of memory with texture-fcn", forecast)
    assert proposed == "Next: lmfcn train 'my trees' -o model.lmfcn"


def test_inspect_as_json_is_all_there_is(command, tmp_path):
    save_images(tmp_path / "trees", n_per_class=3)
    (tmp_path / "trees" / "bark" / "bad.png").write_bytes(b"")
    code, out, err = command("inspect", "trees", "--json", "--quiet")
    found = json.loads(out)
    assert (code, err) == (1, "")
    assert found["classes"] == {"bark": 3, "wood": 3}
    assert found["sizes"] == {"16x16": 6}
    assert found["fit_for_training"] is False
    assert len(found["unreadable"]) == 1


def spoil(folder, random):
    """Add a colour image, a file that cannot be read, and a copy under another label."""
    color = random.integers(0, 256, (20, 16, 3), dtype=np.uint8)
    Image.fromarray(color).save(folder / "bark" / "color.png")
    (folder / "bark" / "bad.png").write_bytes(b"")
    (folder / "wood" / "copy.png").write_bytes((folder / "bark" / "0.png").read_bytes())
    (folder / "bark" / "a copy.png").write_bytes((folder / "bark" / "1.png").read_bytes())


def test_the_proposed_command_works(command, tmp_path, random):
    save_images(tmp_path / "trees", n_per_class=4)
    spoil(tmp_path / "trees", random)
    code, out, err = command("inspect", "trees")
    assert code == 1
    assert "sizes (width x height): 16x16 (10), 16x20 (1)" in out
    assert "Problem: Images differ in channels (1, 3); give --color grey or rgb." in out
    assert "Problem: 1 file cannot be read; repair or remove them." in out
    lines = out.splitlines()
    first = lines[lines.index("groups of duplicates (2):") + 1]
    assert first == "  trees/bark/0.png and trees/wood/copy.png (identical files, different labels: bark, wood)"
    proposed = err.splitlines()[-1]
    assert proposed == "Next: lmfcn train trees --skip-bad --color rgb -o model.lmfcn"
    code, *_ = command(*proposed.removeprefix("Next: lmfcn ").split(), *FAST, "--no-report", "--network", "texture-fcn")
    assert code == 0


def test_the_image_options_of_train_are_understood(command, tmp_path, random):
    save_images(tmp_path / "trees", n_per_class=4)
    spoil(tmp_path / "trees", random)
    code, out, err = command("inspect", "trees", "--color", "rgb", "--skip-bad", "--size", "16")
    assert (code, out.splitlines()[-1]) == (0, "Fit for training.")
    assert err.endswith("Next: lmfcn train trees --size 16 --color rgb --skip-bad -o model.lmfcn\n")
    assert "Size: 11 images of 16x16 to 20x16 pixels (height x width) scaled and cut to 16x16\n" in err
    code, _, err = command("inspect", "trees", "--color", "blue")
    assert code == 2
    assert "--color must be" in err


def test_nothing_is_proposed_where_no_option_helps(command, tmp_path):
    save_images(tmp_path / "trees", n_per_class=2)
    code, _, err = command("inspect", "trees")
    assert code == 1
    assert "Next" not in err


def test_a_few_groups_of_duplicates_are_shown_and_all_are_counted(command, tmp_path, random):
    images = np.repeat(random.integers(0, 256, (7, 16, 16), dtype=np.uint8), 10, axis=0)
    np.savez(tmp_path / "copies.npz", images=images, labels=np.arange(70) // 10 % 2)
    code, out, _ = command("inspect", "copies.npz", "--quiet")
    lines = out.splitlines()
    start = lines.index("groups of duplicates (7):")
    assert code == 0
    assert lines[start + 1] == "  image 0, image 1, image 2 and 7 more (identical files)"
    assert lines[start + 5 : start + 7] == [
        "  image 40, image 41, image 42 and 7 more (identical files)",
        "  ... and 2 more",
    ]
    note = (
        "Images that are the same as another or nearly the same: 70 in 7 groups. They stay on one side of every split."
    )
    assert f"Note: {note}" in lines
    code, out, _ = command("inspect", "copies.npz", "--quiet", "--json")
    assert len(json.loads(out)["duplicates"]) == 7


def test_json_holds_the_command_and_its_time(command, tmp_path):
    save_images(tmp_path / "trees", n_per_class=4)
    code, out, err = command("inspect", "trees", "--json", "--quiet", "--size", "16", "--fit", "pad")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["command"] == "lmfcn train trees --size 16 --fit pad -o model.lmfcn"
    assert found["training"]["texture-fcn"]["seconds"] > 0
    assert found["training"]["texture-fcn"]["memory_bytes"] > 10**7
    code, out, _ = command("inspect", "trees", "--json", "--quiet", "--headers-only")
    assert json.loads(out)["training"] == {}
