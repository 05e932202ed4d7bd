"""The pages of `lmfcn explain` and `lmfcn audit`: self-contained HTML files."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from lmfcn import __version__
from lmfcn.data.collection import ImageCollection
from lmfcn.data.framing import THUMBNAIL, as_address, thumbnail
from lmfcn.explain.audit import Audited, doubts
from lmfcn.explain.explanation import DecidingImage
from lmfcn.report.overlay import AGAINST, FOR, Explained, color_limit
from lmfcn.report.style import write_page

_LARGEST_SIDE = 512


def write_explanation_report(explained: Sequence[Explained], path: Path) -> None:
    """Write the page of explanations; an existing file is replaced whole or not at all."""
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
            ("For", FOR, [_entry(image) for image in found.for_it]),
            ("Against", AGAINST, [_entry(image) for image in found.against_it]),
        ],
        "listed": sum(image.weight for image in found.for_it),
        "taken": sum(image.weight for image in found.against_it),
    }


def _entry(image: DecidingImage) -> dict[str, Any]:
    picture = None if image.picture is None else as_address(image.picture)
    name = "" if image.name is None else Path(image.name).name
    return {"weight": image.weight, "label": image.label or "unknown class", "name": name, "picture": picture}


_MOST_SUSPECTS, _MOST_PAIRS = 60, 20


def write_audit_report(audited: Audited, images: ImageCollection, command: str, path: Path) -> None:
    """Write the page of an audit; an existing file is replaced whole or not at all.

    Parameters
    ----------
    audited : Audited
    images : ImageCollection
        The audited images.
    command : str
        The command that repeats the audit.
    path : Path
    """
    found = audited.found
    suspects, twins = found.suspects.tolist(), found.twins

    def entry(position: int) -> dict[str, Any]:
        return {
            "name": audited.names[position],
            "picture": as_address(thumbnail(images[position])),
            "label": str(found.classes[found.numbers[position]]),
            "doubts": doubts(audited, position),
        }

    content = {
        "n_images": len(found),
        "n_suspects": len(suspects),
        "suspects": [entry(position) for position in suspects[:_MOST_SUSPECTS]],
        "n_twins": len(twins),
        "pairs": [[entry(position) for position in pair] for pair in twins[:_MOST_PAIRS]],
        "latents": audited.latents_from,
        "command": command,
        "made": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
        "version": __version__,
    }
    write_page(path, "audit.html", content)
