from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from lmfcn import LMFCNClassifier, make_gaussians
from lmfcn.benchmark.model_summary import (
    prediction_fields,
    read_summary,
    requested_summary,
    summarize_model,
    summary_path,
    write_summary,
)
from lmfcn.benchmark.runs import append_run, read_runs
from lmfcn.benchmark.tasks import SplitData, Subset
from lmfcn.data.collection import ImageCollection
from lmfcn.util.tensor_files import FileError
from some_comparison import run_of, some_summary


def test_answers_by_hand():
    probabilities = np.array([[0.7, 0.3], [0.4, 0.6], [0.123456, 0.876544]])
    fitted = SimpleNamespace(classes_=np.array(["bark", "wood"]), predict_proba=lambda _: probabilities)
    answers = prediction_fields(fitted, Subset(np.zeros((3, 8, 8)), np.array(["bark", "bark", "wood"])))
    assert answers == {
        "test_balanced_accuracy": pytest.approx(0.75),
        "classes": ["bark", "wood"],
        "test_classes": [0, 0, 1],
        "predicted_classes": [0, 1, 1],
        "confidences": [0.7, 0.6, 0.8765],
    }


ORIGIN = {"task": "cloth", "method": "LMFCN", "seed": 0, "split": "abc"}


def test_what_is_written_is_read(tmp_path, random):
    exhibit = some_summary(random, n_hardest=2)
    write_summary(tmp_path / "exhibit", exhibit, ORIGIN)
    read = read_summary(tmp_path / "exhibit", ORIGIN)
    assert (read.classes, read.explained) == (exhibit.classes, exhibit.explained)
    for mine, other in zip([*read.learnt, *read.test], [*exhibit.learnt, *exhibit.test], strict=True):
        assert np.array_equal(mine, other)
        assert mine.dtype == other.dtype
    assert len(read.hardest) == 2
    for mine, other in zip(read.hardest, exhibit.hardest, strict=True):
        assert (mine.predicted, mine.confidence, mine.similarities) == (1, 0.9, [0.9, 0.8, 0.7])
        for shown, expected in zip([mine.shown, *mine.nearest], [other.shown, *other.nearest], strict=True):
            assert np.array_equal(shown.pixels, expected.pixels)
            assert shown[1:] == expected[1:]


def test_an_exhibit_of_another_run_is_none(tmp_path, random):
    assert read_summary(tmp_path / "nothing", ORIGIN) is None
    write_summary(tmp_path / "exhibit", some_summary(random), ORIGIN)
    assert read_summary(tmp_path / "exhibit", {**ORIGIN, "split": "other images"}) is None


def test_a_damaged_file_is_refused(tmp_path, random):
    write_summary(tmp_path / "exhibit", some_summary(random), ORIGIN)
    (tmp_path / "exhibit").write_bytes((tmp_path / "exhibit").read_bytes()[:-100])
    with pytest.raises(FileError, match="truncated"):
        read_summary(tmp_path / "exhibit", ORIGIN)


def test_a_run_leaves_its_exhibit_beside_the_file_of_runs(tmp_path, random):
    run = run_of("LMFCN (paper)", 0, 0.5)
    shown = replace(run, exhibit=some_summary(random))
    append_run(tmp_path / "runs.jsonl", shown)
    assert "exhibit" not in (tmp_path / "runs.jsonl").read_text()
    assert list(read_runs(tmp_path / "runs.jsonl").values()) == [run]
    path = summary_path(tmp_path / "runs.jsonl", run.method)
    assert path == tmp_path / "exhibit-lmfcn-paper-s-preset.safetensors"
    assert read_summary(path, run.origin).classes == shown.exhibit.classes


@pytest.fixture(scope="module")
def parts():
    random = np.random.default_rng(0)
    return SplitData(*(Subset(*make_gaussians(count, 16, random, stds=(28, 35))) for count in (10, 6, 8)))


@pytest.fixture(scope="module")
def fitted(parts):
    classifier = LMFCNClassifier(epochs=1, latent_dim=4, widths=(4,), passes=1, device="cpu", random_state=0)
    return classifier.fit(*parts.train, validation=parts.validation)


@pytest.fixture(scope="module")
def exhibit(fitted, parts):
    return summarize_model(fitted, parts)


def test_points_are_the_images_that_were_learnt_from_and_tested_on(fitted, parts, exhibit):
    assert exhibit.learnt.places.shape == (32, 2)
    assert exhibit.test.places.shape == (16, 2)
    assert np.flatnonzero(exhibit.learnt.marked).tolist() == sorted(fitted.support_.tolist())
    assert exhibit.learnt.classes.tolist() == [*parts.train.labels, *parts.validation.labels]
    assert np.array_equal(exhibit.test.marked, fitted.predict(parts.test.images) != parts.test.labels)
    assert 1 >= exhibit.explained[0] >= exhibit.explained[1] >= 0


def test_the_most_confident_mistakes_come_first(fitted, parts, exhibit):
    answers = prediction_fields(fitted, parts.test)
    assert len(exhibit.hardest) == min(12, int(exhibit.test.marked.sum())) > 0
    confidences = [hard.confidence for hard in exhibit.hardest]
    assert confidences == sorted(confidences, reverse=True)
    for hard in exhibit.hardest:
        position = int(hard.shown.name.removeprefix("image "))
        assert np.array_equal(hard.shown.pixels, parts.test.images[position])
        assert (hard.shown.number, hard.predicted) == (parts.test.labels[position], 1 - parts.test.labels[position])
        assert hard.confidence == answers["confidences"][position]


def test_the_nearest_support_vectors_are_those_of_a_slow_search(fitted, parts, exhibit):
    images = np.concatenate([parts.train.images, parts.validation.images])
    latents = fitted.transform(images).astype(np.float64)
    for hard in exhibit.hardest:
        mine = fitted.transform(parts.test.images[[int(hard.shown.name.removeprefix("image "))]])[0]
        by_distance = sorted(fitted.support_.tolist(), key=lambda one: float(((latents[one] - mine) ** 2).sum()))
        for shown, similarity, one in zip(hard.nearest, hard.similarities, by_distance[:3], strict=True):
            assert np.array_equal(shown.pixels, images[one])
            kernel = np.exp(-fitted.model_.gamma * ((latents[one] - mine) ** 2).sum())
            assert similarity == pytest.approx(kernel, abs=1e-3)


def test_without_mistakes_the_least_sure_are_shown(fitted, parts):
    right = fitted.predict(parts.test.images) == parts.test.labels
    shown = summarize_model(fitted, replace(parts, test=Subset(*(values[right] for values in parts.test)))).hardest
    confidences = [hard.confidence for hard in shown]
    assert len(shown) == min(6, int(right.sum()))
    assert confidences == sorted(confidences)
    assert all(hard.predicted == hard.shown.number for hard in shown)


def test_an_exhibit_is_made_where_it_is_asked_for(fitted, parts):
    assert requested_summary(fitted, parts) is None
    asked = replace(parts, exhibited=True)
    assert requested_summary(object(), asked) is None
    assert requested_summary(fitted, asked).classes == ["0", "1"]


def test_files_are_called_by_folder_and_name(fitted, parts, tmp_path):
    paths = [tmp_path / folder / "a.png" for folder in ("0", "sheet")]
    for path, image in zip(paths, parts.test.images, strict=False):
        path.parent.mkdir()
        Image.fromarray(image).save(path)
    labels = np.array([0, 1])
    images = ImageCollection(paths, labels=labels)
    names = {hard.shown.name for hard in summarize_model(fitted, replace(parts, test=Subset(images, labels))).hardest}
    assert names <= {"a.png", "sheet/a.png"}
    assert names
