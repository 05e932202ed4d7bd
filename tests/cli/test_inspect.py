import json

import numpy as np
from PIL import Image
from small_images import save_images
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
    assert err.splitlines() == [
        "Reading headers: 6",
        "Comparing images: 6",
        "Next: lmfcn train 'my trees' -o model.lmfcn",
    ]


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
