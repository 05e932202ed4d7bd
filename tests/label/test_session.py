import csv

import numpy as np
import pytest

from labelling import write_textures
from lmfcn.label.describe import Features
from lmfcn.label.labels import TABLE
from lmfcn.label.session import LabellingSession


def opened(folder, **options):
    return LabellingSession(folder, network="texture-fcn", device="cpu", **options)


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return [(row["path"], row["label"], row["by"]) for row in csv.DictReader(file)]


def test_a_session_learns_asks_and_is_right(folder):
    path, truth = folder
    with opened(path) as session:
        session.work()
        assert session.n_described == 30
        assert session.sentence() == "Give at least two classes a name."
        assert len({truth[session.names[p]] for p in session.learned.asked[:6]}) == 3
        for _ in range(4):
            for position in session.learned.asked[:5]:
                session.put([position], truth[session.names[position]])
            session.work()
        assert sorted(session.classes) == ["coarse", "fine", "stripes"]
        best = np.array(session.learned.classes)[session.learned.probabilities.argmax(axis=1)]
        named = [truth[session.names[p]] for p in session.learned.space.positions]
        assert (best == named).mean() > 0.9
        assert session.curve[-1].n_labels == 20
        assert " on 20 labels: " in session.sentence()
        assert not set(session.learned.asked) & set(session.labels)


def test_undo_skip_and_confirm_are_in_the_table_and_come_back(folder):
    path, _ = folder
    with opened(path) as session:
        session.put([0, 1], "fine")
        session.put([1], "coarse", "suggestion")
        session.skip([2])
        session.put([3], "fine")
        assert session.undo() == [3]
        assert session.undo() == [2]
        assert session.undo() == [1]
        session.skip([4])
        session.put([0], "fine")
        assert session.labels == {0: "fine", 1: "fine"}
        with pytest.raises(ValueError, match="There is no image 99; the numbers go from 0 to 29"):
            session.put([99], "fine")
    with opened(path) as again:
        assert again.labels == {0: "fine", 1: "fine"}
        assert (again.skipped, again.confirmed) == ({4}, {0})
        assert again.classes == ["fine", "coarse"]
    assert rows(path / TABLE) == [
        ("00.png", "fine", "hand"), ("01.png", "fine", "hand"), ("01.png", "coarse", "suggestion"),
        ("02.png", "", "skip"), ("03.png", "fine", "hand"), ("03.png", "", "undo"), ("02.png", "", "undo"),
        ("01.png", "fine", "undo"), ("04.png", "", "skip"), ("00.png", "fine", "hand"),
    ]  # fmt: skip


def test_actions_of_an_earlier_session_can_be_undone_one_by_one(folder):
    path, _ = folder
    with opened(path) as session:
        session.put([0, 1], "fine")
        session.put([2, 3], ["fine", "coarse"], "suggestion")
        session.skip([4])
        session.put([4], "coarse")
        assert session.undo() == [4]  # back to what is skipped
        session.put([0], "fine")
        session.put([0], "fine")
    with opened(path) as again:
        assert [again.undo() for _ in range(3)] == [[0], [0], [4]]
        assert (again.labels, again.skipped) == ({0: "fine", 1: "fine", 2: "fine", 3: "coarse"}, set())
        assert again.undo() == [2, 3]
    with opened(path) as third:
        assert third.labels == {0: "fine", 1: "fine"}
        assert [third.undo(), third.undo()] == [[0, 1], []]
        assert third.labels == {}


def test_rows_without_a_time_were_written_by_hand_and_are_not_undone(folder):
    path, _ = folder
    (path / TABLE).write_text("path,label\n00.png,fine\n01.png,coarse\n")
    with opened(path) as session:
        assert session.undo() == []
        session.put([1], "fine")
        assert (session.undo(), session.undo()) == ([1], [])
        assert session.labels == {0: "fine", 1: "coarse"}


def test_the_accuracy_follows_labels_that_are_taken_back(folder):
    path, truth = folder
    with opened(path) as session:
        session.work()
        session.put(list(range(0, 30, 3)), [truth[session.names[p]] for p in range(0, 30, 3)])
        session.work()
        session.put(list(range(1, 30, 3)), [truth[session.names[p]] for p in range(1, 30, 3)])
        session.work()
        assert [point.n_labels for point in session.curve] == [10, 20]
        session.undo()
        session.put([29], truth[session.names[29]])
        session.work()
        assert [point.n_labels for point in session.curve] == [10, 11]
        (path / "00.png").write_bytes((path / "25.png").read_bytes())
        before = session.space
        session.rescan()
        session.work()
        assert session.space is not before


def test_an_edit_by_hand_while_the_session_is_open_is_taken_over(folder):
    path, _ = folder
    with opened(path) as session:
        session.put([0, 1], "fine")
        (path / TABLE).write_text("path,label,when,by\n05.png,coarse,,hand\n")
        session.put([2], "fine")
        assert session.labels == {2: "fine", 5: "coarse"}
    assert rows(path / TABLE) == [("05.png", "coarse", "hand"), ("02.png", "fine", "hand")]


def test_features_are_kept_and_changed_files_are_described_again(folder):
    path, _ = folder
    with opened(path) as session:
        session.work()
        before = session.features.rows["03.png"]
    with opened(path) as again:
        assert again.n_described == 30
        assert (again.features.rows["03.png"] == before).all()
    (path / "03.png").write_bytes((path / "25.png").read_bytes())
    (path / "new.png").write_bytes((path / "25.png").read_bytes())
    with opened(path) as changed:
        assert changed.n_described == 29
        changed.work()
        assert np.allclose(changed.features.rows["03.png"], changed.features.rows["25.png"], atol=1e-5)
        assert changed.names[-1] == "new.png"
    kept = (path / TABLE).with_suffix(".features")
    kept.write_bytes(kept.read_bytes()[:1000])
    assert Features.open(kept).rows == {}


def test_bad_files_are_listed_and_the_others_go_on(folder):
    path, _ = folder
    (path / "text.png").write_text("hello")
    with opened(path) as session:
        session.work()
        (position,) = session.left_out
        assert session.names[position] == "text.png"
        assert session.left_out[position] == "is not an image of a known format"
        assert session.n_described == 30
        (path / "00.png").unlink()
        (path / "31.png").write_bytes((path / "05.png").read_bytes())
        session.rescan()
        session.work()
        assert session.names[-1] == "31.png"
        assert "31.png" in session.features.rows


def test_a_labelled_folder_is_corrected(tmp_path):
    truth = write_textures(tmp_path, 8, by_class=True)
    wrong = "fine/00.png"
    (tmp_path / "stripes" / "moved.png").write_bytes((tmp_path / wrong).read_bytes())
    (tmp_path / wrong).unlink()
    with opened(tmp_path, labelled=True) as session:
        assert session.labels[session.names.index("coarse/08.png")] == "coarse"
        session.work()
        assert len(session.curve) == 1
        moved = session.names.index("stripes/moved.png")
        assert session.doubtful()[0] == moved
        session.put([moved], "fine")
        session.work()
        assert moved not in session.doubtful()
    assert rows(tmp_path / TABLE) == [("stripes/moved.png", "fine", "hand")]
    assert len(truth) == 24


def test_a_doubtful_label_that_is_given_again_is_not_shown_again(tmp_path):
    write_textures(tmp_path, 8, by_class=True)
    with opened(tmp_path, labelled=True) as session:
        position = session.names.index("fine/00.png")
        session.put([position], "stripes")
        session.work()
        assert position in session.doubtful()
        session.put([position], "stripes")
        session.work()
        assert position not in session.doubtful()


def test_groups_come_from_a_table_or_from_names(folder):
    path, truth = folder
    lines = [f"{name},{number // 2}" for number, name in enumerate(truth)]
    with opened(path) as session:
        assert session.groups() is None
    with opened(path, groups_from=r"(\d)\d.png") as session:
        assert session.groups().tolist() == ["0"] * 10 + ["1"] * 10 + ["2"] * 10
    (path / "groups.csv").write_text("path,group\n" + "\n".join(lines[:4]) + "\n")
    with opened(path) as session:
        assert session.groups()[:5].tolist() == ["group 0", "group 0", "group 1", "group 1", "image 4"]


def test_mistakes_in_the_table_are_notes(folder):
    path, _ = folder
    (path / TABLE).write_text("path,label,when,by\n00.png,fine,,\ngone.png,fine,,hand\n,x,,hand\n")
    with opened(path) as session:
        assert session.labels == {0: "fine"}
        assert session.notes == [
            f"{TABLE}, row 4: The path is empty. The row is left out.",
            f"1 images of {TABLE} are not in the folder, such as gone.png; their labels are kept in the table.",
        ]


def test_what_cannot_be_opened(tmp_path):
    with pytest.raises(ValueError, match="is not a folder; give the one with the images"):
        opened(tmp_path / "none")
    with pytest.raises(ValueError, match="No image was found in"):
        opened(tmp_path)
    with pytest.raises(ValueError, match="No image was found in"):
        opened(tmp_path)  # and not that the table is open
