"""What the C library does with freed memory."""

import ctypes
import os
import platform
from collections.abc import MutableMapping
from typing import Any

# Names and numbers of glibc: its manual, and malloc.h.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
_VARIABLES = {"MALLOC_MMAP_THRESHOLD_": 2**30, "MALLOC_TRIM_THRESHOLD_": 2**31 - 1}


def reuse_freed_memory(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let the C library keep freed memory for the next request, in this process and in those that it starts.

    glibc returns every freed block of more than 32 MiB to the system, and the next one consists of fresh pages that
    must be zeroed. The activations of a batch are such blocks. The setting applies to the whole process and cannot be
    undone, so only our own commands set it, once at their start; `fit` does not change the process of a user.
    Environment variables that the user has set win. Without glibc nothing changes.

    Parameters
    ----------
    environment : mapping of str
        Environment of new processes, which passes the setting on to them.
    """
    library = _glibc()
    if library is None or any(name in environment for name in _VARIABLES):
        return
    mmap_threshold, trim_threshold = _VARIABLES.values()
    library.mallopt(_MMAP_THRESHOLD, mmap_threshold)
    library.mallopt(_TRIM_THRESHOLD, trim_threshold)
    environment.update({name: str(value) for name, value in _VARIABLES.items()})


def release_freed_memory() -> None:
    """Return the free pages of this process to the system; no setting is changed. Without glibc nothing happens.

    Blocks of changing sizes leave gaps in the heap that glibc keeps. Over many large pieces they can add up to several
    times the memory in use.
    """
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


def _glibc() -> Any:
    if platform.libc_ver()[0] != "glibc":
        return None
    try:
        return ctypes.CDLL("libc.so.6")
    except OSError:
        return None
