"""From a path to an image of any size: who reads it, which level, in which colour and scale."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from lmfcn.data.form import ImageForm
from lmfcn.data.framing import describe_channels
from lmfcn.data.images import ImageError, TooManyPixelsError
from lmfcn.data.tiff import is_tiff
from lmfcn.mapping.images import ColoredImage, LargeImage, ScaledImage, WholeImage
from lmfcn.mapping.levels import level_for
from lmfcn.mapping.pixel_size import micrometres_per_pixel
from lmfcn.mapping.slides import Slide, slide_vendor
from lmfcn.mapping.tiled_tiff import TiledTiff

READERS = ("auto", "plain", "tiff", "openslide")
_SMALL = 2**24
_OPEN: WeakValueDictionary[tuple[Path, int, int], WholeImage] = WeakValueDictionary()
_ONLY_SLIDES = {".czi", ".dcm", ".mrxs", ".vms", ".vmu"}  # which nothing but OpenSlide reads


@dataclass(frozen=True)
class View:
    """How a file is looked at.

    Attributes
    ----------
    reader : one of READERS
    level : int
        Of the resolutions in the file, 0 is the finest.
    scale : float
        By which the level is enlarged or reduced.
    """

    reader: str = "auto"
    level: int = 0
    scale: float = 1.0


def resolve_view(path: Path, view: View, resolution: float | None = None) -> View:
    """Return the view with the reader that suits the file, and for a resolution in micrometres its level and scale."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist or is not a file.")
    view = View(_reader(path) if view.reader == "auto" else view.reader, view.level, view.scale)
    if resolution is None:
        return view
    if view.reader == "plain":  # which would have to be decoded, and has one level
        widths, micrometres = [1], micrometres_per_pixel(path)
    else:
        size = open_level(path, View(view.reader)).size
        widths, micrometres = [width for _, width in size.levels], size.micrometres
    level, scale = level_for(path, widths, micrometres, resolution)
    return View(view.reader, level, scale)


def open_level(path: Path, view: View) -> LargeImage:
    """Open one level of an image as it is in the file."""
    if view.reader == "openslide":
        return Slide(path, view.level)
    if view.reader == "tiff":
        return TiledTiff(path, view.level)
    if view.level != 0:
        raise ValueError(f"{path} has one level, 0, got {view.level}.")
    return _whole(path)


def _whole(path: Path) -> WholeImage:
    """Open a plain image, or return it if somebody in this process has it open: it is decoded and held once."""
    status = path.stat()
    key = path.resolve(), status.st_size, status.st_mtime_ns
    image = _OPEN.get(key)
    if image is None:
        image = _OPEN[key] = _decoded(path)
    return image


def _decoded(path: Path) -> WholeImage:
    try:
        return WholeImage(path)
    except TooManyPixelsError as error:
        raise TooManyPixelsError(path, f"{error.reason}; save it as a tiled TIFF") from error


def open_view(path: Path, view: View, form: ImageForm) -> LargeImage:
    """Open an image in the form in which a model takes it."""
    image = open_level(path, view)
    try:
        image = image if form.frame.color == "keep" else ColoredImage(image, form.frame.color)
    except ValueError as error:
        raise ValueError(f"{path}: {error}.") from error
    size = image.size
    if (size.channels, size.pixels) != (form.channels, form.pixels):
        raise ValueError(
            f"{path} has {describe_channels(size.channels, size.pixels)}, but the model was trained on images with"
            f" {describe_channels(form.channels, form.pixels)}; convert the image, or take a model that fits."
        )
    return image if view.scale == 1 else ScaledImage(image, view.scale)


def _reader(path: Path) -> str:
    """Return who reads a file: OpenSlide what scanners write, tifffile tiles, Pillow and others the rest."""
    with path.open("rb") as file:
        tiff = is_tiff(file.read(4))
    vendor = slide_vendor(path)
    if vendor not in (None, "generic-tiff") or path.suffix.lower() in _ONLY_SLIDES:
        return "openslide"
    if not tiff:
        return "plain"
    return "tiff" if vendor == "generic-tiff" or _needs_tiles(path) else "plain"


def _needs_tiles(path: Path) -> bool:
    import tifffile

    try:
        with tifffile.TiffFile(path) as tiff:
            page: Any = tiff.pages[0]
            large = page.imagewidth * page.imagelength > _SMALL
            return large or bool(page.is_tiled) or len(tiff.series[0].levels) > 1
    except Exception as error:
        raise ImageError(path, f"is damaged or truncated ({error})") from error
