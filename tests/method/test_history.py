import json
import sys
from dataclasses import fields, replace

import pytest

from lmfcn.method.history import EpochRecord, History, Stopwatch

RECORD = EpochRecord(
    epoch=0,
    phase="training",
    train_balanced_accuracy=0.75,
    validation_balanced_accuracy=None,
    n_support=7,
    n_misclassified=2,
    n_settled=3,
    support_loss=1.5,
    correction_loss=0.25,
    separation_loss=0.0,
    head_loss=0.6,
    n_backpropagated=21,
    n_without_anchor=1,
    gamma=0.125,
    learning_rate=0.001,
    latent_spread=0.3,
    seconds_encoding=0.1,
    seconds_svm=0.01,
    seconds_anchors=0.001,
    seconds_backpropagation=0.2,
)


@pytest.fixture
def history():
    return History([RECORD, replace(RECORD, epoch=1, n_support=4, validation_balanced_accuracy=0.9)])


def test_round_trip_through_json_lines(history, tmp_path):
    history.save(tmp_path / "run.jsonl")
    assert History.load(tmp_path / "run.jsonl") == history
    lines = (tmp_path / "run.jsonl").read_text().splitlines()
    assert [json.loads(line)["n_support"] for line in lines] == [7, 4]


def test_files_of_earlier_versions_name_no_phase_and_stay_readable(history, tmp_path):
    path = tmp_path / "run.jsonl"
    history.save(path)
    path.write_text(path.read_text().replace('"phase": "training", ', ""))
    read = History.load(path)
    assert read.column("phase") == [None, None]
    assert read.column("n_support") == [7, 4]
    assert read != history


def test_columns_and_access(history):
    assert history.column("n_support") == [7, 4]
    assert len(history) == 2
    assert history[-1].epoch == 1
    assert [record.epoch for record in history] == [0, 1]
    assert history != History([RECORD])


def test_a_truncated_file_is_named_with_its_line(history, tmp_path):
    path = tmp_path / "run.jsonl"
    history.save(path)
    path.write_text(path.read_text()[:-30])
    with pytest.raises(ValueError, match=r"run\.jsonl, line 2: expected a JSON object.*truncated"):
        History.load(path)


def test_foreign_fields_are_refused(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text('{"epoch": 1}\n')
    with pytest.raises(ValueError, match=r"line 1: expected the fields .*got \['epoch'\]"):
        History.load(path)


def test_a_failed_save_leaves_the_old_file_and_no_rest(history, tmp_path):
    path = tmp_path / "run.jsonl"
    history.save(path)
    before = path.read_text()
    with pytest.raises(ValueError, match="JSON"):
        History([replace(RECORD, gamma=float("nan"))]).save(path)
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


def test_stopwatch_adds_up_under_each_name():
    clock = Stopwatch()
    for _ in range(2):
        with clock("svm"):
            pass
    with clock("encoding"):
        pass
    assert set(clock.seconds) == {"svm", "encoding"}
    assert all(seconds >= 0 for seconds in clock.seconds.values())


def test_a_frame_has_a_row_per_epoch():
    pandas = pytest.importorskip("pandas")
    frame = History([RECORD, replace(RECORD, epoch=1, n_support=5)]).to_frame()
    assert frame["n_support"].tolist() == [7, 5]
    assert frame["validation_balanced_accuracy"].isna().all()
    assert list(frame.columns) == [field.name for field in fields(EpochRecord)]
    assert isinstance(History().to_frame(), pandas.DataFrame)


def test_a_frame_without_pandas_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"^This needs pandas: pip install 'lmfcn\[pandas\]'"):
        History([RECORD]).to_frame()
