import shutil
import tracemalloc
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from lmfcn import LMFCNClassifier, Recipe
from lmfcn.predict import stream
from lmfcn.predict.stream import FilePrediction, FilePredictor, find_images, predict_paths, stream_predictions
from small_trunk import trunk_classifier, trunk_images


@pytest.fixture(scope="module")
def model(textures):
    return (
        LMFCNClassifier(epochs=1, latent_dim=2, widths=(4,), recipe=Recipe(passes=1), random_state=0)
        .fit(*textures)
        .model_
    )


@pytest.fixture
def paths(tmp_path, textures):
    for number, image in enumerate(textures[0][:20]):
        Image.fromarray(image if number % 3 else image.repeat(2, axis=0)).save(tmp_path / f"{number}.png")
    return [str(tmp_path / f"{number}.png") for number in range(20)]


def test_batches_give_what_the_model_gives(model, paths):
    rows = list(stream_predictions(partial(predict_paths, model), paths, batch_size=7))
    assert [row.path for row in rows] == paths
    assert np.allclose([row.probabilities for row in rows], model.predict_proba(paths), atol=1e-6)


def test_images_that_do_not_fit_together_are_predicted_in_portions(model, paths, monkeypatch):
    whole = predict_paths(model, paths)
    sizes = []
    real = model.predict_with_typicality

    def watched(images):
        sizes.append(len(images))
        return real(images)

    monkeypatch.setattr(stream, "_MAX_WAITING_BYTES", 3 * 16 * 16)
    monkeypatch.setattr(type(model), "predict_with_typicality", lambda _, images: watched(images))
    portions = predict_paths(model, paths)
    assert sum(sizes) == 20
    assert max(sizes) <= 4
    assert np.allclose([row.probabilities for row in portions], [row.probabilities for row in whole], atol=1e-6)


def test_bad_files_keep_their_place(model, paths, tmp_path):
    (tmp_path / "3.png").write_bytes(b"")
    rows = predict_paths(model, [*paths[2:5], str(tmp_path)])
    assert [row.error for row in rows] == [None, "is empty (0 bytes)", None, "is a folder, not a file"]
    assert rows[1].probabilities is None


@pytest.mark.thorough
def test_a_million_paths_in_constant_memory():
    n_paths, n_taken, n_yielded, furthest = 1_000_000, 0, 0, 0
    row = FilePrediction("a.png", None, "not tried")

    def paths():
        nonlocal n_taken, furthest
        for _ in range(n_paths):
            n_taken += 1
            furthest = max(furthest, n_taken - n_yielded)
            yield "a.png"

    tracemalloc.start()
    for _ in stream_predictions(lambda batch: [row] * len(batch), paths()):
        n_yielded += 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert n_yielded == n_paths
    assert furthest == stream.BATCH_SIZE
    assert peak < 200_000


def test_folders_are_walked_without_collecting_them(monkeypatch):
    entry = SimpleNamespace(name="a.png", path="folder/a.png", is_dir=lambda **_: False)
    taken = []

    class Endless:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def __iter__(self):
            for _ in range(10**9):
                taken.append(1)
                yield entry

    monkeypatch.setattr(stream.os, "scandir", lambda _: Endless())
    monkeypatch.setattr(stream.os.path, "isdir", lambda _: True)
    found = find_images(["folder"], print)
    assert [next(found) for _ in range(5)] == ["folder/a.png"] * 5
    assert len(taken) == 5


def test_what_is_found_in_folders(tmp_path):
    for name in ("a.png", "deep/er/b.TIF", ".hidden/c.png", ".d.png", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "deep" / "loop").symlink_to(tmp_path)
    found = list(find_images([str(tmp_path), "as it is.txt"], print))
    assert sorted(found[:-1]) == [str(tmp_path / "a.png"), str(tmp_path / "deep" / "er" / "b.TIF")]
    assert found[-1] == "as it is.txt"


def test_a_folder_that_goes_away_costs_only_its_own_images(tmp_path):
    for name in ("one/a.png", "two/b.png"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("")
    told = []
    found = find_images([str(tmp_path), "last.png"], lambda *problem: told.append(problem))
    first = next(found)
    gone = tmp_path / ("two" if first.endswith("a.png") else "one")
    shutil.rmtree(gone)
    assert list(found) == ["last.png"]
    assert told == [(str(gone), "cannot be read (No such file or directory)")]


def test_batches_come_in_order_and_others_wait_for_a_slow_one(monkeypatch):
    def shuffled(function, batches, **_):
        batches = iter(batches)
        first, *others = [next(batches) for _ in range(3)]
        assert next(batches) is None  # three are under way or held, and no more may be
        yield from ((batch, function(batch)) for batch in others)
        yield first, function(first)
        yield from ((batch, function(batch)) for batch in batches)

    monkeypatch.setattr(stream, "as_completed", shuffled)
    monkeypatch.setattr(stream, "_MAX_AHEAD", 3)
    paths = [str(number) for number in range(10)]
    rows = stream_predictions(lambda batch: [FilePrediction(path, None, "") for path in batch], paths, batch_size=2)
    assert [row.path for row in rows] == paths


def test_models_with_a_trunk_in_worker_processes(tmp_path):
    X, _ = trunk_images()
    sizes = [X[0], X[11], X[22][:33], X[1][:20], X[2][:, :31]]
    paths = [str(tmp_path / f"{number}.png") for number in range(len(sizes))]
    for path, image in zip(paths, sizes, strict=True):
        Image.fromarray(image).save(path)
    model = trunk_classifier().model_
    rows = list(stream_predictions(FilePredictor(model), paths, batch_size=2, jobs=2))
    assert [row.path for row in rows] == paths
    for row, image in zip(rows[:3], sizes, strict=False):
        assert row.probabilities == pytest.approx(model.predict_proba(image[None])[0], abs=1e-6)
    assert [row.error for row in rows[3:]] == [
        "Images must have at least 32x32 pixels, got 20x44.",
        "Images must have at least 32x32 pixels, got 36x31.",
    ]
