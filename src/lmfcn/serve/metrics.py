"""Count requests, in the text format of Prometheus. Only the event loop does, so there are no locks."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the latency histogram in seconds."""


class Metric:
    r"""A number for every combination of some labels.

    Examples
    --------
    >>> answers = Metric("answers_total", "counter", "Answers by status.", ["status"])
    >>> answers.add(200)
    >>> print("\n".join(answers.lines()))
    # HELP answers_total Answers by status.
    # TYPE answers_total counter
    answers_total{status="200"} 1
    """

    def __init__(self, name: str, kind: str, about: str, labels: Sequence[str] = ()) -> None:
        self._name = name
        self._labels = labels
        self._head = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        self._values: Counter[tuple[object, ...]] = Counter()

    def add(self, *labels: object, by: float = 1) -> None:
        """Add to the number of some labels."""
        self._values[labels] += by  # type: ignore[assignment]  # seconds are no integers

    def lines(self) -> Iterator[str]:
        """Yield the lines for Prometheus."""
        yield from self._head
        for labels, value in self._values.items():
            yield sample(self._name, zip(self._labels, labels, strict=True), value)


class Histogram:
    """How many times, for every path, were at most as long as each of `BUCKETS`, and their sum."""

    def __init__(self, name: str, about: str) -> None:
        self._name = name
        self._head = [f"# HELP {name} {about}", f"# TYPE {name} histogram"]
        self._counts: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        self._sums: Counter[str] = Counter()

    def add(self, path: str, seconds: float) -> None:
        """Count one time."""
        self._counts[path][bisect_left(BUCKETS, seconds)] += 1
        self._sums[path] += seconds  # type: ignore[assignment]

    def lines(self) -> Iterator[str]:
        """Yield the lines for Prometheus; every bucket includes the smaller ones."""
        yield from self._head
        for path, counts in self._counts.items():
            for bound, count in zip([*map(str, BUCKETS), "+Inf"], accumulate(counts), strict=True):
                yield sample(f"{self._name}_bucket", [("path", path), ("le", bound)], count)
            yield sample(f"{self._name}_sum", [("path", path)], self._sums[path])
            yield sample(f"{self._name}_count", [("path", path)], sum(counts))


def sample(name: str, labels: Iterable[tuple[str, object]], value: float) -> str:
    r"""Return one line.

    Examples
    --------
    >>> sample("model_info", [("model", 'my "best".lmfcn')], 1)
    'model_info{model="my \\"best\\".lmfcn"} 1'
    """
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    inside = ",".join(f'{label}="{str(text).translate(escapes)}"' for label, text in labels)
    return f"{name}{{{inside}}} {value}" if inside else f"{name} {value}"


class Metrics:
    """What has happened since the server started.

    Attributes
    ----------
    requests, seconds, refusals, images, loads
        Add to them what happens. Paths are those of routes, so that there are only a few.
    """

    def __init__(self) -> None:
        self.requests = Metric("lmfcn_requests_total", "counter", "Requests.", ["path", "method", "status"])
        self.seconds = Histogram("lmfcn_request_seconds", "Time from the head of a request to the end of its answer.")
        self.refusals = Metric("lmfcn_refusals_total", "counter", "Refused requests and connections.", ["status"])
        self.images = Metric("lmfcn_images_predicted_total", "counter", "Images in answers.", ["model"])
        self.loads = Metric("lmfcn_model_loads_total", "counter", "Models loaded again, or not.", ["model", "result"])

    def as_text(self, waiting: int, in_progress: int, models: Iterable[tuple[str, str]]) -> str:
        """Return everything for Prometheus, with the present numbers of requests and (name, fingerprint) of models."""
        now_waiting = Metric("lmfcn_requests_waiting", "gauge", "Requests that wait until others are computed.")
        now_waiting.add(by=waiting)
        now_in_progress = Metric("lmfcn_requests_in_progress", "gauge", "Predictions that have no answer yet.")
        now_in_progress.add(by=in_progress)
        info = Metric("lmfcn_model_info", "gauge", "SHA-256 of the files of the models.", ["model", "fingerprint"])
        for model in models:
            info.add(*model)
        metrics: list[Metric | Histogram] = [self.requests, self.seconds, self.refusals, self.images, self.loads]
        metrics += [now_waiting, now_in_progress, info]
        return "".join(f"{line}\n" for metric in metrics for line in metric.lines())
