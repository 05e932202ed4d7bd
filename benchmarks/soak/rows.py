"""The form of a result: one promise, what was found, and the command that finds it again."""

from typing import TypedDict


class Row(TypedDict):
    """A line of the table."""

    what: str
    promise: str
    found: str
    ok: bool
    command: str


def row(what: str, promise: str, found: str, ok: bool, command: str) -> Row:
    """Return a line of the table."""
    return Row(what=what, promise=promise, found=found, ok=bool(ok), command=command)


def first(lines: list[str]) -> str:
    """Return the first of some lines about mistakes, to end a cell with; nothing if there is none."""
    return f"; the first: {' '.join(lines[0].split())[:200]}" if lines else ""


def table(rows: list[Row]) -> str:
    """Return rows as a Markdown table."""
    lines = ["| what | promise | found | ok | command |", "|---|---|---|---|---|"]
    for found in rows:
        cells = (found["what"], found["promise"], found["found"], "yes" if found["ok"] else "NO", found["command"])
        text = [cell.replace("|", "/") for cell in cells[:4]]
        lines.append(f"| {' | '.join(text)} | `{cells[4]}` |")
    return "\n".join(lines)
