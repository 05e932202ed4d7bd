"""Open folders, tables, list files and arrays as collections."""

import csv
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lmfcn.data.collection import ImageCollection

IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".jfif", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".pnm"}
_PART_OF_LIST = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}

TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".npz")
"""Suffixes of files that hold or list many images."""


def open_collection(
    path: str | Path, *, group_column: str | None = None, group_pattern: str | None = None, **options: Any
) -> ImageCollection:
    """Read a collection from a folder or file.

    Parameters
    ----------
    path : str or Path
        A folder of class folders; a folder with list files (`train.txt`, `val.txt`, `test.txt`); a folder with a
        `groups.csv` or `labels.csv` table; a table (`.csv`, `.tsv`); a list file (`.txt`); arrays (`.npz`).
    group_column : str, optional
        The column of a table, or the array of an `.npz`, that holds the groups of the images; by default "group" for
        tables and "groups" for arrays, if present.
    group_pattern : str, optional
        Regular expression with at least one group in brackets, searched in the name of every file: files in which the
        brackets hold the same text are of one group. It replaces groups in a table.
    **options
        Passed on to `ImageCollection`, such as `color`.
    """
    if group_pattern is None:
        return _open(Path(path), group_column, **options)
    if group_column is not None:
        raise ValueError("Groups can come from a column or from file names, not from both; give one of them.")
    pattern = compile_pattern(group_pattern)
    collection = _open(Path(path), None, **options)
    collection.groups = np.array(groups_from_names(collection.paths, pattern))
    return collection


def groups_from_names(paths: Iterable[str], pattern: re.Pattern[str]) -> list[str]:
    """Return the group of each file: what the brackets of a pattern hold in its name.

    Examples
    --------
    >>> groups_from_names(["a/exp1_num_27.jpg", "b/exp4_num_27.jpg"], re.compile("num_([0-9]+)"))
    ['27', '27']
    """
    groups = []
    for path in paths:
        match = pattern.search(Path(path).name)
        if match is None:
            raise ValueError(
                f"The pattern '{pattern.pattern}' for groups is not found in the file name '{Path(path).name}';"
                " every name must match it."
            )
        groups.append("-".join(text or "" for text in match.groups()))
    return groups


def compile_pattern(text: str) -> re.Pattern[str]:
    """Compile a regular expression with brackets, or say what is wrong with it."""
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise ValueError(f"The pattern '{text}' for groups is not a regular expression: {error}.") from error
    if pattern.groups == 0:
        raise ValueError(
            f"The pattern '{text}' for groups must have brackets around what names the group, such as 'num_([0-9]+)'."
        )
    return pattern


def _open(path: Path, group_column: str | None, **options: Any) -> ImageCollection:
    if not path.exists():
        raise ValueError(f"{path} does not exist.")
    path = table_in(path) or path
    readers = {".csv": from_table, ".tsv": from_table, ".npz": from_npz}
    if path.is_file() and path.suffix.lower() in readers:
        return readers[path.suffix.lower()](path, group_column=group_column, **options)
    if group_column is not None:
        raise ValueError(f"{path} is not a table or an .npz file, so it has no column {group_column!r} for groups.")
    if path.is_dir():
        lists = _list_files(path)
        return from_lists(lists, **options) if lists else from_folder(path, **options)
    if path.suffix.lower() == ".txt":
        return from_lists([path], **options)
    raise ValueError(f"{path} is neither a folder nor a {', '.join(TABLE_SUFFIXES[:-1])} or {TABLE_SUFFIXES[-1]} file.")


def open_images(path: str | Path, **options: Any) -> ImageCollection:
    """Read images to predict, which need no labels.

    As `open_collection`, but of a folder without a table or lists all images are read, at any depth. They are sorted by
    their path.

    Parameters
    ----------
    path : str or Path
    **options
        Passed on to `ImageCollection`, such as `color`.
    """
    path = Path(path)
    if not path.is_dir() or table_in(path) or _list_files(path):
        return open_collection(path, **options)
    files = sorted(image_files(path), key=lambda file: (file.relative_to(path).parts[0], str(file)))
    if not files:
        raise ValueError(f"No image was found in {path}.")
    return ImageCollection(files, **options)


def from_folder(path: str | Path, **options: Any) -> ImageCollection:
    """Read a folder with one subfolder per class; files may be nested deeper.

    Image files are recognised by their suffix. Folders and files whose name starts with a dot are ignored.
    """
    path = Path(path)
    if not path.is_dir():
        raise ValueError(f"{path} is not a folder.")
    files: list[str] = []
    labels: list[str] = []
    for folder in sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith(".")):
        found = sorted(str(file) for file in image_files(folder))
        files += found
        labels += [folder.name] * len(found)
    if not files:
        n_outside = sum(1 for _ in image_files(path))
        hint = f"the {n_outside} images in it are in no class folder" if n_outside else "no image was found in it"
        raise ValueError(f"{path} must hold one folder of images per class, but {hint}.")
    return ImageCollection(files, labels, **options)


def from_table(path: str | Path, *, group_column: str | None = None, **options: Any) -> ImageCollection:
    """Read a table with the columns path and, if present, label, group (or `group_column`) and split.

    Columns are separated by commas, semicolons or tabs; paths are relative to the table.
    """
    path = Path(path)
    rows = _read_table(path)
    group_name = "group" if group_column is None else group_column.strip().lower()
    for column in ("path",) if group_column is None else ("path", group_name):
        if column not in rows[0]:
            raise ValueError(f"{path} must have a column {column!r}, got the columns {sorted(rows[0])}.")
    columns = [column for column in ("path", "label", group_name, "split") if column in rows[0]]
    values = {column: [row[column] for row in rows] for column in columns}
    for column, entries in values.items():
        if "" in entries or None in entries:
            line = next(i for i, entry in enumerate(entries, start=2) if not entry)
            raise ValueError(f"{path}, line {line}: the column '{column}' is empty.")
    files = [str(path.parent / entry) for entry in values["path"]]
    return ImageCollection(files, values.get("label"), values.get(group_name), values.get("split"), **options)


def from_lists(paths: list[Path] | list[str], **options: Any) -> ImageCollection:
    """Read list files with lines `class;path`; the name of the file (train, val, test) is the part of the split.

    Paths are relative to the list file, or to the working folder if they do not exist there.
    """
    files: list[str] = []
    labels: list[str] = []
    split: list[str] = []
    for path in map(Path, paths):
        for number, line in enumerate(_read_text(path).splitlines(), start=1):
            if not line.strip():
                continue
            label, separator, file = line.partition(";")
            if not separator or not label.strip() or not file.strip():
                raise ValueError(f"{path}, line {number}: expected class;path, got {line[:60]!r}.")
            files.append(_resolve(file.strip(), path.parent))
            labels.append(label.strip())
            split.append(_PART_OF_LIST.get(path.stem.lower(), path.stem))
    if not files:
        raise ValueError(f"No image is listed in {', '.join(map(str, paths))}.")
    return ImageCollection(files, labels, None, split, **options)


def from_npz(path: str | Path, *, group_column: str | None = None, **options: Any) -> ImageCollection:
    """Read arrays `images` (or `X`) and, if present, `labels` (or `y`), `groups` and `split`."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            content = {name: arrays[name] for name in arrays.files}
    # Of damaged archives, also errors of zlib, struct and tokenize.
    except Exception as error:
        raise ValueError(f"{path} is not a readable .npz file of plain arrays ({error}).") from error
    images = content.get("images", content.get("X"))
    if images is None:
        raise ValueError(f"{path} must hold an array 'images' or 'X', got {sorted(content)}.")
    if group_column is not None and group_column not in content:
        raise ValueError(f"{path} must hold an array {group_column!r} for the groups, got {sorted(content)}.")
    labels, groups = content.get("labels", content.get("y")), content.get(group_column or "groups")
    return ImageCollection(images, labels, groups, content.get("split"), **options)


def image_files(folder: Path) -> Iterator[Path]:
    """Go through the image files of a folder, at any depth; hidden ones and those in hidden folders are left out."""
    for file in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if file.suffix.lower() in IMAGE_SUFFIXES and not hidden and file.is_file():
            yield file


def _resolve(file: str, folder: Path) -> str:
    """Return a path relative to a list file, or to the working folder if it exists only there."""
    resolved = folder / file
    return str(resolved if resolved.exists() or not Path(file).exists() else file)


def table_in(folder: Path) -> Path | None:
    """Return the table `labels.csv` or `groups.csv` of a folder, if it has one."""
    return next((folder / name for name in ("labels.csv", "groups.csv") if (folder / name).is_file()), None)


def _list_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*.txt") if file.stem.lower() in _PART_OF_LIST)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text (byte {error.start}); save it with that encoding.") from error


def _read_table(path: Path) -> list[dict[str, str]]:
    text = _read_text(path)
    header = text.partition("\n")[0]
    separator = max("\t;,", key=header.count)
    try:
        rows = list(csv.DictReader(text.splitlines(), delimiter=separator))
    except csv.Error as error:
        raise ValueError(f"{path} is not a readable table ({error}); save it as CSV again.") from error
    if not rows:
        raise ValueError(f"{path} has no rows below its header.")
    return [{(key or "").strip().lower(): (value or "").strip() for key, value in row.items() if key} for row in rows]
