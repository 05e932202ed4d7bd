"""What commands say, and to whom: results to standard output, everything else to standard error."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True)
class Teller:
    """Speaks as the user wants it: for a reader, in few words, or for a program."""

    quiet: bool = False
    as_json: bool = False

    def say(self, text: str, style: str | None = None) -> None:
        """Tell a part of the result, unless a program listens."""
        if not self.as_json:
            Console().print(text, style=style, highlight=False, soft_wrap=True, markup=False)

    def note(self, text: str) -> None:
        """Tell what is good to know, unless nobody wants to."""
        if not self.quiet:
            Console(stderr=True).print(text, highlight=False, soft_wrap=True, markup=False)

    def hint(self, command: str) -> None:
        """Tell what one does next, to people."""
        if not self.as_json:
            self.note(f"Next: {command}")

    def busy(self, text: str) -> AbstractContextManager[object]:
        """Show a sign of life on a terminal while a block runs that has no bar of its own."""
        return nullcontext() if self.quiet else Console(stderr=True).status(escape(text))

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show rows of text, all but the first column aligned to the right."""
        if self.as_json:
            return
        table = Table()
        for place, heading in enumerate(headings):
            table.add_column(escape(heading), justify="right" if place else "left")
        for row in rows:
            table.add_row(*map(escape, row))
        Console().print(table)

    def give(self, values: Mapping[str, Any]) -> None:
        """Hand the result to the program that listens, if one does."""
        if self.as_json:
            typer.echo(json.dumps(values, indent=2, allow_nan=False))


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
