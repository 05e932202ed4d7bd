"""What a labelling session leaves: a clean table, and class folders with links or copies."""

import os
import shutil
from pathlib import Path
from typing import Literal

from lmfcn.label.session import LabellingSession
from lmfcn.label.table import write_table
from lmfcn.util.files import create_folder

Files = Literal["none", "links", "copies"]
FINAL_TABLE = "labels.csv"
CLASS_FOLDERS = "classes"


def write_result(session: LabellingSession, folder: Path, files: Files = "none") -> Path:
    """Write `labels.csv` (path, label and perhaps group), which every command reads, and class folders if wanted.

    Parameters
    ----------
    session : LabellingSession
    folder : Path
        Where to; not inside the folder with the images, as these would be there twice.
    files : {"none", "links", "copies"}
        What to put into `classes`. Class folders that are there are not touched: the folder must not exist.
    """
    folder = folder.expanduser()
    if folder.resolve().is_relative_to(session.folder.resolve()):
        raise ValueError(f"{folder} is inside the folder with the images; choose a folder beside it.")
    chosen, groups = (
        [position for position in sorted(session.labels) if position not in session.left_out],
        session.groups(),
    )
    if not chosen:
        raise ValueError("No image has a label yet; label some first.")
    classes = folder / CLASS_FOLDERS
    if files != "none" and classes.exists():
        raise ValueError(f"{classes} exists already; remove it, or choose another folder.")
    header = ["path", "label"] if groups is None else ["path", "label", "group"]
    rows = []
    for position in chosen:
        path = os.path.relpath((session.folder / session.names[position]).resolve(), folder.resolve())
        group = [] if groups is None else [str(groups[position])]
        rows.append([Path(path).as_posix(), session.labels[position], *group])
    with create_folder(folder):
        write_table(folder / FINAL_TABLE, rows, header)
        if files != "none":
            _fill(session, chosen, classes, links=files == "links")
    return folder / FINAL_TABLE


def _fill(session: LabellingSession, chosen: list[int], classes: Path, *, links: bool) -> None:
    """Put every labelled image into the folder of its class; images of one name get that of their folder too."""
    for position in chosen:
        name, label = session.names[position], session.labels[position]
        source, target = (session.folder / name).resolve(), classes / label / Path(name).name
        if target.exists():
            target = classes / label / name.replace("/", "-")
        target.parent.mkdir(parents=True, exist_ok=True)
        if links:
            target.symlink_to(source)
        else:
            shutil.copy2(source, target)
