"""How long `lmfcn label IMAGE` takes from a stroke to the map, on a mosaic of photographs.

    python benchmarks/label_image.py [--side 3000] [--network efficientnet-lite0] [--finish]

One thread. Prints seconds of the processor and of the clock; those of the clock mean little on a busy machine.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image
from skimage import data

from lmfcn.compute.encode import to_batch
from lmfcn.label.image_session import ImageSession
from lmfcn.maps.texture_map import Box
from lmfcn.networks.registry import find_network
from lmfcn.networks.trunk import Trunk
from lmfcn.serve.finish import finish_image
from lmfcn.serve.image_labelling import ImageOrder

CLASSES = ("brick", "grass", "gravel")
STROKES = [(0, 0.08, 0.15), (1, 0.62, 0.12), (2, 0.3, 0.85), (0, 0.2, 0.35), (1, 0.85, 0.4), (2, 0.55, 0.75)]
"""Class, and where a stroke starts as a share of the sides; it runs to the lower right."""

_LENGTH = 300


def regions(side: int) -> np.ndarray:
    """Return the class (side, side) of every pixel: three regions with bent borders."""
    rows, columns = np.mgrid[:side, :side] / side
    numbers = (columns > 0.45 + 0.06 * np.sin(9 * rows)).astype(int)
    numbers[rows > 0.58 + 0.3 * (columns - 0.5) ** 2 + 0.04 * np.sin(12 * columns)] = 2
    return numbers


def mosaic(side: int) -> np.ndarray:
    """Return an image (side, side) of scikit-image's photographs, laid out in turned copies."""
    random = np.random.default_rng(0)
    layers = []
    for name in CLASSES:
        photograph = getattr(data, name)()
        n_copies = -(-side // len(photograph))
        turned = [[np.rot90(photograph, 2 * random.integers(2)) for _ in range(n_copies)] for _ in range(n_copies)]
        layers.append(np.block(turned)[:side, :side])
    return np.choose(regions(side), layers)


def draw(session: ImageSession, stroke: tuple[int, float, float]) -> None:
    number, x, y = stroke
    left, top = x * session.size[1], y * session.size[0]
    session.draw(CLASSES[number], 64, [(left, top), (left + _LENGTH * 0.9, top + _LENGTH * 0.4)])


def until(session: ImageSession, condition: Callable[[], bool]) -> tuple[float, float]:
    """Work until a condition holds; return seconds of the processor and of the clock."""
    processor, clock = time.process_time(), time.perf_counter()
    while not condition():
        session.step()
    return time.process_time() - processor, time.perf_counter() - clock


def has_map(session: ImageSession, n_changes: int) -> bool:
    """Return whether the map of a view is there, and made by all strokes."""
    wanted = session._corners(session._levels()[0])
    return session._n_learned == n_changes and all(corner in session._predicted for corner in wanted)


def measure(session: ImageSession) -> Iterator[tuple[str, tuple[float, float], int]]:
    """Yield what was waited for, seconds of the processor and of the clock, and the cells of the map then."""
    height, width = session.size
    draw(session, STROKES[0])
    draw(session, STROKES[1])
    yield (
        "two strokes before anything is described, until the map",
        until(session, lambda: has_map(session, 3)),
        _n(session),
    )
    later = []
    for number, stroke in enumerate(STROKES[2:], start=4):
        draw(session, stroke)
        later.append(until(session, lambda number=number: has_map(session, number)))
        until(session, lambda: session._n_judged == session._n_learned)
    yield f"a further stroke, longest of {len(later)}", max(later), _n(session)
    session.draw(CLASSES[0], 64, [(0.15 * width, 0.1 * height)])
    until(session, lambda: has_map(session, 8))
    yield "cross-validation behind it", until(session, lambda: session._n_judged == 8), _n(session)
    yield "until the finest map of the whole image", until(session, lambda: not session.step()), _n(session)
    session.look(0.3 * height, 0.3 * width, 0.5 * height, 0.55 * width)
    yield "zoomed in, until the first map", until(session, lambda: has_map(session, 8)), _n(session)
    yield "until its finest map", until(session, lambda: not session.step()), _n(session)


def _n(session: ImageSession) -> int:
    return len(session.cells())


def shared(session: ImageSession) -> float:
    """Return processor seconds for the maps of 4x4 windows and their surroundings at once, as `lmfcn map` does it."""
    trunk = Trunk(find_network("efficientnet-lite0"), channels=1)
    pixels = session.image.read(Box(0, 0, 5 * session.window, 5 * session.window)).pixels
    batch = to_batch(pixels[None], torch.device("cpu"))
    with torch.no_grad():
        trunk.stages_at(batch, (5 * trunk.input_size,) * 2)  # not counted: the first call prepares the network
        started = time.process_time()
        trunk.stages_at(batch, (5 * trunk.input_size,) * 2)
    return time.process_time() - started


def finish(session: ImageSession, folder: Path) -> None:
    """Print after how many processor seconds each part of the end is done."""
    started = time.process_time()
    for sentence in finish_image(session, ImageOrder(folder=str(folder)), lambda _: None):
        print(f"{time.process_time() - started:.0f} s of the processor: {sentence.replace(str(folder), '')}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=3000)
    parser.add_argument("--network", default="efficientnet-lite0")
    parser.add_argument("--finish", action="store_true", help="also train the model and map the whole image")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "mosaic.png"
        Image.fromarray(mosaic(given.side)).save(path)
        with ImageSession(path, network=given.network, device="cpu") as session:
            first = np.stack([session.image.read(session._box((row, 0))).pixels for row in range(0, 1024, 64)])
            session.step()  # loads the network, while the user looks at the image
            session.describer.describe(first)
            started = time.process_time()
            session.describer.describe(first)
            print(f"one window: {(time.process_time() - started) / len(first):.4f} s of the processor")
            if given.network == "efficientnet-lite0":
                print(f"4x4 windows with shared maps: {shared(session):.2f} s of the processor")
            for what, (processor, clock), n_cells in measure(session):
                print(f"{what}: {processor:.2f} s of the processor, {clock:.2f} s; {n_cells} cells")
            print(session.sentence())
            truth, cells = regions(given.side), session.cells()
            centres = [(int((top + bottom) / 2), int((left + right) / 2)) for left, top, right, bottom, *_ in cells]
            right = [
                CLASSES[truth[place]] == session.classes[cell[4]] for place, cell in zip(centres, cells, strict=True)
            ]
            print(f"{np.mean(right):.3f} of the cells shown last are right at their centre")
            if given.finish:
                finish(session, Path(folder) / "out")


if __name__ == "__main__":
    main()
