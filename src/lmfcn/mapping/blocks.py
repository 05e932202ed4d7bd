"""One block of a large map: a function that any process can run, and the folder that keeps what it found."""

import functools
import hashlib
import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lmfcn.files import write_bytes, write_text
from lmfcn.inference.files import load
from lmfcn.inference.map_grid import Box
from lmfcn.inference.maps import Mapper
from lmfcn.mapping.images import LargeImage
from lmfcn.mapping.opening import View, open_view
from lmfcn.mapping.tissue import TissueMask

_FORMAT = 1


@dataclass(frozen=True)
class MapSettings:
    """What a map depends on beside model and image.

    Attributes
    ----------
    window, stride : int
        In pixels of the view.
    view : View
        Reader, level and scale.
    tissue : TissueMask, optional
        Windows elsewhere are passed over.
    """

    window: int
    stride: int
    view: View
    tissue: TissueMask | None = None


@dataclass(frozen=True)
class BlockResult:
    """What was found in a block.

    Attributes
    ----------
    probabilities : array (rows, columns, n_classes)
        NaN in windows that were passed over or could not be read.
    missing : list of str
        Sentences about what could not be read.
    """

    probabilities: np.ndarray
    missing: list[str]


def map_block(model_path: Path, image_path: Path, block: Box, settings: MapSettings) -> BlockResult:
    """Map the windows of one block; model and image stay open for the next one."""
    stamps = tuple(path.stat().st_mtime_ns for path in (model_path, image_path))
    mapper, image = _opened(model_path, image_path, settings.view, stamps)
    grid = mapper.grid((image.size.height, image.size.width), settings.window, settings.stride)
    wanted = np.ones(block.shape, dtype=bool)
    if settings.tissue is not None:
        wanted = settings.tissue.wanted(grid, block)
    if not wanted.any():
        return BlockResult(np.full((*block.shape, mapper.n_classes), np.nan, dtype=np.float32), [])
    region = grid.region(block)
    read = image.read(region)
    missing = []
    for box, reason in read.missing:
        touched = grid.touching(box).overlap(block)
        if wanted[touched.within(block)].any():
            missing.append(f"rows {box.top}-{box.bottom - 1}, columns {box.left}-{box.right - 1}: {reason}")
        wanted[touched.within(block)] = False
    return BlockResult(mapper.block(read.pixels, grid, block, wanted), missing)


@functools.lru_cache(maxsize=1)
def _opened(
    model_path: Path,
    image_path: Path,
    view: View,
    stamps: tuple[int, ...],  # noqa: ARG001, files that have changed are opened again
) -> tuple[Mapper, LargeImage]:
    model = load(model_path)
    return model.mapper(), open_view(image_path, view, model.form)


class BlockStore:
    """A folder that holds finished blocks, and what they were made with.

    Blocks of other settings are thrown away when the folder is opened.
    """

    def __init__(self, folder: Path, blocks: list[Box], made_with: dict[str, Any]) -> None:
        self._folder, self.blocks = folder, blocks
        folder.mkdir(parents=True, exist_ok=True)
        described = json.dumps({"format": _FORMAT, **made_with}, indent=1, sort_keys=True)
        settings = folder / "settings.json"
        self.started_anew = settings.is_file() and settings.read_text(encoding="utf-8") != described
        if self.started_anew or not settings.is_file():
            for old in [*folder.glob("block-*.npy"), *folder.glob("block-*.txt")]:
                old.unlink()
            write_text(settings, described)

    def unfinished(self) -> list[Box]:
        """Return the blocks that have not been computed, or of which something could not be read."""
        return [block for block in self.blocks if self.missing(block) or not self._path(block).is_file()]

    def add(self, block: Box, result: BlockResult) -> None:
        """Keep what was found in a block."""
        told = self._path(block).with_suffix(".txt")
        if result.missing:  # before the block itself, so that it never counts as finished
            write_text(told, "\n".join(result.missing))
        content = io.BytesIO()
        np.save(content, result.probabilities, allow_pickle=False)
        write_bytes(self._path(block), content.getvalue())
        if not result.missing:
            told.unlink(missing_ok=True)

    def missing(self, block: Box) -> list[str]:
        """Return the sentences about what could not be read in a block."""
        told = self._path(block).with_suffix(".txt")
        return told.read_text(encoding="utf-8").splitlines() if told.is_file() else []

    def read(self, windows: Box) -> np.ndarray:
        """Return the probabilities (rows, columns, n_classes) of some windows from all blocks that they touch."""
        found: np.ndarray | None = None
        for block in self.blocks:
            common = block.overlap(windows)
            if 0 in common.shape:
                continue
            stored = np.load(self._path(block), mmap_mode="r", allow_pickle=False)
            if found is None:
                found = np.empty((*windows.shape, stored.shape[2]), dtype=np.float32)
            found[common.within(windows)] = stored[common.within(block)]
        if found is None:
            raise ValueError("These windows are in no block.")
        return found

    def _path(self, block: Box) -> Path:
        return self._folder / f"block-{block.top}-{block.left}.npy"


def made_with(model_path: Path, image_path: Path, settings: MapSettings) -> dict[str, Any]:
    """Return what tells a map from others, as JSON can hold it."""
    status = image_path.stat()
    return {
        "model": hashlib.sha256(model_path.read_bytes()).hexdigest(),
        "image": [str(image_path.resolve()), status.st_size, status.st_mtime_ns],
        "window": settings.window,
        "stride": settings.stride,
        "view": asdict(settings.view),
        "tissue": None if settings.tissue is None else hashlib.sha256(settings.tissue.tissue.tobytes()).hexdigest(),
    }
