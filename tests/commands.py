"""Commands that the documentation shows: are they commands, and are their options options?"""

import re
import shlex

import typer

from lmfcn.__main__ import app

COMMANDS = typer.main.get_command(app).commands


def shown_commands(text):
    """Return what follows `lmfcn` on the lines of code in a Markdown page that start with it."""
    fenced = "".join(re.findall(r"^```\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))
    indented = "\n".join(re.findall(r"^ {4}(.+)$", text, flags=re.MULTILINE))
    return re.findall(r"^lmfcn ([a-z]+ .*)$", f"{fenced}\n{indented}", flags=re.MULTILINE)


def parameters_of(command):
    """Return the options of a command, by each of their names."""
    return {name: parameter for parameter in COMMANDS[command].params for name in parameter.opts}


def check_command(line):
    """Fail if a command or an option does not exist."""
    command, *words = shlex.split(line, comments=True)
    given = [word for word in words if re.match(r"--?[a-z]", word)]
    assert set(given) <= set(parameters_of(command)), line
    assert COMMANDS[command].make_context(command, words, resilient_parsing=True).params
