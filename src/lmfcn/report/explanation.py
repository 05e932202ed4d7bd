"""The page of explained predictions: one self-contained HTML file."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from lmfcn import __version__
from lmfcn.data.pictures import THUMBNAIL, as_address, thumbnail
from lmfcn.explain.explanation import DecidingImage
from lmfcn.report.overlay import AGAINST, FOR, Explained, color_limit
from lmfcn.report.page import write_page

_LARGEST_SIDE = 512


def write_explanation_report(explained: Sequence[Explained], path: Path) -> None:
    """Write the page; a file of that name is replaced whole or not at all."""
    content = {
        "images": [_content(entry) for entry in explained],
        "for_color": FOR,
        "against_color": AGAINST,
        "side": THUMBNAIL,
        "made": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
        "version": __version__,
    }
    write_page(path, "explanation.html", content)


def _content(entry: Explained) -> dict[str, Any]:
    found = entry.found
    return {
        "name": entry.name,
        "found": found,
        "picture": as_address(thumbnail(entry.image, _LARGEST_SIDE)),
        "overlay": as_address(entry.overlay, "png"),
        "limit": color_limit(found.map.values),
        "lists": [
            ("For", FOR, [_figure(image) for image in found.for_it]),
            ("Against", AGAINST, [_figure(image) for image in found.against_it]),
        ],
        "listed": sum(image.weight for image in found.for_it),
        "taken": sum(image.weight for image in found.against_it),
    }


def _figure(image: DecidingImage) -> dict[str, Any]:
    picture = None if image.picture is None else as_address(image.picture)
    name = "" if image.name is None else Path(image.name).name
    return {"weight": image.weight, "label": image.label or "unknown class", "name": name, "picture": picture}
