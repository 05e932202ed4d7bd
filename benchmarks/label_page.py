"""Label a folder through the page's own interface, in the order in which it asks, as a user with perfect eyes would.

    python benchmarks/label_page.py FOLDER [--labels 30 60 120] [--seed 0]

FOLDER has class folders, such as those of neu. Its images are linked into an unlabelled folder under names that tell
nothing; `lmfcn label` is started on it as a program of its own. Every label is a request to the server, as the page
sends it: one image, the first one that it asks for, after its answer to the label before. Printed are the balanced
accuracy of the suggestions on all images that have no label, and what the page says about it at that moment.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
from sklearn.metrics import balanced_accuracy_score

from lmfcn.benchmark.tables import markdown_table
from lmfcn.data.sources import image_files

POLL_SECONDS = 0.02


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--labels", type=int, nargs="+", default=[30, 60, 120])
    parser.add_argument("--seed", type=int, default=0, help="of the names that the images get")
    options = parser.parse_args()
    with TemporaryDirectory() as unlabelled:
        truth = link_without_labels(options.folder, Path(unlabelled), options.seed)
        with served(Path(unlabelled)) as client:
            rows = list(label(client, truth, sorted(options.labels)))
    headings = ["labels", "classes", "on the rest", "accuracy on the page", "interval", "share right, on the page"]
    print(markdown_table([*headings, "seconds from label to suggestions"], rows))


def link_without_labels(folder: Path, place: Path, seed: int) -> dict[str, str]:
    """Link the images into one folder under shuffled numbers; return the class of each name."""
    paths = sorted(image_files(folder))
    truth = {}
    for number, index in enumerate(np.random.default_rng(seed).permutation(len(paths)).tolist()):
        path = paths[index].absolute()
        name = f"{number:05}{path.suffix}"
        os.symlink(path, place / name)
        truth[name] = path.relative_to(folder.absolute()).parts[0]
    return truth


@contextmanager
def served(folder: Path) -> Iterator[httpx.Client]:
    """Run `lmfcn label` on a folder; give a client that knows its address and its token."""
    command = [sys.executable, "-m", "lmfcn", "label", str(folder), "--port", "0", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address, token = process.stdout.readline().split()[4].split("#token=")
            with httpx.Client(base_url=address, timeout=60, headers={"Authorization": f"Bearer {token}"}) as client:
                yield client
        finally:
            process.terminate()


def label(client: httpx.Client, truth: dict[str, str], shown: list[int]) -> Iterator[list[str]]:
    """Give the first label that is asked for, again and again; yield a row of the table at the shown numbers."""
    names = client.get("images").json()["names"]
    state = when(client, lambda state: state["n_described"] == len(names) and len(state["asked"]) > 0)
    seconds: list[float] = []
    for number in range(1, shown[-1] + 1):
        image = state["asked"][0]
        start = time.perf_counter()
        before = client.post("label", json={"images": [image], "label": truth[names[image]]}).json()["version"]
        state = when(client, lambda state, before=before: state["version"] > before)  # type: ignore[misc]
        seconds.append(time.perf_counter() - start)
        if number in shown:
            yield _row(settled(client), names, truth, seconds)


def settled(client: httpx.Client) -> dict[str, Any]:
    """Return the state once nothing has changed for a second: suggestions and accuracy are those of the last label."""
    state, since = client.get("state").json(), time.monotonic()
    while time.monotonic() - since < 1:
        time.sleep(POLL_SECONDS)
        found = client.get("state", params={"since": state["version"]}).json()
        if found["version"] != state["version"]:
            state, since = client.get("state").json(), time.monotonic()
    return dict(state)


def when(client: httpx.Client, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the first state that fulfils a condition."""
    while True:
        state = client.get("state").json()
        if condition(state):
            return dict(state)
        time.sleep(POLL_SECONDS)


def _row(state: dict[str, Any], names: list[str], truth: dict[str, str], seconds: list[float]) -> list[str]:
    classes = [entry["name"] for entry in state["classes"]]
    rest = [image for image, label in enumerate(state["labels"]) if label == -1]
    expected = [truth[names[image]] for image in rest]
    suggested = [classes[state["suggested"][image]] for image in rest]
    point = state["curve"][-1] if state["curve"] else None
    return [
        str(len(names) - len(rest)),
        str(len(classes)),
        f"{balanced_accuracy_score(expected, suggested):.3f}",
        "-" if point is None else f"{point['value']:.3f}",
        "-" if point is None else f"{point['low']:.3f} to {point['high']:.3f}",
        "-" if point is None or point["expected"] is None else f"{point['expected']:.3f}",
        f"{np.median(seconds):.2f}",
    ]


if __name__ == "__main__":
    main()
