import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lmfcn import Callback, LMFCNClassifier, make_gaussians
from lmfcn.compute.resources import ThreadCounts, use_threads
from lmfcn.data.collection import ImageCollection
from lmfcn.method.epoch import Training
from lmfcn.method.history import TrainingWarning
from lmfcn.training.checkpoints import Checkpoints, restore_training, training_state
from lmfcn.util.tensor_files import FileError
from some_training import QUICK, EachEpoch, classifier_of, measured, problem_of, training_of

PAPER = replace(QUICK, support_loss="pull", distance_units="latent", batch_size="all", optimizer="adadelta")


def stopped(textures, recipe, n_epochs):
    """The state of a training that was stopped after some epochs."""
    training = training_of(problem_of(textures), recipe)
    for epoch in range(n_epochs):
        training.history.append(training.train_epoch(epoch)[0])
    tensors, values = training_state(training)
    return {name: tensor.clone() for name, tensor in tensors.items()}, values


@pytest.mark.parametrize("recipe", [QUICK, PAPER], ids=["adamw", "adadelta"])
@pytest.mark.parametrize("n_epochs", [1, 2, 4])
def test_a_restored_training_ends_as_one_that_was_never_stopped(textures, recipe, n_epochs):
    whole = training_of(problem_of(textures), recipe)
    whole.run()
    # A new process would start from other weights and another generator.
    resumed = training_of(problem_of(textures), recipe, seed=9)
    restore_training(resumed, *stopped(textures, recipe, n_epochs))
    assert resumed.finished is (n_epochs == 4)
    resumed.run()
    assert measured(resumed.history) == measured(whole.history)
    assert resumed.selected.epoch == whole.selected.epoch
    for network in ("network", "kept.network"):
        ours, theirs = (training_state(training)[0] for training in (resumed, whole))
        names = [name for name in theirs if name.startswith(network)]
        assert names
        assert all(torch.equal(ours[name], theirs[name]) for name in names)
    ours, theirs = resumed.selected.decision.tensors(), whole.selected.decision.tensors()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_the_state_holds_the_optimisers_memory(textures):
    tensors, values = stopped(textures, QUICK, 1)
    assert any(name.startswith("optimizer.0.exp_avg") for name in tensors)
    assert len(values["history"]) == 1
    assert values["kept"]["epoch"] == 0


def test_an_interrupted_epoch_leaves_no_trace(textures, monkeypatch):
    training = training_of(problem_of(textures))
    training.history.append(training.train_epoch(0)[0])
    selected = training.selected
    monkeypatch.setattr(training.descent, "back_propagate", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        training.run()
    assert training.selected is selected
    assert len(training.history) == 1


def quick(**changes) -> LMFCNClassifier:
    options = {"latent_dim": 4, "widths": (6, 8), "epochs": 3, "passes": 2, "random_state": 0, "device": "cpu"}
    return classifier_of(**{**options, **changes})


def three_classes():
    images, labels = make_gaussians(12, 16, random_state=0)
    return images, np.where(np.arange(24) % 4 == 0, 2, labels)


def same(one: LMFCNClassifier, other: LMFCNClassifier) -> bool:
    """Whether two fits ended at the same model and the same history, bit for bit."""

    def told(classifier):
        phases = [classifier.history_, classifier.refit_history_ or []]
        histories = [history for phase in phases for history in (phase if isinstance(phase, list) else [phase])]
        records = [asdict(record) for history in histories for record in history]
        return [{name: entry[name] for name in entry if not name.startswith("seconds")} for entry in records]

    states = one.model_.state_dict(), other.model_.state_dict()
    equal = all(np.array_equal(states[0][name], states[1][name]) for name in states[0])
    return equal and states[0].keys() == states[1].keys() and told(one) == told(other)


class Stop(Exception):  # noqa: N818
    pass


def stop_after(n_epochs: int, error: type[BaseException] = Stop) -> list[Callback]:
    """A callback, as `fit` takes it, that raises in the epoch after so many."""
    epochs = []

    def count(*_):
        epochs.append(1)
        if len(epochs) > n_epochs:
            raise error

    return [EachEpoch(count)]


class StopAtStart(Callback):
    """Raises before the first epoch, of which nothing is saved then."""

    def on_training_start(self, training):  # noqa: ARG002
        raise Stop


@pytest.mark.parametrize("strategy", ["joint", "one-vs-all"])
@pytest.mark.parametrize("n_epochs", [0, 3, 4, 10])
def test_a_stopped_fit_goes_on_and_ends_the_same(tmp_path, strategy, n_epochs):
    data = three_classes()
    whole = quick(strategy=strategy).fit(*data)
    with contextlib.suppress(Stop):
        quick(strategy=strategy, checkpoint_dir=tmp_path).fit(*data, callbacks=stop_after(n_epochs))
    assert same(quick(strategy=strategy, checkpoint_dir=tmp_path).fit(*data), whole)
    assert list(tmp_path.glob("*.part")) == []


def test_a_finished_fit_is_not_run_again(tmp_path, textures):
    first = quick(checkpoint_dir=tmp_path).fit(*textures)
    epochs = []
    again = quick(checkpoint_dir=tmp_path).fit(*textures, callbacks=[EachEpoch(lambda *_: epochs.append(1))])
    assert epochs == []
    assert same(first, again)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_workers_write_and_read_checkpoints(tmp_path, n_jobs):
    data = three_classes()
    with use_threads(1):
        first = quick(strategy="one-vs-all", checkpoint_dir=tmp_path, n_jobs=n_jobs).fit(*data)
        again = quick(strategy="one-vs-all", checkpoint_dir=tmp_path, n_jobs=3 - n_jobs).fit(*data)
    assert same(first, again)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "network-0-refit.safetensors",
        "network-0.safetensors",
        "network-1-refit.safetensors",
        "network-1.safetensors",
        "network-2-refit.safetensors",
        "network-2.safetensors",
        "run.json",
    ]


@pytest.fixture
def interrupt_when():
    """A function that interrupts this process, as Ctrl-C does, as soon as there is a file."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    watchers = []

    def watch(path):
        while not path.exists():
            time.sleep(0.01)
        signal.raise_signal(signal.SIGINT)

    def start(path):
        watchers.append(threading.Thread(target=watch, args=(path,)))
        watchers[-1].start()

    yield start
    for watcher in watchers:
        watcher.join()
    signal.signal(signal.SIGINT, before)


def test_a_resumed_fit_computes_with_the_threads_that_it_was_started_with(tmp_path, interrupt_when):
    data = three_classes()
    with use_threads(6):
        whole = quick(strategy="one-vs-all", n_jobs=2, checkpoint_dir=tmp_path / "whole").fit(*data)
        interrupt_when(tmp_path / "stopped" / "network-0.safetensors")  # in the middle of the other networks
        with pytest.raises(KeyboardInterrupt):
            quick(strategy="one-vs-all", n_jobs=2, checkpoint_dir=tmp_path / "stopped").fit(*data)
    stored = json.loads((tmp_path / "stopped" / "run.json").read_text())["threads"]
    assert stored == {"process": 6, "network": 3}
    with use_threads(1):
        with pytest.warns(
            TrainingWarning,
            match=r"The fit in .*stopped was started with 6 threads, 3 per network, and goes on with the same instead"
            r" of 1 thread: bits depend on it\. Delete the folder to start anew\.",
        ):
            resumed = quick(strategy="one-vs-all", checkpoint_dir=tmp_path / "stopped").fit(*data)
        assert torch.get_num_threads() == 1
        assert not same(quick(strategy="one-vs-all").fit(*data), whole)
    assert same(resumed, whole)


def test_one_network_goes_on_with_the_threads_that_it_was_started_with(tmp_path, textures):
    with use_threads(3):
        whole = quick().fit(*textures)
        with pytest.raises(Stop):
            quick(checkpoint_dir=tmp_path).fit(*textures, callbacks=stop_after(1))
    with (
        use_threads(1),
        pytest.warns(TrainingWarning, match=r"started with 3 threads, and goes on .* of 1 thread: bits"),
    ):
        resumed = quick(checkpoint_dir=tmp_path, n_jobs=2).fit(*textures)
    assert same(resumed, whole)


def test_a_run_that_has_saved_no_network_takes_the_threads_of_now(tmp_path, textures):
    with use_threads(3), pytest.raises(Stop):
        quick(checkpoint_dir=tmp_path).fit(*textures, callbacks=[StopAtStart()])
    assert list(tmp_path.glob("network-*")) == []
    with use_threads(1):
        assert same(quick(checkpoint_dir=tmp_path).fit(*textures), quick().fit(*textures))
    assert json.loads((tmp_path / "run.json").read_text())["threads"] == {"process": 1, "network": 1}


def test_a_folder_of_an_older_version_goes_on_and_gets_the_threads_of_now(tmp_path, textures):
    with pytest.raises(Stop):
        quick(checkpoint_dir=tmp_path).fit(*textures, callbacks=stop_after(1))
    run = json.loads((tmp_path / "run.json").read_text())
    threads = run.pop("threads")
    (tmp_path / "run.json").write_text(json.dumps(run))
    assert same(quick(checkpoint_dir=tmp_path).fit(*textures), quick().fit(*textures))
    assert json.loads((tmp_path / "run.json").read_text())["threads"] == threads


@pytest.mark.parametrize("threads", [3, {"process": 3}, {"process": 3, "network": 0}, {"process": 3, "network": "1"}])
def test_damaged_numbers_of_threads_are_noticed(tmp_path, threads):
    (tmp_path / "run.json").write_text(json.dumps({"seed": 1, "threads": threads}))
    with pytest.raises(ValueError, match=r"run\.json is damaged; delete .* to start anew"):
        Checkpoints.open(tmp_path).claim({"seed": 1}, ThreadCounts(1, 1))


def test_an_open_seed_is_that_of_the_run_in_the_folder(tmp_path, textures):
    with pytest.raises(Stop):
        quick(random_state=None, checkpoint_dir=tmp_path).fit(*textures, callbacks=stop_after(1))
    resumed = quick(random_state=None, checkpoint_dir=tmp_path).fit(*textures)
    again = quick(random_state=np.random.default_rng(), checkpoint_dir=tmp_path).fit(*textures)
    assert same(resumed, again)
    assert not same(resumed, quick(random_state=None).fit(*textures))


def other_pixels(images, labels):
    return np.where(np.arange(images.shape[2]) == 3, images, 255 - images), labels


@pytest.mark.parametrize(
    ("changes", "data", "message"),
    [
        ({"epochs": 4}, None, "parameters epochs was 3 and is 4"),
        ({"C": 3.0}, None, "parameters C was 10.0 and is 3.0"),
        ({"widths": (6, 9)}, None, r"parameters widths was \[6, 8\] and is \[6, 9\]"),
        ({"random_state": 1}, None, "seed was"),
        ({}, other_pixels, "data fingerprint was"),
        ({}, lambda images, labels: (images, 1 - labels), "data fingerprint was"),
    ],
)
def test_another_run_is_noticed_and_refused(tmp_path, textures, changes, data, message):
    quick(checkpoint_dir=tmp_path).fit(*textures)
    X, y = textures if data is None else data(*textures)
    with pytest.raises(ValueError, match=rf"belong to another run: .*{message}.*another checkpoint_dir .*, or delete"):
        quick(checkpoint_dir=tmp_path, **changes).fit(X, y)


def test_another_version_is_noticed_and_refused(tmp_path, textures):
    quick(checkpoint_dir=tmp_path).fit(*textures)
    run = json.loads((tmp_path / "run.json").read_text())
    run["versions"]["torch"] = "1.0"
    (tmp_path / "run.json").write_text(json.dumps(run))
    with pytest.raises(ValueError, match=r"versions torch was '1\.0' and is"):
        quick(checkpoint_dir=tmp_path).fit(*textures)


def test_checkpoints_of_the_earlier_format_are_refused(tmp_path, textures):
    quick(checkpoint_dir=tmp_path).fit(*textures)
    run = json.loads((tmp_path / "run.json").read_text())
    del run["format of the checkpoints"]
    (tmp_path / "run.json").write_text(json.dumps(run))
    message = r"belong to another run: format of the checkpoints was 'missing' and is 2\. .*, or delete the folder\.$"
    with pytest.raises(ValueError, match=message):
        quick(checkpoint_dir=tmp_path).fit(*textures)


def test_what_does_not_change_the_result_may_change(tmp_path, textures):
    first = quick(checkpoint_dir=tmp_path).fit(*textures)
    again = quick(checkpoint_dir=str(tmp_path), n_jobs=2, verbose=True).fit(*textures, callbacks=[EachEpoch(print)])
    assert same(again, first)


def test_a_damaged_folder_is_named(tmp_path, textures):
    quick(checkpoint_dir=tmp_path).fit(*textures)
    (tmp_path / "network-0.safetensors").write_bytes(b"rubbish")
    with pytest.raises(FileError, match=r"network-0.safetensors is not in the safetensors format"):
        quick(checkpoint_dir=tmp_path).fit(*textures)
    for text in ("{", "[1]"):
        (tmp_path / "run.json").write_text(text)
        with pytest.raises(ValueError, match=r"run.json is damaged; delete .* to start anew"):
            quick(checkpoint_dir=tmp_path).fit(*textures)


def test_a_file_is_not_a_folder(tmp_path, textures):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"checkpoint_dir must be a folder, but .*file is a file"):
        quick(checkpoint_dir=tmp_path / "file").fit(*textures)


def test_leftovers_of_a_killed_process_are_removed(tmp_path):
    for name in ("network-0.safetensors.123.part", "run.json.123.part", "thesis.pdf.part"):
        (tmp_path / name).write_text("half")
    Checkpoints.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.pdf.part"]


@pytest.mark.parametrize("folder", ["", 5])
def test_a_folder_must_be_named(textures, folder):
    with pytest.raises(ValueError, match="checkpoint_dir must be the path of a folder, got"):
        quick(checkpoint_dir=folder).fit(*textures)


def test_checkpoints_without_their_identity_are_not_taken_over(tmp_path, textures):
    quick(checkpoint_dir=tmp_path).fit(*textures)
    (tmp_path / "run.json").unlink()
    with pytest.raises(ValueError, match=r"network-0.safetensors belongs to another run; delete"):
        quick(checkpoint_dir=tmp_path, C=3.0).fit(*textures)


def test_a_run_that_never_started_does_not_block_the_folder(tmp_path, textures):
    with pytest.raises(ValueError, match="class_weight names labels"):
        quick(checkpoint_dir=tmp_path, class_weight={7: 2.0}).fit(*textures)
    with pytest.raises(Stop):
        quick(checkpoint_dir=tmp_path, epochs=7).fit(*textures, callbacks=[StopAtStart()])
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    quick(checkpoint_dir=tmp_path, class_weight={1: 2.0}).fit(*textures)


def test_collections_and_rows_go_on_too(tmp_path, textures):
    images, labels = textures
    for name, data, options in (
        ("collection", (ImageCollection(images, labels),), {}),
        ("rows", (images.reshape(len(images), -1), labels), {"image_shape": (16, 16)}),
    ):
        with pytest.raises(Stop):
            quick(checkpoint_dir=tmp_path / name, **options).fit(*data, callbacks=stop_after(1))
        assert same(quick(checkpoint_dir=tmp_path / name, **options).fit(*data), quick(**options).fit(*data))


def test_progress_counts_what_was_done_before(tmp_path, textures, capsys):
    with pytest.raises(Stop):
        quick(checkpoint_dir=tmp_path).fit(*textures, callbacks=stop_after(2))
    quick(checkpoint_dir=tmp_path, verbose=True).fit(*textures)
    shown = capsys.readouterr().err
    assert re.search(r"^Training on .*: 2/3 epochs, epoch 2: epoch score", shown, re.MULTILINE)
    assert re.search(r"^Refit on all .*: 3/3 epochs, epoch 3: \d+ support vectors", shown, re.MULTILINE)


def interrupt_after(n_epochs: int) -> list[Callback]:
    return stop_after(n_epochs, KeyboardInterrupt)


def test_ctrl_c_selects_an_epoch(textures):
    with pytest.warns(TrainingWarning, match=r"Interrupted after epoch 1; epoch \d is selected. Give checkp"):
        classifier = quick().fit(*textures, callbacks=interrupt_after(1))
    assert classifier.interrupted_
    assert classifier.model_.record["interrupted"] is True
    assert len(classifier.history_) == 2
    assert classifier.refit_history_ is None
    assert classifier.best_epoch_ <= 1
    assert classifier.predict(textures[0]).shape == (32,)


def test_ctrl_c_among_the_refit_epochs_selects_the_last_of_them(textures):
    with pytest.warns(TrainingWarning, match=r"Interrupted after epoch 5; epoch 5 is selected."):
        classifier = quick(epochs=6, refit_epochs=3).fit(*textures, callbacks=interrupt_after(5))
    assert classifier.history_.column("epoch") == [0, 1, 2, 3]
    assert classifier.refit_history_.column("epoch") == [4, 5]
    assert classifier.interrupted_
    assert classifier.predict(textures[0]).shape == (32,)


def test_ctrl_c_in_the_first_refit_epoch_leaves_the_selected_epoch(textures, tmp_path, monkeypatch):
    train_epoch = Training.train_epoch

    def interrupted(self, epoch):
        if self.first_epoch:
            raise KeyboardInterrupt
        return train_epoch(self, epoch)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "train_epoch", interrupted)
        with pytest.warns(TrainingWarning, match=r"Interrupted after epoch 2; epoch \d is selected. To go on"):
            classifier = quick(epochs=4, checkpoint_dir=tmp_path).fit(*textures)
    assert classifier.refit_history_ is None
    assert classifier.n_iter_ == 2
    assert classifier.predict(textures[0]).shape == (32,)
    assert classifier.interrupted_
    resumed = quick(epochs=4, checkpoint_dir=tmp_path).fit(*textures)
    assert not resumed.interrupted_
    assert resumed.model_.record["interrupted"] is False
    assert same(resumed, quick(epochs=4).fit(*textures))


def test_ctrl_c_says_how_to_go_on_and_going_on_works(tmp_path, textures):
    with pytest.warns(
        TrainingWarning, match=r"To go on, call fit again with the same data, parameters and checkpoint_dir="
    ):
        quick(checkpoint_dir=tmp_path).fit(*textures, callbacks=interrupt_after(1))
    assert same(quick(checkpoint_dir=tmp_path).fit(*textures), quick().fit(*textures))


def test_ctrl_c_before_anything_was_reached_is_passed_on(textures, monkeypatch):
    monkeypatch.setattr("lmfcn.method.epoch.Training.train_epoch", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        quick().fit(*textures)


def test_ctrl_c_between_networks_is_passed_on_with_advice(tmp_path):
    with pytest.raises(KeyboardInterrupt) as caught:
        quick(strategy="one-vs-all", checkpoint_dir=tmp_path).fit(*three_classes(), callbacks=interrupt_after(5))
    assert "To go on, call fit again" in caught.value.__notes__[0]
    resumed = quick(strategy="one-vs-all", checkpoint_dir=tmp_path).fit(*three_classes())
    assert same(resumed, quick(strategy="one-vs-all").fit(*three_classes()))


def test_ctrl_c_in_the_last_step_says_how_to_go_on(tmp_path, textures, monkeypatch):
    monkeypatch.setattr("lmfcn.training.fit.fit_final_svm", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt) as caught:
        quick(checkpoint_dir=tmp_path).fit(*textures)
    assert "To go on, call fit again" in caught.value.__notes__[0]


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
@pytest.mark.parametrize("strategy", ["joint", "one-vs-all"])
def test_killed_twenty_times_in_a_row_the_run_ends_the_same(tmp_path, strategy):
    script = Path(__file__).parent.parent / "killed_training.py"
    result = subprocess.run(
        [sys.executable, script, tmp_path, strategy], capture_output=True, text=True, check=True, timeout=300
    )
    told = json.loads(result.stdout)
    # Some are killed before they save an epoch, some get further than the one before; none falls behind it.
    assert told["n_killed"] >= 15
    assert told["last_status"] == 0
    assert told["progress"] == sorted(told["progress"])
    assert len(set(told["progress"])) >= 5
    assert load_stripped(tmp_path / "killed" / "model.lmfcn") == load_stripped(tmp_path / "whole" / "model.lmfcn")


def load_stripped(path):
    """Everything in a model file but the seconds that epochs took."""
    from lmfcn.model_file import KIND, VERSION_WITH_SCALES
    from lmfcn.util.tensor_files import read_tensors

    values, tensors = read_tensors(path, KIND, VERSION_WITH_SCALES)
    for history in values["record"]["histories"] + values["record"]["closing_histories"]:
        for record in history:
            for name in [name for name in record if name.startswith("seconds")]:
                del record[name]
    return values, {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}
