"""`lmfcn predict` with several processes or machines, stopped and resumed, and as Parquet."""

import errno
import os
import shutil
import sys
import threading
import time

import numpy as np
import pytest
from small_images import save_images

import lmfcn
import pieces_of_work as pieces
from lmfcn.compute.parallel import LostWorkerError
from lmfcn.predict import stream as streaming
from lmfcn.predict.journal import Journal


@pytest.fixture(scope="module")
def tiles(tmp_path_factory):
    """More images than two batches hold, and one that is none."""
    folder = save_images(tmp_path_factory.mktemp("tiles") / "tiles", n_per_class=75)
    (folder / "bark" / "bad.png").write_text("no image")
    return folder


@pytest.fixture
def lines(command, model, tiles, tmp_path):
    """What one process writes."""
    command("predict", model, tiles, "--proba", "-o", "expected.csv")
    (tmp_path / "expected.csv.part").unlink()  # which is there because of the bad file
    return (tmp_path / "expected.csv").read_text()


def test_two_processes_write_the_same_file(command, model, tiles, lines, tmp_path):
    code, _, stderr = command("predict", model, tiles, "--proba", "--jobs", "2", "-o", "rows.csv")
    assert code == 1
    assert stderr.splitlines() == [
        f"{tiles}/bark/bad.png: is not an image of a known format",
        "150 images predicted, 1 could not be used. The same command with --resume tries these again.",
    ]
    assert (tmp_path / "rows.csv").read_text() == lines


def test_a_killed_worker_changes_nothing(command, model, tiles, lines, cluster, tmp_path, monkeypatch):
    def kill_the_victim():
        while not (tmp_path / "victim").exists():
            time.sleep(0.05)
        cluster.kill(int((tmp_path / "victim").read_text()))

    real = streaming.stream_predictions

    def deadly(predict, *given, **options):
        return real(pieces.DeadlyPredictor(predict, tmp_path, "wood/7.png"), *given, **options)

    monkeypatch.setattr(streaming, "stream_predictions", deadly)
    address, killer = cluster.grow_to(2), threading.Thread(target=kill_the_victim, daemon=True)
    killer.start()
    code, _, stderr = command("predict", model, tiles, "--proba", "--scheduler", address, "-o", "rows.csv")
    killer.join(timeout=60)
    assert (tmp_path / "victim").exists(), stderr
    assert code == 1
    assert len([worker for worker in cluster.workers if worker.poll() is None]) == 1
    assert (tmp_path / "rows.csv").read_text() == lines


def test_a_stopped_run_continues(command, model, tiles, lines, tmp_path, monkeypatch):
    real = Journal.add

    def stop(journal, *row):
        if len(journal) == 100:
            raise KeyboardInterrupt
        real(journal, *row)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "add", stop)
        code, _, stderr = command("predict", model, tiles, "-o", "rows.csv")
    assert code == 130
    assert stderr.endswith("100 predictions kept; the same command with --resume continues.\n")
    assert not (tmp_path / "rows.csv").exists()
    content = (tmp_path / "rows.csv.part").read_bytes()
    (tmp_path / "rows.csv.part").write_bytes(content[:-20])  # as a machine leaves it that goes down
    code, _, stderr = command("predict", model, tiles, "--proba", "-o", "rows.csv", "--resume")
    assert code == 1
    assert "51 images predicted, 99 were predicted before, 1 could not be used." in stderr
    assert (tmp_path / "rows.csv").read_text() == lines


def test_files_that_kill_their_workers_are_named_and_tried_again(command, model, trees, tmp_path, monkeypatch):
    def lose(_, batches, **__):
        for batch in batches:
            yield batch, LostWorkerError(f"3 processes died while they worked on {batch}; why is not known.")

    with monkeypatch.context() as patched:
        patched.setattr(streaming, "as_completed", lose)
        code, _, stderr = command("predict", model, trees, "-o", "rows.csv", "-j", "2")
    assert code == 2
    assert stderr.count("could not be predicted: 3 processes died while they worked on 20 files from") == 20
    assert stderr.endswith("Error: No image could be used; the reasons are above.\n")
    assert list(tmp_path.iterdir()) == []
    code, _, stderr = command("predict", model, trees, "-o", "rows.csv", "--resume")
    assert (code, stderr) == (0, "20 images predicted.\n")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]
    code, _, stderr = command("predict", model, trees, "-o", "rows.csv", "--resume")
    assert (code, stderr) == (
        0,
        "rows.csv is complete, so there is nothing to resume; without --resume it is written again.\n",
    )


def test_a_run_of_other_paths_is_not_resumed(command, model, tiles, trees, tmp_path):
    command("predict", model, tiles, "-o", "rows.csv")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    code, _, stderr = command("predict", model, trees, "-o", "rows.csv", "--resume")
    assert (code, stderr) == (
        2,
        f"Error: {tmp_path}/rows.csv.part holds predictions for other PATHS ({tiles}); resume with these, or leave"
        " --resume out to begin anew.\n",
    )
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_spelled_otherwise_is_the_same(command, model, trees, tmp_path):
    shutil.copytree(trees, tmp_path / "trees")
    (tmp_path / "trees" / "bad.png").write_text("no image")
    command("predict", model, "trees", "-o", "rows.csv")
    (tmp_path / "trees" / "bad.png").write_bytes((trees / "bark" / "0.png").read_bytes())
    code, _, stderr = command("predict", model, "./trees/", "-o", "rows.csv", "--resume")
    assert (code, stderr) == (0, "1 image predicted, 20 were predicted before.\n")
    paths = [line.split(",")[0] for line in (tmp_path / "rows.csv").read_text().splitlines()[1:]]
    assert paths[-1] == "./trees/bad.png"
    assert {path.split("/")[0] for path in paths[:-1]} == {"trees"}


def test_a_folder_that_cannot_be_read_is_named_and_the_rest_predicted(command, model, trees, tmp_path, monkeypatch):
    shutil.copytree(trees, tmp_path / "trees")
    real = os.scandir

    def scandir(folder="."):
        if str(folder).endswith("bark"):
            raise PermissionError(errno.EACCES, "Permission denied", folder)
        return real(folder)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", scandir)
        code, _, stderr = command("predict", model, "trees", "-o", "rows.csv")
    assert code == 1
    assert stderr.splitlines() == [
        "trees/bark: cannot be read (Permission denied)",
        "10 images predicted, 1 folder could not be read. The same command with --resume tries these again.",
    ]
    code, _, stderr = command("predict", model, "trees", "-o", "rows.csv", "--resume")
    assert (code, stderr) == (0, "10 images predicted, 10 were predicted before.\n")
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 21


def test_another_command_that_writes_the_same_file_is_not_disturbed(command, model, trees, tmp_path):
    pytest.importorskip("fcntl")
    with Journal(tmp_path / "rows.csv", model, [str(trees)]) as journal:
        journal.add("a.png", np.ones(2))
        before = journal.path.read_bytes()
        code, _, stderr = command("predict", model, trees, "-o", "rows.csv")
        assert (code, stderr) == (
            2,
            "Error: Another lmfcn predict is writing rows.csv; wait until it has ended, or give another -o FILE.\n",
        )
        assert journal.path.read_bytes() == before


def test_parquet_comes_back_as_it_was(command, model, trees, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    odd = tmp_path / "odd\udcff.png"
    odd.write_bytes((trees / "bark" / "0.png").read_bytes())
    arguments = ("--proba", "--set", "0.7", "--reject", "0.9")
    code, *_ = command("predict", model, odd, trees, *arguments, "-o", "rows.parquet")
    assert code == 0
    rows = parquet.read_table(tmp_path / "rows.parquet").to_pylist()
    assert rows[0]["path"] == f"{tmp_path}/odd\\udcff.png"
    loaded = lmfcn.load(model)
    predicted = loaded.predict_proba([row["path"] for row in rows[1:]])
    assert np.allclose([[row["p(bark)"], row["p(wood)"]] for row in rows[1:]], predicted, atol=1e-6)
    for row in rows:
        best = max("bark", "wood", key=lambda name: row[f"p({name})"])
        assert row["probability"] == row[f"p({best})"]
        assert row["label"] == (best if row["probability"] >= 0.9 else None)
        assert best in row["set"]


def test_without_pyarrow_it_says_so_before_any_work(command, model, trees, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, stderr = command("predict", model, trees, "-o", "rows.parquet")
    assert code == 2
    assert "This needs pyarrow: pip install 'lmfcn[parquet]'" in stderr
    assert list(tmp_path.iterdir()) == []
