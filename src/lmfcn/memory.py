"""Memory: freed memory that a command keeps for its next step, and kernels that are too large to try."""

import ctypes
import os
import platform
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

# Names and numbers of glibc: its manual, and malloc.h.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
_VARIABLES = {"MALLOC_MMAP_THRESHOLD_": 2**30, "MALLOC_TRIM_THRESHOLD_": 2**31 - 1}


def reuse_freed_memory(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let the C library keep freed memory for the next request, in this process and in those that it starts.

    glibc hands every block of more than 32 MiB straight back to the system, and the next one comes as fresh pages that
    have to be zeroed. The activations of a batch are such blocks. It is a setting of the whole process that cannot be
    set back, so only our own commands make it, once at their start; `fit` leaves the process of a user as it is. What
    the user has set by environment variables stays, and elsewhere than with glibc nothing is changed.

    Parameters
    ----------
    environment : mapping of str
        Variables that new processes get, in which the setting is written down for them.
    """
    library = _glibc()
    if library is None or any(name in environment for name in _VARIABLES):
        return
    mmap_threshold, trim_threshold = _VARIABLES.values()
    library.mallopt(_MMAP_THRESHOLD, mmap_threshold)
    library.mallopt(_TRIM_THRESHOLD, trim_threshold)
    environment.update({name: str(value) for name, value in _VARIABLES.items()})


def _glibc() -> Any:
    if platform.libc_ver()[0] != "glibc":
        return None
    try:
        return ctypes.CDLL("libc.so.6")
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
