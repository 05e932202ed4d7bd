"""Bad images: files that people have, and mutated ones, are decoded or refused, quickly, quietly, in bounded memory."""

import contextlib
import io
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import imagecodecs
import numpy as np
import tifffile
from PIL import Image

from lmfcn.data.image_files import ImageError, decode_image, probe_content, read_image
from soak.mutations import mutate
from soak.rows import Row, first, row
from soak.watching import TooSlowError, captured_output, open_files, peak_memory, time_limit

MOST_SECONDS = 2.0
MOST_BYTES = 2**29
COMMAND = "python benchmarks/soak images"
_ORIENTATION = 274


def pixels(kind: type = np.uint8, channels: int = 3, size: tuple[int, int] = (48, 40)) -> np.ndarray:
    """Return waves with some noise, which compress like photographs."""
    noise = np.random.default_rng(0).integers(0, 40, (*size, channels))
    waves = 100 * (1 + np.sin(np.arange(size[1]) / 3))[None, :, None] + noise
    image = waves if kind == np.uint8 else waves * 250
    return (image if channels > 1 else image[..., 0]).astype(kind)


def with_pillow(picture: Image.Image, form: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, form, **options)
    return buffer.getvalue()


def with_tifffile(image: np.ndarray, **options: object) -> bytes:
    buffer = io.BytesIO()
    tifffile.imwrite(buffer, image, **options)
    return buffer.getvalue()


def samples() -> dict[str, bytes]:
    """Return files of every kind that people really have, by a name for each."""
    return {**_jpegs(), **_pngs(), **_tiffs(), **_others()}


def _jpegs() -> dict[str, bytes]:
    colour = Image.fromarray(pixels())
    turned = Image.Exif()
    turned[_ORIENTATION] = 6
    return {
        "JPEG": with_pillow(colour, "JPEG"),
        "JPEG, turned by EXIF": with_pillow(colour, "JPEG", exif=turned),
        "JPEG, CMYK": with_pillow(colour.convert("CMYK"), "JPEG"),
        "JPEG, progressive": with_pillow(colour, "JPEG", progressive=True),
        "JPEG, grey": with_pillow(colour.convert("L"), "JPEG"),
    }


def _pngs() -> dict[str, bytes]:
    colour = Image.fromarray(pixels())
    palette = colour.convert("P", palette=Image.Palette.ADAPTIVE)
    return {
        "PNG": with_pillow(colour, "PNG"),
        "PNG, 16-bit colour": imagecodecs.png_encode(pixels(np.uint16)),
        "PNG, 16-bit grey": with_pillow(Image.fromarray(pixels(np.uint16, 1)), "PNG"),
        "PNG, alpha": with_pillow(Image.fromarray(pixels(channels=4)), "PNG"),
        "PNG, 1 bit": with_pillow(colour.convert("1"), "PNG"),
        "PNG, palette": with_pillow(palette, "PNG"),
        "PNG, palette with transparency": with_pillow(palette, "PNG", transparency=3),
    }


def _tiffs() -> dict[str, bytes]:
    image = pixels()
    return {
        "TIFF": with_tifffile(image),
        "TIFF, LZW": with_tifffile(image, compression="lzw", predictor=True),
        "TIFF, deflate": with_tifffile(image, compression="zlib", predictor=True),
        "TIFF, JPEG 2000": with_tifffile(image, compression="jpeg2000", tile=(16, 16)),
        "TIFF, JPEG": with_tifffile(image, compression="jpeg", tile=(16, 16)),
        "TIFF, Zstandard": with_tifffile(image, compression="zstd"),
        "TIFF, PackBits": with_tifffile(image, compression="packbits"),
        "TIFF, big-endian": with_tifffile(pixels(np.uint16), byteorder=">"),
        "TIFF, float": with_tifffile(image.astype(np.float32), compression="zlib", predictor=3),
        "TIFF, planes": with_tifffile(np.moveaxis(image, -1, 0).copy(), planarconfig="separate", photometric="rgb"),
        "TIFF, alpha": with_tifffile(pixels(channels=4), photometric="rgb", extrasamples=["unassalpha"]),
        "TIFF, several pages": with_tifffile(np.stack([image, image]), photometric="rgb"),
        "TIFF, CMYK": with_pillow(Image.fromarray(image).convert("CMYK"), "TIFF"),
        "TIFF, palette": with_pillow(Image.fromarray(image).convert("P"), "TIFF"),
        "TIFF, 1 bit": with_pillow(Image.fromarray(image).convert("1"), "TIFF", compression="group4"),
        "BigTIFF": with_tifffile(image, bigtiff=True, tile=(16, 16), compression="lzw"),
    }


def _others() -> dict[str, bytes]:
    colour = Image.fromarray(pixels())
    frames = {"save_all": True, "append_images": [colour.rotate(90), colour.rotate(180)]}
    return {
        "GIF": with_pillow(colour, "GIF"),
        "GIF, animation": with_pillow(colour, "GIF", **frames),
        "WebP": with_pillow(colour, "WEBP"),
        "WebP, lossless with alpha": with_pillow(Image.fromarray(pixels(channels=4)), "WEBP", lossless=True),
        "WebP, animation": with_pillow(colour, "WEBP", **frames),
        "BMP": with_pillow(colour, "BMP"),
        "BMP, 1 bit": with_pillow(colour.convert("1"), "BMP"),
        "PPM": with_pillow(colour, "PPM"),
    }


MAY_BE_REFUSED = {"TIFF, several pages"}
"""Kinds of which an undamaged file is refused, with a reason."""


@dataclass
class Findings:
    """What happened to many files, and the worst of each kind."""

    counts: Counter = field(default_factory=Counter)
    seconds: float = 0.0
    memory: int = 0
    foreign: list[str] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)
    unlike: list[str] = field(default_factory=list)
    slowest: str = ""
    largest: str = ""


def decode(content: bytes, name: str) -> str:
    """Read a file in each way; return "decoded" or "refused", and raise whatever else comes."""
    try:
        probe_content(content, name)
        image = decode_image(content, name)
    except ImageError as error:
        return "refused" if str(error).startswith(name) and "\n" not in str(error) else "refused unclearly"
    sound = image.ndim == 3 and image.dtype in (np.uint8, np.uint16, np.float32)
    return "decoded" if sound else "decoded to something strange"


def watch(content: bytes, name: str, output: io.BufferedRandom, findings: Findings) -> None:
    """Decode one file and note what it cost."""
    size, before = os.fstat(output.fileno()).st_size, peak_memory(reset=True)
    begin = time.process_time()
    try:
        with time_limit(3 * MOST_SECONDS):
            outcome = decode(content, name)
    except TooSlowError:
        outcome = "too slow"
    except Exception as error:
        outcome = "foreign error"
        findings.foreign.append(f"{name}: {type(error).__name__}: {error}")
    seconds = time.process_time() - begin
    findings.counts[outcome] += 1
    memory = peak_memory() - before
    if memory > findings.memory:
        findings.memory, findings.largest = memory, name
    if seconds > findings.seconds:
        findings.seconds, findings.slowest = seconds, name
    if os.fstat(output.fileno()).st_size > size:
        output.seek(size)
        findings.printed.append(f"{name}: {output.read().decode(errors='replace')}")


def run(seconds: float, seed: int) -> list[Row]:
    """Decode files of all kinds, and mutated ones for so many seconds."""
    kinds = samples()
    whole, mutated = Findings(), Findings()
    with captured_output() as output:
        for name, content in kinds.items():
            watch(content, name, output, whole)
        n_open = open_files()
        for name, content in mutations(kinds, seconds, seed):
            watch(content, name, output, mutated)
        leaked = leaks_of_files(kinds) + open_files() - n_open
    return _rows(kinds, whole, mutated, leaked)


def mutations(kinds: dict[str, bytes], seconds: float, seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield damaged files until the time is over; at least three of each kind. The name holds what makes it again."""
    end, number, names = time.monotonic() + seconds, 0, list(kinds)
    while time.monotonic() < end or number < 3 * len(names):
        name = names[number % len(names)]
        yield f"{name}, seed {seed}, mutation {number}", mutate(kinds[name], random.Random(f"{seed} {number}"))
        number += 1


def leaks_of_files(kinds: dict[str, bytes]) -> int:
    """Return how many files stay open after good and bad ones were read from the disk."""
    n_open = open_files()
    with tempfile.TemporaryDirectory() as folder:
        for number, content in enumerate(kinds.values()):
            for part in (content, content[: len(content) // 2]):
                path = Path(folder) / f"{number}"
                path.write_bytes(part)
                with contextlib.suppress(Exception):  # what comes of it was looked at before
                    read_image(path)
    return open_files() - n_open


def _rows(kinds: dict[str, bytes], whole: Findings, mutated: Findings, leaked: int) -> list[Row]:
    n_files, total = sum(mutated.counts.values()), whole.counts + mutated.counts
    good = whole.counts["decoded"] >= len(kinds) - len(MAY_BE_REFUSED) and not whole.foreign
    foreign = whole.foreign + mutated.foreign
    strange = sum(count for name, count in total.items() if name not in ("decoded", "refused"))
    printed = whole.printed + mutated.printed
    slowest, memory = max(whole.seconds, mutated.seconds), max(whole.memory, mutated.memory)
    n_decoded, n_refused = mutated.counts["decoded"], mutated.counts["refused"]
    return [
        row(f"{len(kinds)} kinds of image files", "decoded", _counted(whole.counts), good, COMMAND),
        row(
            f"{n_files:,} mutated image files",
            "decoded, or refused in one sentence",
            f"{n_decoded:,} decoded, {n_refused:,} refused, {strange} else{first(foreign)}",
            strange == 0,
            COMMAND,
        ),
        row(
            "the slowest of them",
            f"under {MOST_SECONDS:g} s of computing",
            f"{slowest:.2f} s" + (f": {mutated.slowest}" if slowest >= MOST_SECONDS else ""),
            slowest < MOST_SECONDS,
            COMMAND,
        ),
        row(
            "the memory for one of them",
            f"under {MOST_BYTES // 2**20} MB",
            f"{memory / 2**20:.0f} MB" + (f": {mutated.largest}" if memory >= MOST_BYTES else ""),
            memory < MOST_BYTES,
            COMMAND,
        ),
        row(
            "what libraries print about them", "nothing", f"{len(printed)} lines{first(printed)}", not printed, COMMAND
        ),
        row("files that stay open", "none", str(leaked), leaked <= 0, COMMAND),
    ]


def _counted(counts: Counter) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
