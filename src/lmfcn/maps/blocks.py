"""Map one block of a large image, store the results of blocks on disk, and find the tissue to map."""

import functools
import hashlib
import io
import json
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lmfcn.compute.resources import CPU, check_device
from lmfcn.maps.large_image import LargeImage, read_thumbnail
from lmfcn.maps.readers import View, open_view
from lmfcn.maps.texture_map import Box, MapGrid, Mapper
from lmfcn.model import TextureModel
from lmfcn.util.files import write_bytes, write_text

_LEAST_TISSUE = 0.1
_SIDE = 1024
_PALEST_GLASS, _DARKEST_GLASS = 0.1, 0.7


@dataclass(frozen=True)
class TissueMask:
    """A coarse mask of the tissue in an image.

    Attributes
    ----------
    tissue : array of bool (height, width)
        The whole image at a coarse resolution.
    """

    tissue: np.ndarray

    def select_windows(self, grid: MapGrid, windows: Box) -> np.ndarray:
        """Return a mask (rows, columns) of the windows with tissue on at least a tenth of their area."""
        sums = np.pad(self.tissue.astype(np.int64).cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
        top, bottom = self._ends(np.arange(windows.top, windows.bottom), grid, grid.height, axis=0)
        left, right = self._ends(np.arange(windows.left, windows.right), grid, grid.width, axis=1)
        inside = sums[bottom[:, None], right] - sums[top[:, None], right]
        inside += sums[top[:, None], left] - sums[bottom[:, None], left]
        wanted: np.ndarray = inside >= _LEAST_TISSUE * (bottom - top)[:, None] * (right - left)
        return wanted

    def _ends(self, windows: np.ndarray, grid: MapGrid, length: int, axis: int) -> tuple[np.ndarray, np.ndarray]:
        ratio = self.tissue.shape[axis] / length
        starts = np.minimum((windows * grid.stride * ratio).astype(int), self.tissue.shape[axis] - 1)
        ends = np.ceil((windows * grid.stride + grid.window) * ratio).astype(int)
        return starts, ends.clip(starts + 1, self.tissue.shape[axis])


def find_tissue(image: LargeImage) -> TissueMask:
    """Separate tissue from glass by saturation, or by darkness in images without colour.

    The threshold is Otsu's. If the part below it is not bright and colourless like glass, all is tissue.
    """
    full_scale = {"uint8": 255.0, "uint16": 65535.0}.get(image.size.pixels, 1.0)
    pixels = read_thumbnail(image, _SIDE) / full_scale
    brightest = pixels.max(axis=2)
    colourless = pixels.shape[2] != 3
    values = 1 - brightest if colourless else (brightest - pixels.min(axis=2)) / np.maximum(brightest, 1e-6)
    tissue = values > otsu_threshold(values)
    glass = ~tissue
    pale = colourless or bool(values[glass].mean() <= _PALEST_GLASS)
    if not glass.any() or not pale or brightest[glass].mean() < _DARKEST_GLASS:
        tissue = np.ones_like(tissue)
    return TissueMask(tissue)


def otsu_threshold(values: np.ndarray, bins: int = 256) -> float:
    """Return the threshold between 0 and 1 that minimises the variance within two classes (Otsu 1979).

    Examples
    --------
    >>> 0.1 <= otsu_threshold(np.array([0.05, 0.1, 0.1, 0.8, 0.9])) < 0.8
    True
    """
    counts, edges = np.histogram(values.clip(0, 1), bins=bins, range=(0.0, 1.0))
    centres = (edges[1:] + edges[:-1]) / 2
    below = counts.cumsum()
    above = below[-1] - below
    means_below = (counts * centres).cumsum() / np.maximum(below, 1)
    means_above = ((counts * centres).sum() - (counts * centres).cumsum()) / np.maximum(above, 1)
    between = below * above * (means_below - means_above) ** 2
    # Of several equally good thresholds, as between two distant peaks, take the middle.
    return float(edges[1:][between >= between.max() * (1 - 1e-12)].mean())


_FORMAT = 2
_OTHER = {
    "format": "of another version of lmfcn",
    "model": "of another model",
    "image_state": "of the image before it was changed",
    "tissue": "with another tissue mask, or without",
    "blocks": "in other blocks",
    "typicality": "without --none-of-these",
}
"""Descriptions of settings whose values a user cannot read."""


@dataclass(frozen=True)
class MapSettings:
    """Settings that a map depends on, beside model and image.

    Attributes
    ----------
    window, stride : int
        In pixels of the opened image.
    view : View
        Reader, level and scale.
    tissue : TissueMask, optional
        Windows without tissue are skipped.
    typicality : bool
        Whether the typicality of windows is measured, too.
    """

    window: int
    stride: int
    view: View
    tissue: TissueMask | None = None
    typicality: bool = False


@dataclass(frozen=True)
class BlockResult:
    """The result of mapping one block.

    Attributes
    ----------
    probabilities : array (rows, columns, n_channels)
        A channel per class, and perhaps one more for the typicality; NaN for windows that were skipped or could not be
        read.
    missing : list of str
        Sentences about parts that could not be read.
    """

    probabilities: np.ndarray
    missing: list[str]


@dataclass(frozen=True)
class BlockMapper:
    """A function that maps one block of an image, in this process or in a worker.

    It keeps its model and the opened image for the next block.

    Parameters
    ----------
    model : TextureModel
    image_path : Path
        Absolute, as workers may have another working directory.
    settings : MapSettings
    device : str, optional
        Name of the device, which each process checks itself; by default the device of the model.
    """

    model: TextureModel
    image_path: Path
    settings: MapSettings
    device: str | None = None

    def __call__(self, block: Box) -> BlockResult:
        """Map the windows of one block."""
        mapper, image, settings = self._mapper, self._image, self.settings
        grid = mapper.grid((image.size.height, image.size.width), settings.window, settings.stride)
        wanted = np.ones(block.shape, dtype=bool)
        if settings.tissue is not None:
            wanted = settings.tissue.select_windows(grid, block)
        if not wanted.any():
            return BlockResult(_empty_probabilities(block, mapper.n_channels(typicality=settings.typicality)), [])
        read = image.read(grid.region(block))
        missing = []
        for box, reason in read.missing:
            touched = grid.touching(box).overlap(block)
            if wanted[touched.within(block)].any():
                missing.append(f"{_describe_pixels(box)}: {reason}")
            wanted[touched.within(block)] = False
        found = mapper.map_block(read.pixels, grid, block, wanted, typicality=settings.typicality)
        return BlockResult(found, missing)

    def __reduce__(self) -> tuple[type, tuple[TextureModel, Path, MapSettings, str]]:
        # Workers send it to each other. An open image cannot be pickled, and workers may have other devices.
        device = self.device or str(self.model.device)
        return type(self), (self.model.copied_to(CPU), self.image_path, self.settings, device)

    @functools.cached_property
    def _mapper(self) -> Mapper:
        model = self.model if self.device is None else self.model.copied_to(check_device(self.device))
        return model.mapper()

    @functools.cached_property
    def _image(self) -> LargeImage:
        return open_view(self.image_path, self.settings.view, self.model.form)


def make_lost_block(grid: MapGrid, block: Box, n_channels: int) -> BlockResult:
    """Return an empty result for a block on which every worker process died."""
    first = (start * grid.stride for start in block[:2])
    last = ((end - 1) * grid.stride + grid.window for end in block[2:])
    reason = "every process that worked on it died; the likeliest reason is too little memory for so many at once"
    return BlockResult(_empty_probabilities(block, n_channels), [f"{_describe_pixels(Box(*first, *last))}: {reason}"])


def _empty_probabilities(block: Box, n_channels: int) -> np.ndarray:
    return np.full((*block.shape, n_channels), np.nan, dtype=np.float32)


def _describe_pixels(pixels: Box) -> str:
    return f"rows {pixels.top}-{pixels.bottom - 1}, columns {pixels.left}-{pixels.right - 1}"


class BlockStore:
    """A folder of finished blocks and the settings of their map; blocks of another map are refused.

    Nothing is written or removed before `begin`.
    """

    def __init__(self, folder: Path, blocks: list[Box], description: dict[str, Any]) -> None:
        self._folder, self.blocks = folder, blocks
        self._description = {"format": _FORMAT, **description}
        found = _read_settings(folder / "settings.json")
        self.is_new = found != self._description
        if self.is_new and any(folder.glob("block-*.npy")):
            raise ValueError(
                f"{folder.parent} holds another map: {_difference(found or {}, self._description)}; choose another"
                f" folder with -o, or remove {folder} to start again."
            )

    def begin(self) -> None:
        """Prepare the folder for the blocks of this map."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for old in self._folder.glob("block-*.txt"):
            old.unlink()
        write_text(self._folder / "settings.json", json.dumps(self._description, indent=1, sort_keys=True))
        self.is_new = False

    def unfinished(self) -> list[Box]:
        """Return the blocks that are not computed yet, or with parts that could not be read."""
        if self.is_new:
            return self.blocks
        return [block for block in self.blocks if self.missing(block) or not self._is_sound(block)]

    def add(self, block: Box, result: BlockResult) -> None:
        """Store the result of a block."""
        missing = self._path(block).with_suffix(".txt")
        if result.missing:  # before the block itself, so that it never counts as finished
            write_text(missing, "\n".join(result.missing))
        content = io.BytesIO()
        np.save(content, result.probabilities, allow_pickle=False)
        write_bytes(self._path(block), content.getvalue() + _checksum(content.getvalue()))
        if not result.missing:
            missing.unlink(missing_ok=True)

    def missing(self, block: Box) -> list[str]:
        """Return the sentences about parts of a block that could not be read."""
        path = self._path(block).with_suffix(".txt")
        return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []

    def read(self, windows: Box) -> np.ndarray:
        """Return the channels (rows, columns, n_channels) of some windows from all blocks that hold them."""
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

    def _is_sound(self, block: Box) -> bool:
        """Return whether the result of a block is there, complete and unchanged; else it is computed again."""
        path = self._path(block)
        content = path.read_bytes() if path.is_file() else b""
        return bool(content) and content.endswith(_checksum(content[:-4]))

    def _path(self, block: Box) -> Path:
        return self._folder / f"block-{block.top}-{block.left}.npy"


def _checksum(content: bytes) -> bytes:
    """Return four bytes that follow an array in its file, where NumPy does not read them."""
    return zlib.crc32(content).to_bytes(4, "little")


def describe_map(model_path: Path, image_path: Path, settings: MapSettings, blocks: list[Box]) -> dict[str, Any]:
    """Return what identifies a map, for settings.json."""
    status = image_path.stat()
    return {
        "model": hashlib.sha256(model_path.read_bytes()).hexdigest(),
        "image": str(image_path.resolve()),
        "image_state": [status.st_size, status.st_mtime_ns],
        "window": settings.window,
        "stride": settings.stride,
        **asdict(settings.view),
        "tissue": None if settings.tissue is None else hashlib.sha256(settings.tissue.tissue.tobytes()).hexdigest(),
        **({"typicality": True} if settings.typicality else {}),
        "blocks": hashlib.sha256(json.dumps(blocks).encode()).hexdigest(),
    }


def _read_settings(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Describe the first setting in which the map in the folder differs from the wanted one."""
    name = next((name for name in wanted if found.get(name) != wanted[name]), None)
    if name is None:
        return "with --none-of-these"
    if name == "image":
        return f"of {found.get(name)}"
    return _OTHER.get(name, f"with {name} {found.get(name)} instead of {wanted[name]}")
