import os
import signal
import subprocess
import sys

import pytest

from lmfcn.label.table import LabelTable, Row

ROWS = [Row("a.png", "wood", "2026-01-01", "hand"), Row('b, "2".png', "old stone", "2026-01-01", "suggestion")]


def test_what_was_appended_is_read_again(tmp_path):
    with LabelTable(tmp_path / "t.csv") as table:
        table.append(ROWS)
        table.append([Row("a.png", "", "2026-01-02", "undo")])
    with LabelTable(tmp_path / "t.csv") as again:
        assert again.rows == [*ROWS, Row("a.png", "", "2026-01-02", "undo")]
        assert {path: row.label for path, row in again.latest().items()} == {"a.png": "", 'b, "2".png': "old stone"}
        assert again.problems == []


@pytest.mark.parametrize("n_bytes", range(1, 30, 4))
def test_a_row_that_a_kill_cut_off_is_left_out_and_the_next_one_is_whole(tmp_path, n_bytes):
    path = tmp_path / "t.csv"
    with LabelTable(path) as table:
        table.append(ROWS[:1])
        whole = path.read_bytes()
        table.append([Row("c.png", "marble", "2026-01-03", "suggestion")])
    path.write_bytes(path.read_bytes()[: len(whole) + n_bytes])
    with LabelTable(path) as table:
        assert table.rows == ROWS[:1]
        assert table.problems == ["t.csv, row 3: It ends in the middle. The row is left out."]
        table.append(ROWS[1:])
    assert LabelTable(path).rows == ROWS


def test_mistakes_of_an_edit_by_hand_are_named_and_the_rest_is_read(tmp_path):
    path = tmp_path / "t.csv"
    text = "Path;Label\na.png;wood\n;stone\nb.png;a/b\nc.png;x;y;z\n\nd\\e.png; stone"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    with LabelTable(path) as table:
        assert [(row.path, row.label, row.by) for row in table.rows] == [
            ("a.png", "wood", "hand"),
            ("d/e.png", "stone", "hand"),
        ]
        assert table.problems[0] == "t.csv, row 3: The path is empty. The row is left out."
        assert "row 4: A class name must have 1 to 100 printable characters" in table.problems[1]
        assert "row 5: Expected 2 values, got 4; put texts in quotes." in table.problems[2]
        assert table.notes == table.problems
        table.append([Row("f.png", "stone")])
    assert path.read_text("utf-8-sig").endswith("z\n\nd\\e.png; stone\nf.png;stone\n")


def test_a_table_of_another_kind_is_refused_with_a_sentence(tmp_path):
    (tmp_path / "t.csv").write_text("name,class\na,b\n")
    with pytest.raises(ValueError, match="must have the columns path, label, when, by in its first line, but path is"):
        LabelTable(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_bytes("path,label\nstraße,a\n".encode("latin-1"))
    with pytest.raises(ValueError, match="must be a text in UTF-8, but byte 15 is not"):
        LabelTable(tmp_path / "t.csv")
    (tmp_path / "t.csv").unlink()
    LabelTable(tmp_path / "t.csv").close()  # which a lock that stayed behind would refuse


def test_only_one_process_at_a_time_and_changes_by_others_are_seen(tmp_path):
    path = tmp_path / "t.csv"
    with LabelTable(path) as table:
        with pytest.raises(ValueError, match="is open in another lmfcn label"):
            LabelTable(path)
        table.append(ROWS)
        assert not table.changed_outside()
        path.write_text("path,label,when,by\na.png,clay,,hand\n")
        assert table.changed_outside()
        assert table.rows == [Row("a.png", "clay")]


def test_a_full_disk_leaves_the_table_as_it_was(tmp_path, monkeypatch):
    with LabelTable(tmp_path / "t.csv") as table:
        table.append(ROWS[:1])
        before, write = table.path.read_bytes(), os.write

        def half(handle, content):
            if len(content) < 20:
                raise OSError(28, "No space left on device")
            return write(handle, content[:15])

        monkeypatch.setattr(os, "write", half)
        with pytest.raises(OSError, match="No space left"):
            table.append(ROWS[1:])
        assert table.path.read_bytes() == before
        assert table.rows == ROWS[:1]


def test_a_killed_process_loses_nothing(tmp_path):
    code = (
        "import sys; from lmfcn.label.table import LabelTable, Row\n"
        "table = LabelTable(sys.argv[1])\n"
        "for number in range(10_000):\n"
        "    table.append([Row(f'{number}.png', 'wood')]); print(number, flush=True)\n"
    )
    path = tmp_path / "t.csv"
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) as process:
        done = [process.stdout.readline() for _ in range(20)]
        os.kill(process.pid, signal.SIGKILL)
    assert done[-1] == "19\n"
    with LabelTable(path) as table:
        assert {f"{number}.png" for number in range(20)} <= set(table.latest())
        assert len(table.problems) <= 1


def test_a_table_that_is_no_csv_is_named(tmp_path):
    (tmp_path / "labels.csv").write_text("path,label\na.png," + "x" * 200_000)
    with pytest.raises(
        ValueError, match=r"labels\.csv is not a readable table \(field larger .*\); save it as CSV again"
    ):
        LabelTable(tmp_path / "labels.csv")
