"""Planted faults: each is a mistake that somebody could make tomorrow, and a part of the soak must find it."""

import contextlib
import io
import itertools
import logging
import os
import time
import types
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from lmfcn.data import image_files
from lmfcn.method.network import TextureFCN
from lmfcn.model import TextureModel
from lmfcn.predict import journal, stream
from lmfcn.util import files as util_files
from soak.apart import run_apart
from soak.rows import Row, row

COMMAND = "python benchmarks/soak --faults"
SECONDS = 6.0
"""For the part that must find a fault."""
_LEAKED: list[Any] = []


@contextmanager
def leaked_file_handle() -> Iterator[None]:
    """Files that are opened once more, and never closed."""
    original = image_files._open_file

    def leaking(path: Any, use: Callable) -> Any:
        _LEAKED.append(open(path, "rb"))  # noqa: SIM115
        return original(path, use)

    with mock.patch.object(image_files, "_open_file", leaking):
        yield
    while _LEAKED:
        _LEAKED.pop().close()


def foreign_exception() -> AbstractContextManager:
    """Errors of decoders that reach the user as they are."""
    return mock.patch.object(image_files, "_convert_errors", lambda _, use: use())


@contextmanager
def printing_library() -> Iterator[None]:
    """Messages of a library that nobody takes, so that they go to standard error."""
    logger = logging.getLogger("tifffile")
    handlers, logger.handlers = logger.handlers, []
    try:
        yield
    finally:
        logger.handlers = handlers


def slow_decoder() -> AbstractContextManager:
    """Seconds of computing for one file of a hundred."""
    original, number = image_files._decode, itertools.count()

    def slow(data: bytes, max_pixels: int) -> np.ndarray:
        end = time.process_time() + (2.5 if next(number) % 100 == 0 else 0)
        while time.process_time() < end:
            pass
        return original(data, max_pixels)

    return mock.patch.object(image_files, "_decode", slow)


def hungry_decoder() -> AbstractContextManager:
    """Memory without measure for one file of fifty."""
    original, number = image_files._decode, itertools.count()

    def hungry(data: bytes, max_pixels: int) -> np.ndarray:
        if next(number) % 50 == 0:
            np.ones(2**26 + 2**22)  # more than half a gigabyte
        return original(data, max_pixels)

    return mock.patch.object(image_files, "_decode", hungry)


@contextmanager
def half_written_file() -> Iterator[None]:
    """Files that are written under their own name, piece by piece."""

    def atomic_path(path: str | Path) -> AbstractContextManager[Path]:
        return contextlib.nullcontext(Path(path))

    @contextmanager
    def open_atomic(path: str | Path) -> Iterator[Any]:
        with _SlowFile(path, "w") as file:
            yield file

    with (
        mock.patch.object(util_files, "atomic_path", atomic_path),
        mock.patch.object(util_files, "open_atomic", open_atomic),
    ):
        yield


class _SlowFile(io.FileIO):
    """A file that is written in pieces, as on a slow disk."""

    def write(self, content: Any) -> int:
        for start in range(0, len(content), 4096):
            super().write(content[start : start + 4096])
            time.sleep(0.002)
        return len(content)


def missing_fsync() -> AbstractContextManager:
    """Files that are renamed before the disk has them."""
    return mock.patch.object(util_files, "os", types.SimpleNamespace(**{**vars(os), "fsync": lambda _: None}))


def wrong_resume() -> AbstractContextManager:
    """Make a resumed run forget what it has done."""
    return mock.patch.object(journal.Journal, "__contains__", return_value=False)


def mixed_up_answer() -> AbstractContextManager:
    """Answers of a batch that go to other files."""
    original = stream.predict_paths

    def mixed(model: TextureModel, paths: Any) -> list:
        rows = original(model, paths)
        turned = [*rows[1:], *rows[:1]]
        return [
            stream.FilePrediction(mine.path, other.probabilities, other.error)
            for mine, other in zip(rows, turned, strict=True)
        ]

    return mock.patch.object(stream, "predict_paths", mixed)


def global_generator() -> AbstractContextManager:
    """Weights that are drawn from the generator of the process."""
    original = TextureFCN.__init__

    def init(self: TextureFCN, *arguments: Any, generator: Any = None, **options: Any) -> None:
        del generator
        original(self, *arguments, generator=torch.Generator().manual_seed(torch.initial_seed()), **options)

    return mock.patch.object(TextureFCN, "__init__", init)


def changed_files_pass() -> AbstractContextManager:
    """Lines of a journal whose checksum nobody compares."""
    return mock.patch.object(journal, "_checksum", return_value=0)


def narrow_sets() -> AbstractContextManager:
    """Prediction sets that hold the likeliest class only."""
    return mock.patch.object(TextureModel, "_least_probability", return_value=2.0)


def wide_sets() -> AbstractContextManager:
    """Prediction sets that hold every class."""
    return mock.patch.object(TextureModel, "_least_probability", return_value=0.0)


FAULTS: dict[str, tuple[Callable[[], AbstractContextManager], str, str, tuple[str, ...]]] = {
    "a leaked file handle": (leaked_file_handle, "images", "files that stay open", ()),
    "a foreign exception": (foreign_exception, "images", "mutated image files", ()),
    "a library that prints": (printing_library, "images", "libraries print", ()),
    "a slow decoder": (slow_decoder, "images", "slowest", ()),
    "a decoder that eats the memory": (hungry_decoder, "images", "memory", ()),
    "a changed file that passes": (changed_files_pass, "files", "journals", ("journals of predict",)),
    "a half-written file": (half_written_file, "kills", "map", ("map",)),
    "a missing fsync": (missing_fsync, "kills", "train", ("train",)),
    "a wrong resume": (wrong_resume, "kills", "predict", ("predict --resume",)),
    "a mixed-up answer": (mixed_up_answer, "drift", "in one batch", ()),
    "weights from the global generator": (global_generator, "drift", "two trainings", ()),
    "prediction sets that are too narrow": (narrow_sets, "coverage", "hold the class", ()),
    "prediction sets that are too wide": (wide_sets, "coverage", "classes in a set", ()),
}
"""Each with the part that must find it, a word of the row, and the names of what that part looks at."""


def find_faults(seed: int, names: Collection[str] = ()) -> list[Row]:
    """Plant one fault after the other; return for each whether the row that must find it does."""
    return [_find(name, seed) for name in names or FAULTS]


def _find(name: str, seed: int) -> Row:
    plant, part, word, looked_at = FAULTS[name]
    options = {"names": looked_at} if looked_at else {}
    with plant():
        rows = run_apart(part, SECONDS, seed, **options)
    found = [line for line in rows if not line["ok"] and word in line["what"]]
    text = f"{found[0]['what']}: {found[0]['found']}"[:160] if found else "not found"
    return row(f"planted: {name}", f"found by {part}", " ".join(text.split()), bool(found), COMMAND)
