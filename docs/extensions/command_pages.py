"""The command line reference: a Markdown page per command, made from the commands themselves."""

import re
from pathlib import Path
from typing import Any

import typer

from lmfcn.__main__ import app as commands
from lmfcn.util.files import write_text

_INTRODUCTION = """# Command line reference

These pages are made from the commands themselves: they say what `lmfcn COMMAND --help` says.
[The command line](../command_line.md) explains the commands, and [the tour](../tour.md) shows their output.
"""


def write_pages(folder: Path) -> None:
    """Write a page for each command and a list of them; a page that is the same stays untouched."""
    folder.mkdir(exist_ok=True)
    group = typer.main.get_command(commands).commands
    rows = [f"| [lmfcn {name}]({name}.md) | {escape(command.short_help)} |" for name, command in group.items()]
    table = "\n".join(["| command | what it does |", "|---|---|", *rows])
    contents = "\n".join(["```{toctree}", ":hidden:", "", *group, "```"])
    _write(folder / "index.md", f"{_INTRODUCTION}\n{table}\n\n{contents}\n")
    for name, command in group.items():
        _write(folder / f"{name}.md", command_page(name, command))


def command_page(name: str, command: Any) -> str:
    """Return what a command does, how it is called, and all its arguments and options."""
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    names = " ".join((argument.metavar or argument.name).upper() for argument in arguments)
    parts = [f"# lmfcn {name}", escape(command.help), f"```\nlmfcn {name} [OPTIONS] {names}\n```".replace(" \n", "\n")]
    if arguments:
        parts += ["## Arguments", *map(entry, arguments)]
    for panel, options in _by_panel(command.params).items():
        parts += [f"## {panel}", *map(entry, options)]
    return "\n\n".join(parts) + "\n"


def _by_panel(parameters: list[Any]) -> dict[str, list[Any]]:
    """Return options under the headings that the help shows."""
    panels: dict[str, list[Any]] = {}
    for parameter in parameters:
        if parameter.param_type_name == "option":
            panels.setdefault(parameter.rich_help_panel or "Options", []).append(parameter)
    return panels


def entry(parameter: Any) -> str:
    """Return the name of an option or argument, and below it what it means and its default."""
    metavar = parameter.metavar or parameter.name
    names = ", ".join(parameter.opts) if parameter.param_type_name == "option" else metavar
    value = "" if getattr(parameter, "is_flag", False) or names == metavar else f" {metavar.upper()}"
    return f"`{names}{value}`\n: {escape(parameter.help or '')}{_default(parameter)}"


def _default(parameter: Any) -> str:
    shown = not (parameter.required or parameter.default is None or callable(parameter.default))
    if not shown or parameter.default is False or parameter.default == "":
        return ""
    return f" Default: `{parameter.default}`."


def escape(text: str) -> str:
    """Return text in which no character means anything to Markdown."""
    return re.sub(r"([\\`*_\[\]<>|$#~])", r"\\\1", text)


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_text(path, text)


def setup(app: Any) -> dict[str, bool]:
    """Write the pages before the others are read."""
    app.connect("config-inited", lambda app, _: write_pages(Path(app.srcdir) / "commands"))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
