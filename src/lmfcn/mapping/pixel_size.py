"""How large the pixels of a TIFF are, as far as the file says so."""

import re
from pathlib import Path
from typing import Any

import tifffile

_MICROMETRE = 5  # as tifffile counts units of resolution
_INCH = 25400.0
_MICROMETRES = {
    **dict.fromkeys(("\u00b5m", "\u03bcm", "um", "micron", "microns", "micrometer", "micrometre"), 1.0),
    "nm": 1e-3,
    "mm": 1e3,
    "cm": 1e4,
    "m": 1e6,
    "inch": _INCH,
    "in": _INCH,
}
_PLACEHOLDERS = (72, 96)  # dots per inch that programs write when they know nothing


def micrometres_per_pixel(path: Path) -> float | None:
    """Return the side of a pixel of the finest level of any TIFF; None if the file does not say, or is none."""
    try:
        with tifffile.TiffFile(path) as tiff:
            return tiff_micrometres(tiff)
    # Notes may be damaged in any way; what can be read without them is no worse for that.
    except Exception:
        return None


def tiff_micrometres(tiff: tifffile.TiffFile) -> float | None:
    """Return the side of a pixel of the finest level: what OME or ImageJ noted, or else the resolution of the page."""
    noted = _from_ome(tiff.ome_metadata) if tiff.is_ome else None
    page: Any = tiff.pages[0]
    if noted is not None or "XResolution" not in page.tags:
        return noted
    if tiff.is_imagej:
        unit = str((tiff.imagej_metadata or {}).get("unit", "")).replace("\\u00B5", "\u00b5")
        per_unit = float(page.get_resolution()[0])
        return _MICROMETRES[unit] / per_unit if unit in _MICROMETRES and per_unit > 0 else None
    return _from_resolution(page)


def _from_resolution(page: Any) -> float | None:
    if page.resolutionunit not in (2, 3):  # inch, centimetre
        return None
    per_micrometre = float(page.get_resolution(_MICROMETRE)[0])
    if per_micrometre <= 0 or any(abs(per_micrometre * _INCH - dots) < 0.5 for dots in _PLACEHOLDERS):
        return None
    return 1 / per_micrometre


def _from_ome(text: str | None) -> float | None:
    pixels = re.search(r"<(?:\w+:)?Pixels\b[^>]*>", text or "")
    noted = dict(re.findall(r'\b(PhysicalSizeX(?:Unit)?)="([^"]*)"', pixels[0])) if pixels else {}
    unit = _MICROMETRES.get(noted.get("PhysicalSizeXUnit", "um"))
    try:
        size = float(noted["PhysicalSizeX"])
    except (KeyError, ValueError):
        return None
    return size * unit if unit is not None and 0 < size < float("inf") else None
