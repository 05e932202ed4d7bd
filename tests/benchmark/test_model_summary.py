from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from lmfcn import LMFCNClassifier, Recipe, make_gaussians
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


def test_predictions_by_hand():
    probabilities = np.array([[0.7, 0.3], [0.4, 0.6], [0.123456, 0.876544]])
    fitted = SimpleNamespace(classes_=np.array(["bark", "wood"]), predict_proba=lambda _: probabilities)
    predictions = prediction_fields(fitted, Subset(np.zeros((3, 8, 8)), np.array(["bark", "bark", "wood"])))
    assert predictions == {
        "test_balanced_accuracy": pytest.approx(0.75),
        "classes": ["bark", "wood"],
        "test_classes": [0, 0, 1],
        "predicted_classes": [0, 1, 1],
        "confidences": [0.7, 0.6, 0.8765],
    }


ORIGIN = {"task": "cloth", "method": "LMFCN", "seed": 0, "split": "abc"}


def test_what_is_written_is_read(tmp_path, random):
    summary = some_summary(random, n_hardest=2)
    write_summary(tmp_path / "summary", summary, ORIGIN)
    read = read_summary(tmp_path / "summary", ORIGIN)
    assert (read.classes, read.explained) == (summary.classes, summary.explained)
    for one, other in zip([*read.learnt, *read.test], [*summary.learnt, *summary.test], strict=True):
        assert np.array_equal(one, other)
        assert one.dtype == other.dtype
    assert len(read.hardest) == 2
    for one, other in zip(read.hardest, summary.hardest, strict=True):
        assert (one.predicted, one.confidence, one.similarities) == (1, 0.9, [0.9, 0.8, 0.7])
        for picture, expected in zip([one.picture, *one.nearest], [other.picture, *other.nearest], strict=True):
            assert np.array_equal(picture.pixels, expected.pixels)
            assert picture[1:] == expected[1:]


def test_a_summary_of_another_run_is_none(tmp_path, random):
    assert read_summary(tmp_path / "nothing", ORIGIN) is None
    write_summary(tmp_path / "summary", some_summary(random), ORIGIN)
    assert read_summary(tmp_path / "summary", {**ORIGIN, "split": "other images"}) is None


def test_a_damaged_file_is_refused(tmp_path, random):
    write_summary(tmp_path / "summary", some_summary(random), ORIGIN)
    (tmp_path / "summary").write_bytes((tmp_path / "summary").read_bytes()[:-100])
    with pytest.raises(FileError, match="truncated"):
        read_summary(tmp_path / "summary", ORIGIN)


def test_the_summary_of_a_run_has_a_file_of_its_own(tmp_path, random):
    run = run_of("LMFCN, untrained", 0, 0.5)
    with_summary = replace(run, model_summary=some_summary(random))
    append_run(tmp_path / "runs.jsonl", with_summary)
    assert "summary" not in (tmp_path / "runs.jsonl").read_text()
    assert list(read_runs(tmp_path / "runs.jsonl").values()) == [run]
    path = summary_path(tmp_path / "runs.jsonl", run.method)
    assert path == tmp_path / "exhibit-lmfcn-untrained.safetensors"
    assert read_summary(path, run.origin).classes == with_summary.model_summary.classes


def test_files_keep_the_former_name_of_the_papers_method(tmp_path, random):
    run = replace(run_of("LMFCN (paper)", 0, 0.5), model_summary=some_summary(random))
    append_run(tmp_path / "runs.jsonl", run)
    assert run.origin["method"] == "LMFCN, paper's preset"
    path = tmp_path / "exhibit-lmfcn-paper-s-preset.safetensors"
    assert read_summary(path, run.origin).classes == run.model_summary.classes


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    return SplitData(*(Subset(*make_gaussians(count, 16, random, stds=(28, 35))) for count in (10, 6, 8)))


@pytest.fixture(scope="module")
def fitted(data):
    classifier = LMFCNClassifier(
        epochs=1, latent_dim=4, widths=(4,), recipe=Recipe(passes=1), device="cpu", random_state=0
    )
    return classifier.fit(*data.train, validation=data.validation)


@pytest.fixture(scope="module")
def summary(fitted, data):
    return summarize_model(fitted, data)


def test_points_are_the_images_that_were_learnt_from_and_tested_on(fitted, data, summary):
    assert summary.learnt.places.shape == (32, 2)
    assert summary.test.places.shape == (16, 2)
    assert np.flatnonzero(summary.learnt.marked).tolist() == sorted(fitted.support_.tolist())
    assert summary.learnt.classes.tolist() == [*data.train.labels, *data.validation.labels]
    assert np.array_equal(summary.test.marked, fitted.predict(data.test.images) != data.test.labels)
    assert 1 >= summary.explained[0] >= summary.explained[1] >= 0


def test_the_most_confident_mistakes_come_first(fitted, data, summary):
    predictions = prediction_fields(fitted, data.test)
    assert len(summary.hardest) == min(12, int(summary.test.marked.sum())) > 0
    confidences = [hard.confidence for hard in summary.hardest]
    assert confidences == sorted(confidences, reverse=True)
    for hard in summary.hardest:
        position = int(hard.picture.name.removeprefix("image "))
        assert np.array_equal(hard.picture.pixels, data.test.images[position])
        assert (hard.picture.number, hard.predicted) == (data.test.labels[position], 1 - data.test.labels[position])
        assert hard.confidence == predictions["confidences"][position]


def test_the_nearest_support_vectors_are_those_of_a_slow_search(fitted, data, summary):
    images = np.concatenate([data.train.images, data.validation.images])
    latents = fitted.transform(images).astype(np.float64)
    for hard in summary.hardest:
        latent = fitted.transform(data.test.images[[int(hard.picture.name.removeprefix("image "))]])[0]
        by_distance = sorted(fitted.support_.tolist(), key=lambda one: float(((latents[one] - latent) ** 2).sum()))
        for picture, similarity, one in zip(hard.nearest, hard.similarities, by_distance[:3], strict=True):
            assert np.array_equal(picture.pixels, images[one])
            kernel = np.exp(-fitted.model_.gamma * ((latents[one] - latent) ** 2).sum())
            assert similarity == pytest.approx(kernel, abs=1e-3)


def test_without_mistakes_the_least_confident_are_shown(fitted, data):
    right = fitted.predict(data.test.images) == data.test.labels
    shown = summarize_model(fitted, replace(data, test=Subset(*(values[right] for values in data.test)))).hardest
    confidences = [hard.confidence for hard in shown]
    assert len(shown) == min(6, int(right.sum()))
    assert confidences == sorted(confidences)
    assert all(hard.predicted == hard.picture.number for hard in shown)


def test_a_summary_is_made_only_on_request(fitted, data):
    assert requested_summary(fitted, data) is None
    requested = replace(data, with_summary=True)
    assert requested_summary(object(), requested) is None
    assert requested_summary(fitted, requested).classes == ["0", "1"]


def test_files_are_called_by_folder_and_name(fitted, data, tmp_path):
    paths = [tmp_path / folder / "a.png" for folder in ("0", "sheet")]
    for path, image in zip(paths, data.test.images, strict=False):
        path.parent.mkdir()
        Image.fromarray(image).save(path)
    labels = np.array([0, 1])
    images = ImageCollection(paths, labels=labels)
    names = {hard.picture.name for hard in summarize_model(fitted, replace(data, test=Subset(images, labels))).hardest}
    assert names <= {"a.png", "sheet/a.png"}
    assert names
