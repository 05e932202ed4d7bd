"""Memory: large buffers that are kept between steps, and kernels that are too large to try."""

import ctypes
import functools
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# From malloc.h of glibc.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST_AUTOMATIC = 2**25


@contextmanager
def reused_buffers() -> Iterator[None]:
    """Let the C library keep freed memory for the next request while the block runs, and return it afterwards.

    glibc hands every block of more than 32 MiB straight back to the system, and the next one comes as fresh pages
    that have to be zeroed one by one. The activations of a batch are such blocks, and the pages cost a third of
    a training step. Elsewhere than with glibc nothing is changed.
    """
    library = _glibc()
    if library is None:
        yield
        return
    library.mallopt(_MMAP_THRESHOLD, 2**30)
    library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    try:
        yield
    finally:
        # What glibc's own adaptation arrives at for programs with large buffers.
        library.mallopt(_MMAP_THRESHOLD, _LARGEST_AUTOMATIC)
        library.mallopt(_TRIM_THRESHOLD, 2 * _LARGEST_AUTOMATIC)
        library.malloc_trim(0)


@functools.cache
def _glibc() -> Any:
    if platform.libc_ver()[0] != "glibc":
        return None
    try:
        library = ctypes.CDLL("libc.so.6")
        return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
    except OSError:
        return None


def check_kernel_memory(n_images: int) -> None:
    """Refuse a training set whose kernel would not fit into the free memory, before any work is done.

    Distances, kernel and the parts of it that cross-validation takes make about four n x n matrices of double
    precision at the peak.
    """
    needed, free = 4 * 8 * n_images**2, free_memory()
    if free is not None and needed > free:
        raise ValueError(
            f"The SVM on {n_images} images needs about {needed / 1e9:.1f} GB for its kernel, but {free / 1e9:.1f} GB of"
            " memory are free; train on fewer images (a random part of every class), or on a larger machine."
        )


def free_memory() -> int | None:
    """Return how many bytes programs can still get without swapping, or None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None
