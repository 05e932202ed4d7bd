import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from lmfcn.serve.app import make_app
from lmfcn.serve.uploads import Limits
from serving import as_files, running


class Slow:
    """Makes a model wait until it may go on."""

    def __init__(self, service):
        self.may_go, self.begun = threading.Event(), threading.Semaphore(0)
        (self.predictor,) = service.models
        self.predict, self.predictor.predict_all = self.predictor.predict_all, self
        self.n_asked = 0

    def __call__(self, uploads, *, reasons):
        self.n_asked += 1
        self.begun.release()
        assert self.may_go.wait(30)
        return self.predict(uploads, reasons=reasons)


@pytest.fixture
def slow(fitted):
    app = make_app(fitted.model, limits=Limits(workers=1, waiting=2, held_bytes=50_000))
    model = Slow(app.state.service)
    with running(app) as address, ThreadPoolExecutor(8) as pool:
        model.address = address
        model.service = app.state.service
        model.ask = lambda *numbers: pool.submit(
            httpx.post, f"{address}predict", files=as_files(fitted, numbers), timeout=60
        )
        yield model
        model.may_go.set()


def number_of(slow, name) -> float:
    lines = httpx.get(f"{slow.address}metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith(name)).rpartition(" ")[2])


def wait_until(slow, name, value):
    while number_of(slow, name) != value:
        pass


def test_beyond_the_limit_requests_are_refused_and_the_others_are_answered(slow):
    first = slow.ask(0)
    assert slow.begun.acquire(timeout=30)
    waiting = [slow.ask(1), slow.ask(2)]
    wait_until(slow, "lmfcn_requests_waiting", 2)
    refused = slow.ask(3).result()
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert refused.json()["detail"] == "2 requests are waiting, as many as allowed; ask again in 1 s."
    assert number_of(slow, "lmfcn_requests_in_progress") == 3
    assert number_of(slow, 'lmfcn_refusals_total{status="503"}') == 1
    slow.may_go.set()
    for number, answer in enumerate([first, *waiting]):
        assert answer.result().json()["answers"][0]["name"] == f"{number}.png"
    assert number_of(slow, "lmfcn_requests_in_progress") == 0
    assert slow.ask(3).result().status_code == 200
    assert number_of(slow, 'lmfcn_requests_total{path="/predict",method="POST",status="200"}') == 4
    assert number_of(slow, 'lmfcn_request_seconds_bucket{path="/predict",le="+Inf"}') == 5
    assert number_of(slow, 'lmfcn_images_predicted_total{model="lmfcn"}') == 4
    fingerprint = httpx.get(f"{slow.address}model").json()["fingerprint"]
    assert number_of(slow, f'lmfcn_model_info{{model="lmfcn",fingerprint="{fingerprint}"}}') == 1


def test_requests_that_hold_too_much_memory_are_refused(slow):
    first = slow.ask(*range(16))  # some 20 kB
    assert slow.begun.acquire(timeout=30)
    second = slow.ask(*range(16))
    wait_until(slow, "lmfcn_requests_waiting", 1)
    refused = slow.ask(*range(16)).result()
    assert refused.status_code == 503
    assert refused.json()["detail"].startswith("Requests of 0.05 MB are in memory, as many as allowed")
    slow.may_go.set()
    assert [answer.result().status_code for answer in (first, second)] == [200, 200]
    assert slow.ask(*range(16)).result().status_code == 200


def test_what_nobody_waits_for_is_not_computed(slow, fitted):
    first = slow.ask(0)
    assert slow.begun.acquire(timeout=30)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{slow.address}predict", files=as_files(fitted, [1]), timeout=0.5)
    slow.may_go.set()
    assert first.result().status_code == 200
    wait_until(slow, "lmfcn_requests_in_progress", 0)
    assert slow.n_asked == 1


def test_slow_clients_do_not_keep_others_waiting(slow):
    slow.may_go.set()
    begun = threading.Semaphore(0)
    end = threading.Event()

    def trickle():
        yield b"--x\r\n"
        begun.release()
        end.wait(30)
        yield b"--x--\r\n"

    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    with ThreadPoolExecutor(12) as pool:
        for _ in range(12):
            pool.submit(httpx.post, f"{slow.address}predict", content=trickle(), headers=headers, timeout=60)
        for _ in range(12):
            assert begun.acquire(timeout=30)
        assert slow.ask(0).result().status_code == 200
        end.set()


def test_an_error_that_nobody_expected_is_a_problem_with_an_id(slow, caplog):
    slow.predictor.predict_all = lambda *_, **__: 1 / 0
    response = slow.ask(0).result()
    assert response.status_code == 500
    assert response.json()["detail"] == (
        f"An error of the server; its log has the request id {response.headers['x-request-id']}."
    )
    assert "ZeroDivisionError" in caplog.text
