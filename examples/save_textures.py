"""Write tiles of photographed textures to a folder, to try commands on: python examples/save_textures.py DIR [SIDE]."""

import csv
import sys
from pathlib import Path

from PIL import Image

from lmfcn.data.datasets import load_photographed_textures


def main(folder: Path, tile: int = 32) -> int:
    """Write images to folder/part/class and a table with the given split; return the number of images."""
    tiles = load_photographed_textures(tile)
    rows = []
    for number, (image, label, part) in enumerate(zip(tiles, tiles.labels, tiles.split, strict=True)):
        path = folder / str(part) / str(label) / f"{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[..., 0]).save(path)
        rows.append([path.relative_to(folder).as_posix(), label, part])
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["path", "label", "split"], *rows])
    return len(rows)


if __name__ == "__main__":
    print(f"{main(Path(sys.argv[1]), *map(int, sys.argv[2:]))} images in {sys.argv[1]}")
