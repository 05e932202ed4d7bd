"""Strokes on a large image: the file that keeps them, and the windows under them."""

import json

import numpy as np
import pytest

from lmfcn.label.lattice import MOST_UNDER_STROKE, Lattice, along, centres_under, distances_to
from lmfcn.label.strokes import StrokeFile, make_stroke
from lmfcn.maps.texture_map import Box

SIZE = (100, 200)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.png.strokes.jsonl"


def opened(path):
    return StrokeFile(path, "a.png", SIZE)


def stroke(label, *points):
    return make_stroke(label, 8, points or [(10, 10), (30, 10)], SIZE)


def labels(file):
    return [stroke.label for stroke in file.actions]


def test_strokes_and_undo_are_there_again(path):
    with opened(path) as file:
        for name in ("wood", "stone", ""):
            file.add(stroke(name))
        assert file.undo()
        assert labels(file) == ["wood", "stone"]
    header, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert header == {"strokes_on": "a.png", "width": 200, "height": 100}
    assert [line.get("label") for line in lines] == ["wood", "stone", "", None]
    assert lines[0]["points"] == [[10.0, 10.0], [30.0, 10.0]]
    with opened(path) as again:
        assert labels(again) == ["wood", "stone"]
        assert again.undo()
        assert again.undo()
        assert not again.undo()
        assert again.classes == ["wood", "stone"]  # so that colours and keys stay
        assert again.problems == []
    assert not list(path.parent.glob("*.lock"))


def test_a_kill_costs_at_most_the_line_that_was_being_written(path):
    with opened(path) as file:
        file.add(stroke("wood"))
        file.add(stroke("stone"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with opened(path) as file:
        assert labels(file) == ["wood"]
        assert file.problems == ["a.png.strokes.jsonl, line 3: It ends in the middle. The line is left out."]
        file.add(stroke("brick"))
    with opened(path) as file:
        assert labels(file) == ["wood", "brick"]
        assert file.problems == []
    path.write_bytes(whole[:-1])  # only the end of the line is missing
    with opened(path) as file:
        assert labels(file) == ["wood", "stone"]
        file.add(stroke("brick"))
        assert labels(file) == ["wood", "stone", "brick"]
    with opened(path) as file:
        assert labels(file) == ["wood", "stone", "brick"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[1, 2]", "It is not an object in JSON."),
        ("{oops", "It is not an object in JSON."),
        ('{"label": 5, "size": 8, "points": [[1, 1]]}', "The label of a stroke must be a text, got 5."),
        ('{"label": "a/b", "size": 8, "points": [[1, 1]]}', "A class name must have 1 to 100"),
        ('{"label": "a", "size": -1, "points": [[1, 1]]}', "The size of a brush must be a number of pixels up to"),
        ('{"label": "a", "size": true, "points": [[1, 1]]}', "The size of a brush must be a number"),
        ('{"label": "a", "size": 8, "points": [[1]]}', "A stroke must have 1 to 20000 points"),
        ('{"label": "a", "size": 8, "points": []}', "A stroke must have 1 to 20000 points"),
        ('{"label": "a", "size": 8, "points": [[NaN, 1]]}', "A stroke must have 1 to 20000 points"),
        ('{"label": "a", "size": 8, "points": [[500, 1]]}', "A stroke must touch the image of 200x100 pixels"),
    ],
)
def test_lines_with_mistakes_are_named_and_left_out(path, line, reason):
    with opened(path) as file:
        file.add(stroke("wood"))
    before = path.read_text()
    path.write_text(before + line + "\n" + before.splitlines()[1] + "\n")
    with opened(path) as file:
        assert labels(file) == ["wood", "wood"]
        assert len(file.problems) == 1
        assert file.problems[0].startswith(f"a.png.strokes.jsonl, line 3: {reason}")
    assert line in path.read_text()  # nothing that somebody wrote is removed


def test_files_of_something_else_are_refused(path):
    path.write_text("path,label\n")
    with pytest.raises(ValueError, match=r'must start with a line such as {"strokes_on": "a.png"'):
        opened(path)
    path.write_text('{"strokes_on": "b.png", "width": 5, "height": 6}\n')
    with pytest.raises(ValueError, match="holds strokes on an image of 5x6 pixels"):
        opened(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="must be a text in UTF-8"):
        opened(path)
    path.unlink()
    with opened(path), pytest.raises(ValueError, match="is open in another lmfcn label"):
        opened(path)


def test_windows_lie_along_a_stroke_and_across_a_wide_one():
    line = np.array([[10.0, 50.0], [50.0, 50.0]])
    assert centres_under(line, 4, 20).tolist() == [[10, 50], [20, 50], [30, 50], [40, 50], [50, 50]]
    wide = centres_under(line, 60, 20)
    assert distances_to(line, wide).max() <= 20  # windows of a wide brush lie inside it
    assert {tuple(point) for point in centres_under(line, 4, 20).tolist()} <= {tuple(p) for p in wide.tolist()}
    apart = np.hypot(*(wide[:, None] - wide).transpose(2, 0, 1))
    assert apart[~np.eye(len(wide), dtype=bool)].min() >= 9
    assert len(centres_under(np.array([[0.0, 0.0], [9000.0, 0.0]]), 4, 20)) == MOST_UNDER_STROKE
    assert centres_under(np.array([[3.0, 4.0]]), 4, 20).tolist() == [[3, 4]]


def test_places_on_a_path_and_distances_to_it_equal_a_search_in_small_steps():
    path = np.random.default_rng(0).uniform(0, 50, (6, 2))
    fine = along(path, 0.01)
    points = np.random.default_rng(1).uniform(0, 50, (20, 2))
    slow = np.array([np.hypot(*(fine - point).T).min() for point in points])
    np.testing.assert_allclose(distances_to(path, points), slow, atol=0.02)
    steps = np.hypot(*np.diff(along(path, 5.0), axis=0).T)
    assert (steps <= 5 + 1e-9).all()


def test_cells_cover_the_image_once_at_every_level():
    lattice = Lattice(height=90, width=130, window=16)
    whole = Box(0, 0, 90, 130)
    for level in range(4):
        corners = lattice.corners(whole, level)
        assert len(corners) == np.prod(lattice.shape(level))
        assert (corners >= 0).all()
        assert (corners + 16 <= (90, 130)).all()
        cells = [lattice.cell((row, column), level) for row, column in corners.tolist()]
        assert sum((right - left) * (bottom - top) for left, top, right, bottom in cells) == 90 * 130
        if level:
            finer = {tuple(corner) for corner in lattice.corners(whole, level - 1).tolist()}
            assert {tuple(corner) for corner in corners.tolist()} <= finer
    view = Box(30, 40, 60, 70)
    shown = [lattice.cell((r, c), 1) for r, c in lattice.corners(view, 1).tolist()]
    assert min(cell[0] for cell in shown) <= 40 <= 70 <= max(cell[2] for cell in shown)
    assert len(lattice.corners(Box(89, 129, 90, 130), 0)) == 1
    level = lattice.level_of(whole, 20)
    assert np.prod(lattice.shape(level)) <= 20 < np.prod(lattice.shape(level - 1))


def test_centres_near_a_side_give_windows_inside():
    assert Lattice(50, 60, 16).around(np.array([[0.0, 0.0], [59.0, 49.0], [30.0, 20.0]])) == [
        (0, 0),
        (34, 44),
        (12, 22),
    ]
