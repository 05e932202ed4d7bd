import os
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch

import pieces_of_work as pieces
from lmfcn import LMFCNClassifier
from lmfcn.compute.parallel import (
    DaskPool,
    LostWorkerError,
    Workers,
    as_completed,
    effective_n_jobs,
    n_cores,
    use_workers,
    workers_of,
)
from lmfcn.compute.resources import WithThreads, use_threads


def test_a_cluster_without_workers(cluster):
    cluster.shrink()  # which has nothing to end if this is the first test of a cluster
    with pytest.raises(ConnectionError, match="has had no worker for 0 seconds; start some with `dask worker tcp://"):
        DaskPool(pieces.square, cluster.address, seconds_without_workers=0.5)


@pytest.fixture(params=["serial", "processes", "cluster"])
def place(request):
    if request.param == "cluster":
        return {"scheduler": request.getfixturevalue("cluster").grow_to(2)}
    return {"jobs": 1 if request.param == "serial" else 2}


def test_every_argument_comes_with_its_result_and_no_more_are_asked_for_than_can_run(place):
    asked, under_way = [], []

    def numbers():
        for number in range(12):
            asked.append(number)
            yield number

    results = as_completed(pieces.process_and_square, numbers(), **place)
    assert asked == []
    found, processes = {}, set()
    for argument, (process, result) in results:
        found[argument] = result
        processes.add(process)
        under_way.append(len(asked) - len(found) + 1)
    assert found == {number: number**2 for number in range(12)}
    n_places = 1 if place == {"jobs": 1} else 2
    assert max(under_way) == n_places
    assert len(processes) == n_places
    assert (os.getpid() in processes) == (place == {"jobs": 1})


def test_an_exception_stops_all_unless_it_is_caught(place):
    outcomes = dict(as_completed(pieces.reciprocal, [2, 0, 4], **place, catch=ZeroDivisionError))
    assert (outcomes.pop(2), outcomes.pop(4)) == (0.5, 0.25)
    assert isinstance(outcomes[0], ZeroDivisionError)
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        list(as_completed(pieces.reciprocal, [0, 2, 4], **place, catch=KeyError))


def test_an_argument_can_wait_for_a_result():
    done = []

    def numbers():
        yield 1
        while 1 not in done:
            yield None
        yield 2

    for argument, _ in as_completed(pieces.square, numbers(), jobs=2):
        done.append(argument)
    assert done == [1, 2]
    with pytest.raises(ValueError, match="depends on a result, but no task is running"):
        list(as_completed(pieces.square, [None]))


def test_a_process_that_dies_loses_only_its_piece(tmp_path):
    asked = as_completed(pieces.die_once(tmp_path, 2), range(5), jobs=2)
    assert sorted(argument for argument, _ in asked) == [0, 1, 2, 3, 4]
    assert (tmp_path / "died").exists()


def test_a_piece_that_nobody_survives_is_given_up():
    outcomes = dict(as_completed(pieces.die_on(2), range(4), jobs=2, catch=LostWorkerError))
    sentence = str(outcomes.pop(2))
    assert outcomes == {0: 0, 1: 1, 3: 3}
    assert sentence.startswith("3 processes died one after the other while they worked on 2; the likeliest reason is")


def test_large_arrays_are_shared_and_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    results = as_completed(pieces.Adder(np.arange(2**20)), [3, 5], jobs=2)
    assert dict(results) == {3: (3, False), 5: (5, False)}
    assert list(tmp_path.iterdir()) == []


def test_who_stops_asking_ends_the_processes(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    results = as_completed(pieces.process_and_square, iter(int, 1), jobs=2)  # endless
    process = next(results)[1][0]
    results.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_leaves_neither_processes_nor_folders_behind(tmp_path):
    code = (
        "import os, signal, time\n"
        "from lmfcn.compute.parallel import as_completed\n"
        "from pieces_of_work import process_and_square\n"
        "for _, (worker, _) in as_completed(process_and_square, iter(range(1000)), jobs=2):\n"
        "    print(worker, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    worker, end = int(killed.stdout), time.monotonic() + 60
    while (os.path.exists(f"/proc/{worker}") or list(tmp_path.glob("lmfcn-*"))) and time.monotonic() < end:
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{worker}")
    assert not list(tmp_path.glob("lmfcn-*"))


def test_threads_are_what_was_asked_for():
    before = torch.get_num_threads()
    assert list(as_completed(WithThreads(pieces.threads_and_jobs, 3), [0])) == [(0, (3, 1))]
    assert torch.get_num_threads() == before
    share = max(1, n_cores() // 2)
    assert list(as_completed(pieces.threads_before_and_within, [3], jobs=2)) == [(3, ((share, 1), (3, 1)))]


@pytest.mark.parametrize("jobs", [0, 1.5, True])
def test_jobs_must_be_a_whole_number(jobs):
    with pytest.raises(ValueError, match=r"jobs must be a whole number from 1 up, got"):
        as_completed(pieces.square, [1], jobs=jobs)


def test_what_cannot_be_sent_is_refused():
    lock = threading.Lock()
    with pytest.raises(ValueError, match="This function cannot be sent to other processes: cannot pickle"):
        as_completed(lambda _: lock, [1], jobs=2)


def test_nobody_answers():
    with pytest.raises(
        ConnectionError, match=r"No dask scheduler answers at tcp://127\.0\.0\.1:9 \(.*`dask scheduler`"
    ):
        DaskPool(pieces.square, "tcp://127.0.0.1:9", seconds_to_answer=0.5)


def test_somebody_listens_who_is_no_scheduler():
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(
            ConnectionError, match=rf"No dask scheduler answers at {address} \(nothing came back for 0 s"
        ):
            DaskPool(pieces.square, address, seconds_to_answer=0.5)


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        (
            "http://localhost:8787",
            r"http://localhost:8787 looks like the dashboard's address; give the scheduler's, such",
        ),
        ("nonsense", r"must be like tcp://10\.0\.0\.1:8786, which `dask scheduler` prints, got 'nonsense'\."),
        ("nowhere://here:8786", r"must be like .*, got 'nowhere://here:8786'\."),
        ("tcp://localhost", r"must be like .*, got 'tcp://localhost'\."),
        ("tcp://localhost:port", r"must be like .*, got 'tcp://localhost:port'\."),
        ("tcp://:8786", r"must be like .*, got 'tcp://:8786'\."),
        ("", r"must be like .*, got ''\."),
    ],
)
def test_what_cannot_be_an_address_is_refused_at_once(address, sentence, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(distributed, "Client", None)  # its remains would complain when they are collected
    with pytest.raises(ValueError, match=sentence):
        as_completed(pieces.square, [1], scheduler=address)


def test_the_extra_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"A cluster needs dask\.distributed: pip install 'lmfcn\[cluster\]'"):
        as_completed(pieces.square, [1], scheduler="tcp://127.0.0.1:9")


def test_a_worker_of_many_threads_is_spoken_of(cluster, monkeypatch):
    client, address = pytest.importorskip("distributed").Client, cluster.grow_to(2)
    known = client.nthreads
    monkeypatch.setattr(client, "nthreads", lambda self: dict.fromkeys(known(self), 8))
    with pytest.warns(UserWarning, match="A worker has 8 threads, but runs one task at a time; with"):
        assert list(as_completed(pieces.square, [3], scheduler=address)) == [(3, 9)]


def test_no_worker_stands_idle_while_another_has_two_pieces(cluster):
    found = dict(as_completed(pieces.process_and_square, [1, 2], scheduler=cluster.grow_to(2)))
    assert {process for process, _ in found.values()} == {worker.pid for worker in cluster.workers}


def test_other_versions_are_refused(cluster):
    expected = {"torch": "1.0", "numpy": np.__version__}
    with pytest.raises(ValueError, match=r"has torch \S+ instead of 1\.0; install the same versions everywhere"):
        DaskPool(pieces.square, cluster.grow_to(2), expected=expected)


def test_a_scheduler_that_goes_away(cluster, monkeypatch):
    def broken(*_, **__):
        raise OSError("closed")

    results = as_completed(pieces.square, [1], scheduler=cluster.grow_to(2))
    monkeypatch.setattr(pytest.importorskip("distributed").Client, "submit", broken)
    with pytest.raises(ConnectionError, match=rf"The connection to the dask scheduler at {cluster.address} is lost\."):
        next(results)


def three_classes(textures):
    images = np.concatenate([textures[0], 255 - textures[0][:8]])
    return images, np.concatenate([textures[1], np.full(8, 2)])


def test_one_vs_all_on_a_cluster(cluster, textures):
    from distributed import Client, get_task_stream

    data = three_classes(textures)
    tiny = {"epochs": 1, "latent_dim": 3, "widths": (4,), "strategy": "one-vs-all", "device": "cpu", "random_state": 0}
    with use_threads(1):
        serial = LMFCNClassifier(**tiny).fit(*data)
        address = cluster.grow_to(2)
        with (
            Client(address, set_as_default=False) as client,
            get_task_stream(client) as stream,
            use_workers(scheduler=address),
        ):
            on_cluster = LMFCNClassifier(**tiny).fit(*data)
    assert len({task["worker"] for task in stream.data}) == 2
    for one, other in zip(serial.model_.parameters(), on_cluster.model_.parameters(), strict=True):
        assert torch.equal(one, other)


def test_n_jobs_is_that_of_scikit_learn():
    cores = n_cores()
    assert [effective_n_jobs(n_jobs) for n_jobs in (None, 1, 5, -1, -2, -99)] == [1, 1, 5, cores, max(1, cores - 1), 1]


def test_workers_in_use_come_before_n_jobs():
    assert workers_of(3) == Workers(3)
    with use_workers(scheduler="tcp://somewhere:8786"):
        assert workers_of(3) == Workers(1, "tcp://somewhere:8786")
        assert not workers_of(None).serial
        with use_workers(jobs=1):
            assert workers_of(3).serial
    assert workers_of(3) == Workers(3)
    with pytest.raises(ValueError, match=r"jobs must be a whole number from 1 up, got 0\."), use_workers(jobs=0):
        pass


def test_a_process_that_dies_does_not_end_the_pool_of_a_caller_who_catches_nothing():
    with pytest.raises(LostWorkerError, match="3 processes died one after the other while they worked on 1; the"):
        list(as_completed(pieces.die_on(1), [1, 2], jobs=2))
