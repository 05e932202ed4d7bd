"""The pages of `lmfcn explain` and `lmfcn audit`: self-contained HTML files."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from lmfcn import __version__
from lmfcn.data.collection import ImageCollection
from lmfcn.data.framing import THUMBNAIL_SIDE, make_thumbnail, to_data_url
from lmfcn.explain.audit import NamedAudit, describe_accuracy, describe_issues, group_noun
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
        "side": THUMBNAIL_SIDE,
        "made": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
        "version": __version__,
    }
    write_page(path, "explanation.html", content)


def _content(entry: Explained) -> dict[str, Any]:
    found = entry.found
    return {
        "name": entry.name,
        "found": found,
        "picture": to_data_url(make_thumbnail(entry.image, _LARGEST_SIDE)),
        "overlay": to_data_url(entry.overlay, "png"),
        "limit": color_limit(found.map.values),
        "lists": [
            ("For", FOR, [_entry(image) for image in found.supporting]),
            ("Against", AGAINST, [_entry(image) for image in found.opposing]),
        ],
        "listed": sum(image.weight for image in found.supporting),
        "taken": sum(image.weight for image in found.opposing),
    }


def _entry(image: DecidingImage) -> dict[str, Any]:
    picture = None if image.picture is None else to_data_url(image.picture)
    name = "" if image.name is None else Path(image.name).name
    return {"weight": image.weight, "label": image.label or "unknown class", "name": name, "picture": picture}


_MOST_RANKED, _MOST_GROUPS, _MOST_OF_GROUP = 60, 20, 6


def write_audit_report(audited: NamedAudit, images: ImageCollection, command: str, path: Path) -> None:
    """Write the page of an audit; an existing file is replaced whole or not at all.

    Parameters
    ----------
    audited : NamedAudit
    images : ImageCollection
        The audited images.
    command : str
        The command that repeats the audit.
    path : Path
    """
    found = audited.found
    disagreeing, groups = found.disagreeing.tolist(), found.near_identical

    def entry(position: int) -> dict[str, Any]:
        return {
            "name": audited.names[position],
            "picture": to_data_url(make_thumbnail(images[position])),
            "label": str(found.classes[found.numbers[position]]),
            "issues": describe_issues(audited, position),
        }

    content = {
        "n_images": len(found),
        "accuracy": describe_accuracy(found),
        "n_disagreeing": len(disagreeing),
        "ranked": [entry(position) for position in disagreeing[:_MOST_RANKED]],
        "n_groups": len(groups),
        "group_noun": group_noun(groups),
        "groups": [
            {"images": [entry(position) for position in group[:_MOST_OF_GROUP]], "n_images": len(group)}
            for group in groups[:_MOST_GROUPS]
        ],
        "latents": audited.latents_from,
        "command": command,
        "made": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
        "version": __version__,
    }
    write_page(path, "audit.html", content)
