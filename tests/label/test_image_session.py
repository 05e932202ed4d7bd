"""A session on a large image: strokes in, a map of the view out."""

import numpy as np
import pytest
import tifffile
from PIL import Image

from labelling import write_mosaic
from lmfcn.label import image_session
from lmfcn.label.image_session import ImageSession

STROKES = [("fine", 40), ("coarse", 216), ("fine", 90), ("coarse", 160)]


@pytest.fixture
def path(tmp_path):
    return write_mosaic(tmp_path / "mosaic.png")


def opened(path, **options):
    return ImageSession(path, window=32, network="texture-fcn", device="cpu", **options)


def draw(session, strokes=STROKES):
    for label, x in strokes:
        session.draw(label, 16, [(x, 30), (x, 130)])


def right_cells(session):
    """Return whether the cells wholly on one texture are right."""
    found = [
        session.classes[best] == ("fine" if right < 128 else "coarse")
        for left, _, right, _, best, _, _ in session.cells()
        if right < 112 or left > 144
    ]
    assert found
    return np.array(found)


def test_a_map_follows_two_strokes_and_more_strokes_measure_it(path):
    with opened(path) as session:
        assert session.sentence() == "Draw strokes of at least two classes."
        draw(session, STROKES[:1])
        session.work()
        assert session.cells() == []
        draw(session, STROKES[1:2])
        session.work()
        assert session.sentence().startswith("Draw two or more strokes of fine, coarse, at different places")
        assert right_cells(session).mean() > 0.9
        areas = [(right - left) * (bottom - top) for left, top, right, bottom, *_ in session.cells()]
        assert sum(areas) == 160 * 256
        assert all(typicality is None for *_, typicality in session.cells())
        draw(session, STROKES[2:])
        session.work()
        assert session.sentence().startswith("Balanced accuracy by cross-validation, whole strokes held out: ")
        assert "windows of 4 strokes." in session.sentence()
        assert all(0 < typicality <= 1 for *_, typicality in session.cells())
        assert session.counts() == [(2, 14), (2, 14)]
        assert not session.step()


def test_windows_of_a_stroke_are_never_on_both_sides_of_the_cross_validation(path, monkeypatch):
    with opened(path) as session:
        draw(session)
        session.work()
        strokes = session.learned.strokes
        assert [window.stroke for window in session.windows] == strokes.tolist()
        judged = []

        def judge(coordinates, positions, numbers, groups):
            judged.append(groups)
            return real(coordinates, positions, numbers, groups)

        real = image_session.judge
        monkeypatch.setattr(image_session, "judge", judge)
        session.learned.judged()
    assert judged[0].tolist() == strokes.tolist()
    assert len(set(strokes.tolist())) == 4


def test_a_correction_changes_the_map_and_undo_brings_it_back(path):
    with opened(path) as session:
        draw(session, STROKES[:2])
        session.work()
        before = session.cells()
        session.draw("third", 16, [(190, 20), (190, 140)])
        session.work()
        assert {session.classes[cell[4]] for cell in session.cells()} == {"fine", "coarse", "third"}
        assert session.undo()
        session.work()
        # Nearly: the directions also depend on the windows that were described meanwhile.
        assert [cell[:5] for cell in session.cells()] == [cell[:5] for cell in before]
        assert session.classes == ["fine", "coarse", "third"]


def test_later_strokes_and_the_eraser_replace_what_is_below(path):
    with opened(path) as session:
        session.draw("fine", 16, [(40, 20), (40, 140)])
        n_windows = len(session.windows)
        session.draw("coarse", 16, [(40, 80)])
        assert [window.label for window in session.windows].count("coarse") == 1
        assert len(session.windows) == n_windows
        session.draw("", 40, [(40, 20), (40, 140)])
        assert session.windows == []
        session.undo()
        assert len(session.windows) == n_windows
        assert session.counts() == [(1, n_windows - 1), (1, 1)]


def test_only_new_windows_are_described(path, monkeypatch):
    with opened(path) as session:
        draw(session)
        session.work()
        described = []
        real = session.describer.describe
        monkeypatch.setattr(session.describer, "describe", lambda images: described.extend(images) or real(images))
        session.look(0, 0, 80, 128)
        session.look(0, 0, 160, 256)
        session.work()
        n_finest = len(described)  # a smaller view has no windows that the whole image has not
        session.draw("fine", 16, [(60, 30)])
        session.work()
        assert len(described) == n_finest + 1


def test_the_first_map_of_any_view_needs_few_windows(path, monkeypatch):
    monkeypatch.setattr(image_session, "N_FIRST", 6)
    monkeypatch.setattr(image_session, "N_MOST", 40)
    with opened(path) as session:
        draw(session, STROKES[:2])
        n_steps = 0
        while not session.cells():
            assert session.step()
            n_steps += 1
        assert n_steps < 10
        session.work()
        assert 6 < len(session.cells()) <= 40
        assert session.progress()[0] == session.progress()[1] == len(session.cells())
        session.look(100, 180, 110, 190)
        session.work()
        assert len(session.cells()) >= 1
        assert all(left < 190 and right > 180 for left, _, right, *_ in session.cells())
        for view in [(300, 300, 400, 400), (50, 50, 50, 50)]:
            with pytest.raises(ValueError, match="The view must show a part of the image"):
                session.look(*view)


def test_memory_for_descriptions_is_bounded(path, monkeypatch):
    monkeypatch.setattr(image_session, "_MOST_KEPT", 60)
    monkeypatch.setattr(image_session, "N_FIRST", 6)
    monkeypatch.setattr(image_session, "N_MOST", 40)
    with opened(path) as session:
        draw(session, STROKES[:2])
        for left in (0, 64, 128, 192, 0, 64):
            session.look(0, left, 80, left + 64)
            session.work()
            assert len(session.cells()) > 10
        kept = {window.corner for window in session.windows}
        assert kept <= session._rows.keys()
        assert len(session._rows) < 120


def test_the_session_goes_on_where_it_was_killed(path):
    with opened(path) as session:
        draw(session)
        session.work()
        cells = session.cells()
    with opened(path) as again:
        again.work()
        assert [cell[:5] for cell in again.cells()] == [cell[:5] for cell in cells]
        assert again.classes == ["fine", "coarse"]


def test_another_resolution_and_window_take_the_same_strokes(path, tmp_path):
    fine = np.asarray(Image.open(path)).repeat(2, axis=0).repeat(2, axis=1)
    options = {"resolution": (20_000, 20_000), "resolutionunit": "CENTIMETER", "tile": (128, 128)}
    tifffile.imwrite(tmp_path / "fine.tif", fine, **options)
    with opened(tmp_path / "fine.tif", resolution=1.0) as session:
        assert session.size == (320, 512)
        assert session.factor == (0.5, 0.5)
        for label, x in STROKES[:2]:
            session.draw(label, 32, [(2 * x, 60), (2 * x, 260)])
        session.work()
        found = session.cells()
        assert max(cell[2] for cell in found) == 512
        right = [
            session.classes[c[4]] == ("fine" if c[2] < 256 else "coarse") for c in found if c[2] < 224 or c[0] > 288
        ]
        assert np.mean(right) > 0.9
        for label, x in STROKES[2:]:
            session.draw(label, 32, [(2 * x, 60), (2 * x, 260)])
        windows, labels, strokes = session.training_windows()
    assert windows.shape[1:] == (32, 32, 1)
    assert len(windows) == len(labels) == len(strokes)


def test_damaged_parts_have_no_map_and_one_note(path, tmp_path):
    image = np.asarray(Image.open(path)).repeat(2, axis=0).repeat(2, axis=1)
    tifffile.imwrite(tmp_path / "a.tif", image, tile=(64, 64), compression="zlib")
    with tifffile.TiffFile(tmp_path / "a.tif") as tiff:
        offset = tiff.pages[0].dataoffsets[0]
    content = bytearray((tmp_path / "a.tif").read_bytes())
    content[offset : offset + 40] = b"\0" * 40
    (tmp_path / "a.tif").write_bytes(content)
    with opened(tmp_path / "a.tif") as session:
        session.draw("fine", 16, [(20, 20)])  # on the damaged part
        for label, x in STROKES:
            session.draw(label, 32, [(2 * x, 100), (2 * x, 260)])
        session.work()
        assert session.notes[0].startswith("A part of the image cannot be read (")
        assert len(session.notes) == 1
        assert not any(left < 32 and top < 32 for left, top, *_ in session.cells())
        assert 0 not in session.training_windows()[2]


def test_what_cannot_be_labelled_says_why(path, tmp_path):
    Image.fromarray(np.zeros((20, 300), dtype=np.uint8)).save(tmp_path / "thin.png")
    with pytest.raises(ValueError, match=r"has 300x20 pixels \(width x height\), too few for a window of 32"):
        opened(tmp_path / "thin.png")
    with pytest.raises(ValueError, match="--window must be at least 32 pixels, got 3"):
        ImageSession(path, window=3)
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(ValueError, match=r"text\.png"):
        opened(tmp_path / "text.png")
    with opened(path) as session:
        with pytest.raises(ValueError, match="A stroke must touch the image of 256x160 pixels"):
            session.draw("fine", 16, [(-5, 10), (300, 20)])
        with pytest.raises(ValueError, match="Draw strokes of at least two classes first"):
            session.training_windows()
        assert not session.undo()
        assert not session.file.path.exists()


def test_a_model_needs_two_strokes_of_every_class(path):
    with opened(path) as session:
        draw(session, STROKES[:3])
        with pytest.raises(ValueError, match="at different places: coarse has 1, and the model is measured"):
            session.training_windows()
        draw(session, STROKES[3:])
        windows, labels, strokes = session.training_windows()
    assert windows.shape == (28, 32, 32, 1)
    assert sorted(set(zip(labels.tolist(), strokes.tolist(), strict=True))) == [
        ("coarse", 1), ("coarse", 3), ("fine", 0), ("fine", 2),
    ]  # fmt: skip


def test_an_image_without_any_texture_has_no_map(tmp_path):
    Image.fromarray(np.zeros((100, 100), dtype=np.uint8)).save(tmp_path / "black.png")
    with opened(tmp_path / "black.png") as session:
        for label, x in [("a", 20), ("b", 80), ("a", 40), ("b", 60)]:
            session.draw(label, 8, [(x, 20), (x, 80)])
        session.work()
        assert session.cells() == []
