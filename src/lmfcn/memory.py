"""Keep large buffers between the steps of a training instead of asking the system for new ones each time."""

import ctypes
import functools
import platform
from collections.abc import Iterator
from contextlib import contextmanager
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
