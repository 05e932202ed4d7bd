import pytest

from lmfcn.files import check_writable, made_folder, write_text


def test_an_error_names_the_file_that_the_user_knows(tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        write_text(tmp_path / "missing" / "a.txt", "text")
    assert raised.value.filename == str(tmp_path / "missing" / "a.txt")
    (tmp_path / "b.txt").mkdir()
    with pytest.raises(ValueError, match=r"b\.txt is a folder; give the name of a file"):
        write_text(tmp_path / "b.txt", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["b.txt"]


def test_looking_whether_a_file_can_be_written_changes_nothing(tmp_path):
    check_writable(tmp_path / "new.txt")
    (tmp_path / "old.txt").write_text("old")
    check_writable(tmp_path / "old.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["old.txt"]
    assert (tmp_path / "old.txt").read_text() == "old"


def test_folders_go_if_nothing_came_into_them(tmp_path):
    with pytest.raises(KeyError), made_folder(tmp_path / "a" / "b"):
        raise KeyError
    assert not (tmp_path / "a").exists()
    with pytest.raises(FileNotFoundError), made_folder(tmp_path / "a" / "b"):
        _write_one_of_two(tmp_path / "a")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["kept.txt"]
    with made_folder(tmp_path / "a" / "b") as folder:
        pass
    assert folder.is_dir()
    with (
        pytest.raises(ValueError, match=r"kept\.txt is a file; give the name of a folder"),
        made_folder(tmp_path / "a" / "kept.txt"),
    ):
        pass


def _write_one_of_two(folder):
    write_text(folder / "kept.txt", "text")
    write_text(folder / "missing" / "lost.txt", "text")
