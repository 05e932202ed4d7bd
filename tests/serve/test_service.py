"""`lmfcn serve` as a service: the real process, with signals, several models and its log."""

import hashlib
import json
import os
import pty
import shutil
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import pytest

from serving import as_files, copy_model, serving_command


def sha256(path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def both(fitted, other):
    with serving_command(fitted.path, other.path) as command, command.client() as client:
        yield client


def test_several_models_are_chosen_by_name(both, fitted, other):
    names = {"noise.lmfcn": fitted, "other.lmfcn": other}
    listed = both.get("models").json()["models"]
    assert listed == [{"name": name, "fingerprint": sha256(found.path)} for name, found in names.items()]
    for name, found in names.items():
        card = both.get("model", params={"model": name}).json()
        assert (card["name"], card["fingerprint"]) == (name, sha256(found.path))
        response = both.post("predict", params={"model": name}, files=as_files(fitted, [0, 5])).json()
        for answer, chances in zip(response["answers"], found.model.predict_proba(fitted.images[[0, 5]]), strict=True):
            assert answer["fingerprint"] == sha256(found.path)
            assert max(answer["probabilities"].values()) == pytest.approx(chances.max(), abs=1e-6)
        assert both.get("gallery", params={"model": name}).json()["fingerprint"] == sha256(found.path)


def test_without_a_name_the_first_model_answers(both, fitted):
    assert both.get("model").json()["name"] == "noise.lmfcn"
    (answer,) = both.post("predict", files=as_files(fitted, [0])).json()["answers"]
    assert answer["fingerprint"] == sha256(fitted.path)


@pytest.mark.parametrize(("method", "path"), [("GET", "model"), ("POST", "predict"), ("GET", "gallery/0")])
def test_an_unknown_model_is_refused_with_the_known_ones(both, method, path):
    response = both.request(method, path, params={"model": "x"})
    assert response.status_code == 404
    assert response.json()["detail"] == "There is no model 'x'; the models are noise.lmfcn, other.lmfcn."


def test_a_replaced_model_is_loaded_and_no_request_is_lost(fitted, other, tmp_path):
    path = tmp_path / "model.lmfcn"
    copy_model(fitted.path, path)
    expected = {
        sha256(fitted.path): fitted.model.predict_proba(fitted.images[:1]).max(),
        sha256(other.path): other.model.predict_proba(fitted.images[:1]).max(),
    }
    with serving_command(path) as command:

        def ask(client):
            response = client.post("predict", files=as_files(fitted, [0]))
            assert response.status_code == 200
            (answer,) = response.json()["answers"]
            assert max(answer["probabilities"].values()) == pytest.approx(expected[answer["fingerprint"]], abs=1e-6)
            return answer["fingerprint"]

        def ask_until(fingerprint):
            with command.client() as client:
                while ask(client) != fingerprint:
                    pass
                return ask(client)

        with ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(ask_until, sha256(other.path)) for _ in range(4)]
            copy_model(other.path, path)
            command.process.send_signal(signal.SIGHUP)
            assert [answer.result() for answer in answers] == [sha256(other.path)] * 4
        assert sha256(other.path) in command.wait_for("model.lmfcn is loaded")


def test_a_broken_file_leaves_the_old_model_in_place(fitted, tmp_path):
    path = tmp_path / "model.lmfcn"
    copy_model(fitted.path, path)
    fingerprint = sha256(path)
    with serving_command(path, "--log-json") as command, command.client() as client:
        path.write_bytes(fitted.path.read_bytes()[:-100])
        command.process.send_signal(signal.SIGHUP)
        line = json.loads(command.wait_for("was not loaded"))
        assert line["level"] == "error"
        assert "truncated" in line["message"]
        assert client.get("model").json()["fingerprint"] == fingerprint
        assert client.post("predict", files=as_files(fitted, [0])).status_code == 200
        assert 'lmfcn_model_loads_total{model="model.lmfcn",result="failed"} 1' in client.get("metrics").text


def test_a_stopping_server_finishes_its_work_and_refuses_new(fitted):
    with serving_command(fitted.path, "--threads", 1) as command, command.client() as client:
        with ThreadPoolExecutor(1) as pool:
            files = as_files(fitted, list(range(16)) * 8)
            work = pool.submit(client.post, "predict", params={"reasons": True}, files=files)
            with command.client() as second:
                while "lmfcn_requests_in_progress 1" not in second.get("metrics").text:
                    pass
                command.process.send_signal(signal.SIGTERM)
                while second.get("ready").status_code == 200:
                    pass
                refused = [second.get("ready"), second.post("predict", files=as_files(fitted, [0]))]
                assert second.get("health").status_code == 200
            answer = work.result()
        assert command.process.wait(timeout=60) == 0
        assert (command.process.stdout.read(), command.process.stderr.read()) == ("Stopped.\n", "")
    assert answer.status_code == 200
    assert len(answer.json()["answers"]) == len(files)
    for response in refused:
        assert response.status_code == 503
        assert int(response.headers["retry-after"]) > 0
        assert response.headers["connection"] == "close"
        assert response.json()["detail"] == "The server is stopping; ask again when it has started anew."


def test_a_second_signal_ends_the_server_at_once(fitted):
    with serving_command(fitted.path, "--threads", 1) as command, ThreadPoolExecutor(1) as pool:
        files = as_files(fitted, list(range(16)) * 12)
        work = pool.submit(httpx.post, f"{command.address}predict?reasons=1", files=files, timeout=60)
        while "lmfcn_requests_in_progress 1" not in httpx.get(f"{command.address}metrics").text:
            pass
        for _ in range(2):
            command.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
        out, err = command.process.communicate(timeout=30)
        assert "Traceback" not in err
        assert (command.process.returncode, out) == (0, "Stopped.\n")
        with suppress(httpx.TransportError):
            assert work.result().status_code == 503


def test_the_log_has_a_line_of_json_for_every_request(fitted):
    with serving_command(fitted.path, "--log-json") as command, command.client() as client:
        response = client.post("predict", files=as_files(fitted, [0, 1]), headers={"X-Request-ID": "mine-1"})
        client.get("nothing%22%0A", headers={"X-Request-ID": 'forged"'})
        code, out, err = command.stop()
    assert (code, out) == (0, "Stopped.\n")
    first, second = (json.loads(line) for line in err.splitlines())
    assert response.headers["x-request-id"] == first["request_id"] == "mine-1"
    assert (first["method"], first["path"], first["status"], first["images"]) == ("POST", "/predict", 200, 2)
    assert (first["model"], first["fingerprint"]) == ("noise.lmfcn", sha256(fitted.path))
    assert 0 < first["seconds"] < 60
    assert (second["path"], second["status"]) == ('/nothing"\n', 404)
    assert len(second["request_id"]) == 32
    assert "png" not in err


def test_two_models_of_one_name_are_refused(fitted, tmp_path):
    shutil.copy(fitted.path, tmp_path / "noise.lmfcn")
    with (
        pytest.raises(AssertionError, match=r"Two models have the name noise\.lmfcn"),
        serving_command(fitted.path, tmp_path / "noise.lmfcn"),
    ):
        pass


def test_the_server_ends_with_its_terminal(fitted):
    process, terminal = pty.fork()
    if process == 0:
        signal.signal(
            signal.SIGHUP, signal.SIG_DFL
        )  # the tests may run under nohup, which passes on that it is ignored
        os.execv(sys.executable, [sys.executable, "-m", "lmfcn", "serve", str(fitted.path), "--port", "0", "--quiet"])
    try:
        printed = b""
        while b"Ctrl-C" not in printed:
            printed += os.read(terminal, 1000)
        os.kill(process, signal.SIGHUP)  # the terminal is still there: only the model is loaded again
        while b"is loaded" not in printed:
            printed += os.read(terminal, 1000)
        os.close(terminal)
        wait_for_end(process)
    finally:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def wait_for_end(process: int) -> None:
    for _ in range(600):
        if os.waitpid(process, os.WNOHANG)[0] == process:
            return
        time.sleep(0.1)
    raise AssertionError("the server goes on")
