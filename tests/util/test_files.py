import errno
import os
import subprocess
import sys

import pytest

from lmfcn.util import files
from lmfcn.util.files import LockFile, atomic_path, check_writable, create_folder, write_text


def test_an_error_names_the_file_that_the_user_knows(tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        write_text(tmp_path / "missing" / "a.txt", "text")
    assert raised.value.filename == str(tmp_path / "missing" / "a.txt")
    (tmp_path / "b.txt").mkdir()
    with pytest.raises(ValueError, match=r"b\.txt is a folder; give the name of a file"):
        write_text(tmp_path / "b.txt", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["b.txt"]


def test_an_error_without_a_name_gets_that_of_the_file(tmp_path):
    with pytest.raises(OSError, match=r"No space left on device: '.*a\.txt'"), atomic_path(tmp_path / "a.txt"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert not list(tmp_path.iterdir())


def test_looking_whether_a_file_can_be_written_changes_nothing(tmp_path):
    check_writable(tmp_path / "new.txt")
    (tmp_path / "old.txt").write_text("old")
    check_writable(tmp_path / "old.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["old.txt"]
    assert (tmp_path / "old.txt").read_text() == "old"


def test_folders_go_if_nothing_came_into_them(tmp_path):
    with pytest.raises(KeyError), create_folder(tmp_path / "a" / "b"):
        raise KeyError
    assert not (tmp_path / "a").exists()
    with pytest.raises(FileNotFoundError), create_folder(tmp_path / "a" / "b"):
        _write_one_of_two(tmp_path / "a")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["kept.txt"]
    with create_folder(tmp_path / "a" / "b") as folder:
        pass
    assert folder.is_dir()
    with (
        pytest.raises(ValueError, match=r"kept\.txt is a file; give the name of a folder"),
        create_folder(tmp_path / "a" / "kept.txt"),
    ):
        pass


def _write_one_of_two(folder):
    write_text(folder / "kept.txt", "text")
    write_text(folder / "missing" / "lost.txt", "text")


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path, monkeypatch):
    def refuse(path):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(files, "check_writable", refuse)
    with pytest.raises(OSError, match="Read-only") as caught, create_folder(tmp_path / "out"):
        pass
    assert caught.value.filename == str(tmp_path / "out")


def test_a_locked_file_is_refused_until_it_is_released(tmp_path):
    path = tmp_path / "rows.csv"
    with LockFile(path, "busy"):
        assert os.listdir(tmp_path) == ["rows.csv.lock"]
        with pytest.raises(ValueError, match=r"^Somebody writes rows\.csv\.$"):
            LockFile(path, "Somebody writes rows.csv.")
        assert os.listdir(tmp_path) == ["rows.csv.lock"]
    assert os.listdir(tmp_path) == []
    with LockFile(path, "busy") as again:
        again.release()
        with LockFile(path, "busy"):
            again.release()  # which must not touch the lock of another
            assert os.listdir(tmp_path) == ["rows.csv.lock"]


def test_a_link_has_the_lock_of_its_target(tmp_path):
    (tmp_path / "target").mkdir()
    (tmp_path / "link.csv").symlink_to(tmp_path / "target" / "rows.csv")
    with LockFile(tmp_path / "link.csv", "busy"), pytest.raises(ValueError, match="busy"):
        LockFile(tmp_path / "target" / "rows.csv", "busy")


def test_a_killed_process_keeps_nobody_out(tmp_path):
    code = "import os, sys; from lmfcn.util.files import LockFile; lock = LockFile(sys.argv[1], ''); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", code, tmp_path / "rows.csv"], check=False).returncode == 9
    assert os.listdir(tmp_path) == ["rows.csv.lock"]
    with LockFile(tmp_path / "rows.csv", "busy"):
        pass
    assert os.listdir(tmp_path) == []


def test_another_process_is_refused(tmp_path):
    code = "import sys; from lmfcn.util.files import LockFile; LockFile(sys.argv[1], 'Another has it.')"
    with LockFile(tmp_path / "rows.csv", "busy"):
        result = subprocess.run(
            [sys.executable, "-c", code, tmp_path / "rows.csv"], check=False, capture_output=True, text=True
        )
    assert "ValueError: Another has it." in result.stderr


def test_a_lock_file_that_is_removed_meanwhile_is_made_anew(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    path, real, removed = tmp_path / "rows.csv.lock", fcntl.flock, []

    def remove_first(file, how):
        if not removed:
            removed.append(path.unlink())
        real(file, how)

    path.touch()
    monkeypatch.setattr(fcntl, "flock", remove_first)
    with LockFile(tmp_path / "rows.csv", "busy"):
        assert path.exists()
        with pytest.raises(ValueError, match="busy"):
            LockFile(tmp_path / "rows.csv", "busy")


def test_a_lock_in_a_missing_folder_names_the_file_and_makes_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        LockFile(tmp_path / "missing" / "rows.csv", "busy")
    assert raised.value.filename == str(tmp_path / "missing" / "rows.csv")
    assert os.listdir(tmp_path) == []
