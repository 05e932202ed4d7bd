"""The table of a labelling session: a CSV file to which every decision is appended as it happens."""

import csv
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

from lmfcn.util.files import LockFile, append_bytes, write_text

By = Literal["hand", "suggestion", "skip", "undo", "folder"]
COLUMNS = ("path", "label", "when", "by")
_LONGEST_LABEL = 100
_SHOWN = 3


@dataclass(frozen=True)
class Row:
    """One decision.

    Attributes
    ----------
    path : str
        Path of the image relative to the folder, with slashes.
    label : str
        Its class from now on; empty if it has none.
    when : str
        Date and time in ISO format.
    by : str
        "hand", "suggestion" (the page proposed it), "skip", "undo", or "folder" (it was in a class folder).
    """

    path: str
    label: str
    when: str = ""
    by: str = "hand"


def now() -> str:
    """Return the present time as tables hold it: fine enough that rows of one action, and of no other, share it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def check_label(label: str) -> str:
    r"""Return a class name without spaces around it; refuse names that cannot be those of folders.

    Examples
    --------
    >>> check_label(" rough wood ")
    'rough wood'
    >>> check_label("a/b")
    Traceback (most recent call last):
        ...
    ValueError: A class name must have 1 to 100 printable characters without / or \, got 'a/b'; choose another one.
    """
    name = label.strip()
    if not 1 <= len(name) <= _LONGEST_LABEL or not name.isprintable() or set(name) & set("/\\") or name in (".", ".."):
        raise ValueError(
            f"A class name must have 1 to {_LONGEST_LABEL} printable characters without / or \\, got {label[:40]!r};"
            " choose another one."
        )
    return name


class LabelTable:
    """A CSV file of decisions (path, label, when, by), of which the last one about an image counts.

    Rows are appended and on the disk before `append` returns. A file that ends in the middle of a row, after a kill,
    loses that row. Rows with mistakes, after an edit by hand, are left out and named in `problems`. Only one process
    may have a table open.

    Parameters
    ----------
    path : path
        It need not exist.

    Attributes
    ----------
    rows : list of Row
    problems : list of str
        A sentence for each row that was left out.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, LabelTable(Path(folder) / "labels.csv") as table:
    ...     table.append([Row("1.png", "wood", now()), Row("2.png", "stone", now())])
    ...     table.append([Row("1.png", "stone", now(), "undo")])
    ...     {path: row.label for path, row in table.latest().items()}
    {'1.png': 'stone', '2.png': 'stone'}
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = LockFile(
            self.path, f"{self.path} is open in another lmfcn label; use that one, or end it, or give another --table."
        )
        self.rows: list[Row] = []
        self.problems: list[str] = []
        self._separator, self._columns = ",", list(COLUMNS)
        self._state: tuple[int, int] | None = None
        try:
            self._read()
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> "LabelTable":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let other processes open the table."""
        self._lock.release()

    def latest(self) -> dict[str, Row]:
        """Return the last decision about each image."""
        return {row.path: row for row in self.rows}

    def changed_outside(self) -> bool:
        """Read the file again if somebody else has changed it; return whether that was so."""
        if _state(self.path) == self._state:
            return False
        self._read()
        return True

    def append(self, rows: Sequence[Row]) -> None:
        """Write rows behind the others, whole and on the disk, or none of them: OSError then says why."""
        self.changed_outside()
        text = io.StringIO()
        writer = csv.writer(text, delimiter=self._separator, lineterminator="\n")
        if self._state is None:
            writer.writerow(self._columns)
        for row in rows:
            values = vars(row)
            writer.writerow([values.get(column, "") for column in self._columns])
        append_bytes(self.path, text.getvalue().encode())
        self._state = _state(self.path)
        self.rows += rows

    def _read(self) -> None:
        self.rows, self.problems, self._state = [], [], _state(self.path)
        if self._state is None:
            return
        try:
            text = self.path.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{self.path} must be a text in UTF-8, but byte {error.start} is not; save it as CSV UTF-8."
            ) from error
        header = text.partition("\n")[0]
        self._separator = max(",;\t", key=header.count)
        try:
            records = list(csv.reader(io.StringIO(text, newline=""), delimiter=self._separator))
        except csv.Error as error:
            raise ValueError(f"{self.path} is not a readable table ({error}); save it as CSV again.") from error
        if not records:
            self._state = None
            return
        self._columns = [name.strip().lower() for name in records[0]]
        self._check_columns()
        self._take(records[1:], whole=text.endswith("\n"))

    def _check_columns(self) -> None:
        missing = [name for name in ("path", "label") if name not in self._columns]
        if missing:
            raise ValueError(
                f"{self.path} must have the columns {', '.join(COLUMNS)} in its first line, but {missing[0]} is not"
                f" among {', '.join(self._columns)[:80]}; repair that line, or give another --table."
            )

    def _take(self, records: list[list[str]], *, whole: bool) -> None:
        """Keep the rows without mistakes; the last one may have been cut off by a kill."""
        for number, record in enumerate(records, start=2):
            if not any(cell.strip() for cell in record):
                continue
            last = number == len(records) + 1 and not whole
            try:
                self.rows.append(self._row(record, last=last))
            except ValueError as error:
                self.problems.append(f"{self.path.name}, row {number}: {error} The row is left out.")
                if last:
                    self._drop_last()
                    return
        if not whole:
            append_bytes(self.path, b"\n")
            self._state = _state(self.path)

    def _row(self, record: list[str], *, last: bool) -> Row:
        cells = dict(zip(self._columns, (cell.strip() for cell in record), strict=False))
        if len(record) > len(self._columns):
            raise ValueError(f"Expected {len(self._columns)} values, got {len(record)}; put texts in quotes.")
        if last and "by" in self._columns and cells.get("by") not in get_args(By):
            raise ValueError("It ends in the middle.")
        if not cells.get("path"):
            raise ValueError("The path is empty.")
        label = cells.get("label", "")
        return Row(
            cells["path"].replace("\\", "/"),
            check_label(label) if label else "",
            cells.get("when", ""),
            cells.get("by") or "hand",
        )

    def _drop_last(self) -> None:
        """Cut an incomplete row off, so that the next one does not continue it."""
        content = self.path.read_bytes()
        os.truncate(self.path, content.rfind(b"\n") + 1 if b"\n" in content else len(content))
        self._state = _state(self.path)

    @property
    def notes(self) -> list[str]:
        """A few of the problems, and how many more there are."""
        more = len(self.problems) - _SHOWN
        return [*self.problems[:_SHOWN], *([f"{more} more rows of {self.path.name} are left out."] if more > 0 else [])]


def write_table(path: Path, rows: Iterable[Sequence[str]], header: Sequence[str]) -> None:
    """Write a CSV file, whole or not at all."""
    write_text(path, table_text(rows, header))


def table_text(rows: Iterable[Sequence[str]], header: Sequence[str]) -> str:
    """Return rows of text as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def _state(path: Path) -> tuple[int, int] | None:
    """Return size and time of the last change of a file; None if it does not exist."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns
