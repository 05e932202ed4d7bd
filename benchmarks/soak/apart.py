"""Run a part of the soak in a process of its own."""

import importlib
import json
import os
import tempfile
import traceback
from pathlib import Path

from soak.rows import Row, row


def run_apart(name: str, seconds: float, seed: int, **options: object) -> list[Row]:
    """Run a part in a child process; if that dies, this is a row."""
    with tempfile.NamedTemporaryFile() as answer:
        child = os.fork()
        if child == 0:
            _answer(name, seconds, seed, options, answer.name)
        status = os.waitpid(child, 0)[1]
        content = Path(answer.name).read_bytes()
    if status == 0 and content:
        return json.loads(content)
    return [row(f"the part {name}", "ends", f"died with status {status}", False, f"python benchmarks/soak {name}")]


def _answer(name: str, seconds: float, seed: int, options: dict, path: str) -> None:
    """Run a part, write its rows to a file, and end this process."""
    try:
        rows = importlib.import_module(f"soak.{name}").run(seconds, seed, **options)
        Path(path).write_text(json.dumps(rows), encoding="utf-8")
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
