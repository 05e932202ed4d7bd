"""The page of an audit: pictures of doubtful training images, one self-contained HTML file."""

from datetime import datetime
from pathlib import Path
from typing import Any

from lmfcn import __version__
from lmfcn.data.collections import ImageCollection
from lmfcn.data.pictures import as_address, thumbnail
from lmfcn.explain.audit_table import Audited, doubts
from lmfcn.report.page import write_page

_SHOWN = 60
_SHOWN_PAIRS = 20


def write_audit_report(audited: Audited, images: ImageCollection, command: str, path: Path) -> None:
    """Write the page; a file of that name is replaced whole or not at all.

    Parameters
    ----------
    audited : Audited
    images : ImageCollection
        What was audited.
    command : str
        What to type to do it again.
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
        "suspects": [entry(position) for position in suspects[:_SHOWN]],
        "n_twins": len(twins),
        "pairs": [[entry(position) for position in pair] for pair in twins[:_SHOWN_PAIRS]],
        "latents": audited.latents_from,
        "command": command,
        "made": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
        "version": __version__,
    }
    write_page(path, "audit.html", content)
