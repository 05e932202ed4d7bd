"""How much memory the map of a large image takes.

python benchmarks/large_map.py --side 30000

Writes a tiled TIFF of that many pixels a side, RGB, tile by tile, and a small model; then runs `lmfcn map` on them in a
process of its own. Prints a line of JSON: sizes, seconds, and the most memory that the process or a child held.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tifffile

from lmfcn import LMFCNClassifier

TILE = 512
CLASSES = ("fine", "coarse", "flat")


def texture(random: np.random.Generator, kind: int, side: int) -> np.ndarray:
    """Return RGB noise (side, side, 3): fine, coarse or of little contrast."""
    grain = 4 if kind == 1 else 1
    pixels = random.integers(0, 256, (side // grain, side // grain, 3))
    pixels = np.kron(pixels, np.ones((grain, grain, 1), dtype=int))
    return (pixels // 8 + 100 if kind == 2 else pixels).astype(np.uint8)


def tiles(side: int) -> Iterator[np.ndarray]:
    """Yield the tiles of a chessboard of textures, of which there are few, so that the file stays small."""
    random = np.random.default_rng(0)
    kinds = [texture(random, kind, TILE) for kind in range(len(CLASSES))]
    across = -(-side // TILE)
    for number in range(across**2):
        yield kinds[(number // across + number % across) % len(kinds)]


def write_image(path: Path, side: int) -> None:
    tifffile.imwrite(
        path,
        tiles(side),
        shape=(side, side, 3),
        dtype=np.uint8,
        tile=(TILE, TILE),
        photometric="rgb",
        compression="zlib",
        bigtiff=True,
    )


def write_model(path: Path) -> None:
    random = np.random.default_rng(1)
    images = np.stack([texture(random, kind, 64) for kind in range(len(CLASSES)) for _ in range(20)])
    LMFCNClassifier(epochs=1, random_state=0).fit(images, np.repeat(CLASSES, 20)).save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=30_000)
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--stride", type=int, default=512)
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_image(folder / "large.tif", asked.side)
        write_model(folder / "model.lmfcn")
        command = [
            sys.executable,
            "-m",
            "lmfcn",
            "map",
            folder / "model.lmfcn",
            folder / "large.tif",
            "-o",
            folder / "map",
        ]
        options = ["--window", asked.window, "--stride", asked.stride, "--jobs", asked.jobs]
        start = time.perf_counter()
        subprocess.run([str(part) for part in command + options], check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - start
        areas = (folder / "map" / "areas.csv").read_text().splitlines()
        file_megabytes = (folder / "large.tif").stat().st_size / 1e6
    gigabytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9
    found = {"file_megabytes": round(file_megabytes), "seconds": round(seconds), "peak_gigabytes": round(gigabytes, 2)}
    print(json.dumps({**vars(asked), **found, "areas": areas[1:4]}))


if __name__ == "__main__":
    main()
