"""What `lmfcn serve` promises, measured on the real process: `python benchmarks/soak/service.py --seconds 60`.

Eight clients send good, bad, huge and slow uploads, drop connections, and compare every answer with the one of the
model itself, while the model is replaced again and again. Then many ask at once, attacks are refused, and the server
is stopped in the middle of its work. From 300 seconds on, at least 10,000 requests are sent.
"""

import argparse
import hashlib
import itertools
import json
import random
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lmfcn import LMFCNClassifier, Recipe, load, make_gaussians

sys.path.append(str(Path(__file__).resolve().parent.parent))
from soak.attacks import attacks, png_of
from soak.served import FORM, Answer, Client, Server, ask_once, encode, form, raw_head, serve

N_CLIENTS, AT_ONCE, N_IMAGES = 8, 50, 40
LONG_SECONDS, LONG_REQUESTS = 300.0, 10_000
GROWTH = 20_000_000
PROGRAM = (sys.executable, "-m", "lmfcn")


def run(seconds: float, seed: int, program: Sequence[str] = PROGRAM) -> list[dict]:
    """Return a row for each promise; `program` starts the command line of lmfcn."""
    command = f"python benchmarks/soak/service.py --seconds {seconds:g} --seed {seed}"
    with tempfile.TemporaryDirectory() as folder:
        truth = Truth.make(Path(folder), seed)
        with serve(program, truth.path, "--log-json", "--max-megabytes", "1") as server:
            rows = [*mixed_rows(server, truth, seconds, seed), *at_once_rows(server, truth), *refusal_rows(server)]
            rows += log_rows(server)
        with serve(program, truth.path, "--max-waiting", "4", "--threads", "1") as server:
            rows += [*overload_rows(server, truth), *stop_rows(server, truth)]
    return [{**row, "command": command} for row in rows]


def row(what: str, promise: str, found: str, ok: bool) -> dict:
    return {"what": f"service: {what}", "promise": promise, "found": found, "ok": bool(ok)}


# What the answers must be


@dataclass
class Truth:
    """Two models that take turns in one file, images, and what each model says about each image."""

    path: Path
    sources: list[Path]
    files: list[bytes]
    answers: dict[str, list[tuple[str, dict[str, float]]]]

    @classmethod
    def make(cls, folder: Path, seed: int) -> "Truth":
        """Train both models, and ask them about all images."""
        images, labels = make_gaussians(16, 48, random_state=seed, stds=(10, 60))
        new = np.random.default_rng(seed).normal(128, np.linspace(5, 70, N_IMAGES)[:, None, None], (N_IMAGES, 48, 48))
        new = new.clip(0, 255).astype(np.uint8)
        sources, answers = [], {}
        for number in range(2):
            classifier = LMFCNClassifier(epochs=1, recipe=Recipe(passes=1), random_state=seed + number)
            source = folder / f"{number}.source"
            classifier.fit(images, np.array(["rough", "smooth"])[labels]).save(source)
            sources.append(source)
            answers[sha256(source)] = direct_answers(source, new)
        path = folder / "model.lmfcn"
        shutil.copy(sources[0], path)
        return cls(path, sources, [encode(image) for image in new], answers)

    def replace(self, number: int) -> None:
        """Put one of the models into the file, at once."""
        new = self.path.with_suffix(".new")
        shutil.copy(self.sources[number % 2], new)
        new.replace(self.path)

    def fits(self, image: int, answer: dict) -> bool:
        """Return whether an answer is what the model of its fingerprint says about an image."""
        label, expected = self.answers[answer["fingerprint"]][image]
        found = answer["probabilities"]
        return answer["label"] == label and all(abs(found[name] - share) < 1e-6 for name, share in expected.items())


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def direct_answers(source: Path, images: np.ndarray) -> list[tuple[str, dict[str, float]]]:
    model = load(source, "cpu")
    classes = [str(label) for label in model.classes.tolist()]
    chances = [model.predict_proba(image[None])[0] for image in images]
    return [(classes[row.argmax()], dict(zip(classes, row.tolist(), strict=True))) for row in chances]


# Eight clients for a while


@dataclass
class Tally:
    """What happened to all requests."""

    kinds: Counter = field(default_factory=Counter)
    fingerprints: Counter = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    n_answers: int = 0
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def n_requests(self) -> int:
        """How many there were."""
        return self.kinds.total()


def good(client: Client, truth: Truth, random_: random.Random, name: str, tally: Tally) -> None:
    """Send some images, each with a name of its own; the answers must be those of these images."""
    chosen = [random_.randrange(N_IMAGES) for _ in range(random_.choice((1, 1, 1, 2, 5)))]
    files = [(f"{name}-{place}.png", truth.files[image]) for place, image in enumerate(chosen)]
    start = time.perf_counter()
    query = "?reasons=true" if random_.random() < 0.03 else ""
    answer = client.predict(files, query, **{"X-Request-ID": name})
    elapsed = time.perf_counter() - start
    if answer.status != 200:
        raise LookupError(f"status {answer.status}: {answer.content[:200]!r}")
    answers = answer.json["answers"]
    sound = [found["name"] for found in answers] == [file[0] for file in files] and all(
        truth.fits(image, found) for image, found in zip(chosen, answers, strict=True)
    )
    with tally.lock:
        tally.n_answers += len(answers)
        tally.fingerprints.update(found["fingerprint"] for found in answers)
        if not query:
            tally.seconds.append(elapsed)
        if not sound or answer.headers["x-request-id"] != name:
            tally.wrong.append(name)


def bad(client: Client, truth: Truth, random_: random.Random, name: str, _: Tally) -> None:
    """Send something that must be refused, behind a good file."""
    image = random_.choice(truth.files)
    colour = encode(np.random.default_rng(0).integers(0, 255, (48, 48, 3)).astype(np.uint8), "BMP")
    content, status = random_.choice(
        [(b"hello", 415), (image[: len(image) // 2], 422), (b"", 422), (colour, 422), (png_of(60_000, 60_000), 413)]
    )
    expect(client.predict([("good.png", image), (name, content)]), status)


def huge(client: Client, truth: Truth, random_: random.Random, name: str, _: Tally) -> None:
    """Send too many bytes: in a file, in a request that says so, and in one that does not."""
    size = random_.choice((1_500_000, 6_000_000))
    body = form([(name, truth.files[0] + bytes(size))])
    if random_.random() < 0.5:
        expect(client.ask("POST", "/predict", body, FORM), 413)
    else:
        expect(client.ask("POST", "/predict", pieces(body, 100_000), FORM), 413)


def slow(client: Client, truth: Truth, random_: random.Random, name: str, tally: Tally) -> None:
    """Send an upload in pieces with pauses; it is answered all the same."""
    image = random_.randrange(N_IMAGES)
    answer = client.ask("POST", "/predict", pieces(form([(name, truth.files[image])]), 1000, pause=0.1), FORM)
    expect(answer, 200)
    (found,) = answer.json["answers"]
    with tally.lock:
        tally.n_answers += 1
        if found["name"] != name or not truth.fits(image, found):
            tally.wrong.append(name)


def dropped(client: Client, truth: Truth, random_: random.Random, name: str, _: Tally) -> None:
    """Close the connection in the middle of the request, or before the answer."""
    body = form([(name, truth.files[0])])
    port = client.port
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        head = raw_head("POST /predict", f"Content-Length: {len(body)}", *(f"{k}: {v}" for k, v in FORM.items()))
        connection.sendall(head + body[: random_.choice((0, len(body) // 2, len(body)))])


def expect(answer: Answer, status: int) -> None:
    if answer.status != status:
        raise LookupError(f"status {answer.status} instead of {status}: {answer.content[:200]!r}")
    if status != 200 and not answer.json["detail"].endswith("."):
        raise LookupError(f"a refusal without a sentence: {answer.content[:200]!r}")


def pieces(body: bytes, size: int, pause: float = 0.0) -> Iterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]
        time.sleep(pause)


KINDS: dict[Callable, int] = {good: 80, bad: 10, huge: 4, slow: 2, dropped: 4}


def one_client(number: int, server: Server, truth: Truth, tally: Tally, go_on: Callable[[], bool], seed: int) -> None:
    """Send requests of all kinds, one after the other."""
    random_, client = random.Random(f"{seed} {number}"), Client(server)
    for count in itertools.count():
        if not go_on():
            break
        (kind,) = random_.choices(list(KINDS), list(KINDS.values()))
        name = f"{seed}-{number}-{count}"
        try:
            kind(client, truth, random_, name, tally)
        except Exception as error:  # whatever it is, the request has no answer as it should
            with tally.lock:
                tally.lost.append(f"{kind.__name__} {name}: {type(error).__name__} {error}")
            client.close()
        with tally.lock:
            tally.kinds[kind.__name__] += 1
    client.close()


def ask_for(server: Server, truth: Truth, tally: Tally, seconds: float, n_least: int, seed: int) -> None:
    """Let all clients send requests for some seconds, and until there were so many."""
    end = time.monotonic() + seconds
    limit = end + max(seconds, 600)

    def go_on() -> bool:
        now = time.monotonic()
        return now < end or (tally.n_requests < n_least and now < limit)

    with ThreadPoolExecutor(N_CLIENTS) as pool:
        clients = [pool.submit(one_client, i, server, truth, tally, go_on, seed) for i in range(N_CLIENTS)]
        for client in clients:
            client.result()


class Swapping(threading.Thread):
    """Replaces the model again and again; every fifth time by a damaged file, which must change nothing."""

    def __init__(self, server: Server, truth: Truth, pause: float) -> None:
        super().__init__(daemon=True)
        self._server, self._truth, self._pause = server, truth, pause
        self._ended = threading.Event()
        self.n_swaps = self.n_damaged = 0

    def run(self) -> None:
        """Replace it until it is stopped; at the end there is a sound one."""
        for number in itertools.count(1):
            if self._ended.wait(self._pause):
                break
            if number % 5 == 0:
                self._truth.path.write_bytes(self._truth.sources[0].read_bytes()[:-9])
                self.n_damaged += 1
            else:
                self._truth.replace(number)
                self.n_swaps += 1
            self._server.process.send_signal(signal.SIGHUP)
        self._truth.replace(0)
        self._server.process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        """End."""
        self._ended.set()
        self.join()


def mixed_rows(server: Server, truth: Truth, seconds: float, seed: int) -> list[dict]:
    n_least = LONG_REQUESTS if seconds >= LONG_SECONDS else 0
    tally = Tally()
    swapping = Swapping(server, truth, pause=min(2.0, max(0.5, seconds / 20)))
    swapping.start()
    start = server.cpu_seconds()
    ask_for(server, truth, tally, max(3.0, 0.25 * seconds), 0, seed + 1)
    before = settled_memory(server)
    ask_for(server, truth, tally, 0.75 * seconds, n_least, seed)
    cpu = server.cpu_seconds() - start
    swapping.stop()
    growth = settled_memory(server) - before
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(tally.kinds.items()))
    return [
        row(
            f"{tally.n_requests} requests of {N_CLIENTS} clients ({kinds})",
            "each answer is that of its image and model",
            f"{len(tally.wrong)} of {tally.n_answers} wrong{first(tally.wrong)}",
            not tally.wrong and tally.n_answers > 0,
        ),
        row(
            "the same requests, while the model is replaced",
            "none lost, wrong ones refused with the right status",
            f"{len(tally.lost)} lost{first(tally.lost)}",
            not tally.lost,
        ),
        swap_row(server, swapping, tally),
        row("memory after warm-up", "grows by at most 20 MB", f"{growth / 1e6:+.1f} MB", growth <= GROWTH),
        latency_row(f"latency with {N_CLIENTS} clients", tally.seconds, cpu / max(1, tally.n_requests)),
    ]


def settled_memory(server: Server) -> int:
    """Return the memory when the server has nothing to do."""
    time.sleep(1.5)
    return server.memory()


def swap_row(server: Server, swapping: Swapping, tally: Tally) -> dict:
    text = ask_once(server, "GET", "/metrics").content.decode()
    loads = {
        result: int(float(value))
        for result, value in re.findall(r'lmfcn_model_loads_total\{.*result="(\w+)"\} (\S+)', text)
    }
    found = (
        f"{loads.get('loaded', 0)} loaded, {loads.get('failed', 0)} refused, {len(tally.fingerprints)} models answered"
    )
    ok = len(tally.fingerprints) == 2 and (swapping.n_damaged == 0 or loads.get("failed", 0) > 0)
    replaced = f"{swapping.n_swaps} new files, {swapping.n_damaged} damaged ones"
    return row(f"{replaced} put in place of the model", "new ones are loaded, damaged ones change nothing", found, ok)


def first(problems: list[str]) -> str:
    return f"; the first: {problems[0][:200]}" if problems else ""


def latency_row(what: str, seconds: list[float], cpu: float) -> dict:
    median, p95, p99 = (1000 * value for value in quantiles(seconds, (0.5, 0.95, 0.99)))
    found = f"median {median:.0f}, 95 % {p95:.0f}, 99 % {p99:.0f} ms; {1000 * cpu:.0f} ms of CPU for a request"
    return row(what, "median under 1 s", found, median < 1000)


def quantiles(values: list[float], shares: Sequence[float]) -> list[float]:
    return np.quantile(values or [float("inf")], shares).tolist()


# Many at once


def all_at_once(server: Server, truth: Truth, number: int) -> list[tuple[float, Answer, bool]]:
    """Ask from many threads at the same moment; return time, answer, and whether it is right or a refusal."""
    barrier = threading.Barrier(number)

    def ask(place: int) -> tuple[float, Answer, bool]:
        client, image = Client(server), place % N_IMAGES
        client.ask("GET", "/health")  # so that the connection is open
        barrier.wait()
        start = time.perf_counter()
        answer = client.predict([(f"{place}.png", truth.files[image])])
        elapsed = time.perf_counter() - start
        client.close()
        if answer.status != 200:
            return elapsed, answer, answer.status == 503 and 1 <= int(answer.headers["retry-after"]) <= 60
        (found,) = answer.json["answers"]
        return elapsed, answer, found["name"] == f"{place}.png" and truth.fits(image, found)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(ask, range(number)))


def at_once_rows(server: Server, truth: Truth) -> list[dict]:
    all_at_once(server, truth, 32)
    cpu = server.cpu_seconds()
    found = list(itertools.chain(*(all_at_once(server, truth, 32) for _ in range(4))))
    cpu = (server.cpu_seconds() - cpu) / len(found)
    many = all_at_once(server, truth, AT_ONCE)
    n_right = sum(answer.status == 200 and sound for _, answer, sound in many)
    return [
        latency_row("32 requests at a time", [elapsed for elapsed, *_ in found], cpu),
        row(f"{AT_ONCE} requests at a time", "all answered rightly", f"{n_right} of {AT_ONCE}", n_right == AT_ONCE),
    ]


def overload_rows(server: Server, truth: Truth) -> list[dict]:
    """One worker and a queue of four: some must be refused, none may be lost."""
    found = all_at_once(server, truth, AT_ONCE)
    statuses = Counter(answer.status for _, answer, _ in found)
    sound = all(right for *_, right in found)
    n_else = AT_ONCE - statuses[200] - statuses[503]
    text = f"{statuses[200]} answered, {statuses[503]} refused with Retry-After, {n_else} else"
    patient = [ask_patiently(server, truth, image) for image in range(8)]
    return [
        row(f"{AT_ONCE} at a time, of which 4 may wait", "answered rightly, or 503 with Retry-After", text,
            sound and statuses[503] > 0 and statuses[200] >= 5),
        row("clients that ask again after Retry-After", "all answered", f"{sum(patient)} of 8", all(patient)),
    ]  # fmt: skip


def ask_patiently(server: Server, truth: Truth, image: int) -> bool:
    for _ in range(10):
        answer = ask_once(server, "POST", "/predict", form([("a.png", truth.files[image])]), FORM)
        if answer.status != 503:
            return answer.status == 200 and truth.fits(image, answer.json["answers"][0])
        time.sleep(int(answer.headers["retry-after"]))
    return False


# Attacks


def status_of(server: Server, request: bytes) -> int:
    """Return the status of the response to some bytes; 0 if there is none."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        with suppress(OSError):  # the server may close before it has read a flood
            connection.sendall(request)
        received = b""
        with suppress(OSError):
            received = connection.recv(65536)
    return int(received.split()[1]) if received.startswith(b"HTTP/1.1 ") else 0


def refusal_rows(server: Server) -> list[dict]:
    kinds = attacks()
    cases = [(kind, *case) for kind, listed in kinds.items() for case in listed]
    with ThreadPoolExecutor(len(cases)) as pool:
        statuses = list(pool.map(lambda case: status_of(server, case[2]), cases))
    rows = []
    for kind, listed in kinds.items():
        found = [(case, status) for case, status in zip(cases, statuses, strict=True) if case[0] == kind]
        wrong = [f"{case[1]} got {status}" for case, status in found if status not in case[3]]
        right = " or ".join(map(str, sorted(set().union(*(case[2] for case in listed)))))
        rows.append(row(kind, f"refused with {right}", f"{len(wrong)} of {len(listed)} not{first(wrong)}", not wrong))
    alive = ask_once(server, "GET", "/ready").status
    return [*rows, row("after all that", "ready", f"status {alive}", alive == 200)]


def log_rows(server: Server) -> list[dict]:
    """Every line is JSON, and none tells of an error that nobody expected."""
    lines = server.log()
    wrong = [line for line in lines if not is_sound(line)]
    return [
        row(
            f"{len(lines)} lines of the log", "JSON, without a traceback", f"{len(wrong)} else{first(wrong)}", not wrong
        )
    ]


def is_sound(line: str) -> bool:
    try:
        values = json.loads(line)
    except ValueError:
        return False
    return "error" not in values and (values["level"] == "info" or "was not loaded" in values["message"])


# The end


def stop_rows(server: Server, truth: Truth) -> list[dict]:
    """Stop the server in the middle of its work."""
    files = [(f"{place}.png", truth.files[place % N_IMAGES]) for place in range(30)]
    with ThreadPoolExecutor(3) as pool:
        work = [pool.submit(ask_once, server, "POST", "/predict?reasons=true", form(files), FORM) for _ in range(3)]
        wait_until(lambda: b"lmfcn_requests_in_progress 3" in ask_once(server, "GET", "/metrics").content)
        server.process.send_signal(signal.SIGTERM)
        statuses = [watching_status(server, path) for path in ("/ready", "/predict")]
        answers = [each.result() for each in work]
    code = server.process.wait(timeout=60)
    n_right = sum(is_complete(answer, files, truth) for answer in answers)
    log = server.log()
    return [
        row("SIGTERM with 3 requests of 30 images in progress", "all are answered, then it ends with 0",
            f"{n_right} of 3 answered, exit code {code}, {len(log)} lines of complaints{first(log)}",
            n_right == 3 and code == 0 and not log),
        row("new requests meanwhile", "503", f"/ready {statuses[0]}, /predict {statuses[1]}", statuses == [503, 503]),
    ]  # fmt: skip


def watching_status(server: Server, path: str) -> int:
    method = "GET" if path == "/ready" else "POST"
    time.sleep(0.2)
    return ask_once(server, method, path, b"", FORM).status


def is_complete(answer: Answer, files: list[tuple[str, bytes]], truth: Truth) -> bool:
    if answer.status != 200:
        return False
    found = answer.json["answers"]
    return len(found) == len(files) and all(truth.fits(i % N_IMAGES, each) for i, each in enumerate(found))


def wait_until(happened: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not happened() and time.monotonic() < end:
        time.sleep(0.01)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows = run(options.seconds, options.seed)
    for found in rows:
        print(f"{'ok ' if found['ok'] else 'NOT'}  {found['what']}: {found['promise']}. Found: {found['found']}")
    return 0 if all(found["ok"] for found in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
