"""Pictures of a map for people: labels, and labels over the image, each beside a legend."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from lmfcn.files import unfinished_file
from lmfcn.mapping.legend import Legend

LARGEST_PICTURE = 2048
_SMALLEST_PICTURE = 512
_OPACITY = 0.45
_LINE, _SQUARE, _MARGIN, _FONT_SIZE = 26, 16, 16, 15


def picture_size(height: int, width: int) -> tuple[int, int]:
    """Return the size at which an image is shown: not above a limit, and small ones enlarged.

    Examples
    --------
    >>> picture_size(30000, 15000), picture_size(100, 200)
    ((2048, 1024), (256, 512))
    """
    longest = max(height, width)
    factor = min(1.0, LARGEST_PICTURE / longest) if longest >= _SMALLEST_PICTURE else _SMALLEST_PICTURE / longest
    return max(1, round(height * factor)), max(1, round(width * factor))


def write_label_picture(path: Path, labels: np.ndarray, legend: Legend, areas: np.ndarray) -> None:
    """Write labels (height, width) in their colours."""
    _write(path, _beside_legend(legend.colours[labels], legend, areas))


def write_overlay(path: Path, labels: np.ndarray, image: np.ndarray, legend: Legend, areas: np.ndarray) -> None:
    """Write labels (height, width) over an image (height, width, 3); rejected windows and glass stay bare."""
    below = image.astype(np.float32)
    colours = legend.colours.astype(np.float32)
    opacity = np.full(len(colours), _OPACITY, dtype=np.float32)
    opacity[[legend.rejected, legend.glass]] = 0
    opacity[legend.unreadable] = 1
    shares = opacity[labels][..., None]
    blended = below * (1 - shares) + colours[labels] * shares
    _write(path, _beside_legend(np.rint(blended).astype(np.uint8), legend, areas, bare=True))


def as_rgb(pixels: np.ndarray, kind: str) -> np.ndarray:
    """Return an image (height, width, channels) of any kind of pixels as one that can be looked at, uint8 RGB."""
    shown = pixels[..., :3] if pixels.shape[2] >= 3 else pixels[..., :1]
    shown = shown.astype(np.float32)
    if kind != "uint8":
        low, high = np.percentile(shown, (1, 99))
        shown = (shown - low) * (255 / max(high - low, 1e-9))
    rgb = np.rint(shown.clip(0, 255)).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(rgb, (*rgb.shape[:2], 3)))


def _beside_legend(pixels: np.ndarray, legend: Legend, areas: np.ndarray, *, bare: bool = False) -> Image.Image:
    """Return a picture with the legend to its right: colour, name and share of what there is."""
    font = ImageFont.load_default(_FONT_SIZE)
    there = [number for number in range(len(areas)) if number < legend.n_classes or areas[number]]
    texts = [f"{legend.names[number]}  {areas[number] / areas.sum():.1%}" for number in there]
    text_width = max(round(font.getlength(text)) for text in texts)
    height, width = pixels.shape[:2]
    panel = _SQUARE + text_width + 3 * _MARGIN
    canvas = Image.new("RGB", (width + panel, max(height, _LINE * len(there) + 2 * _MARGIN)), "white")
    canvas.paste(Image.fromarray(pixels), (0, 0))
    draw = ImageDraw.Draw(canvas)
    for line, (number, text) in enumerate(zip(there, texts, strict=True)):
        left, top = width + _MARGIN, _MARGIN + line * _LINE
        colour = tuple(legend.colours[number].tolist())
        if bare and number in (legend.rejected, legend.glass):
            colour = (255, 255, 255)
        draw.rectangle((left, top, left + _SQUARE, top + _SQUARE), fill=colour, outline=(90, 90, 90))
        draw.text((left + _SQUARE + _MARGIN // 2, top - 1), text, fill=(30, 30, 30), font=font)
    return canvas


def _write(path: Path, picture: Image.Image) -> None:
    with unfinished_file(path) as unfinished:
        picture.save(unfinished, format="PNG", optimize=False)
