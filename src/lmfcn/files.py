"""Files that are there whole or not at all."""

import os
from pathlib import Path


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 file under a temporary name and rename it when it is complete."""
    path = Path(path)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
