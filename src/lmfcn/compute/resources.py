"""Devices and memory of this machine: which devices work, in which precision, and what fits.

Apple's MPS has no double precision. Everything that needs it goes through the functions below, so that no number in
double precision ever meets such a device.
"""

import ctypes
import functools
import os
import platform
from collections.abc import Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import batch_norm, conv2d, max_pool2d

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


CPU = torch.device("cpu")

_TOLERANCE = 0.01
"""Share of the largest number by which a device may differ from the CPU; CUDA's short formats (TF32) need a tenth."""


def check_device(device: str | torch.device = "auto") -> torch.device:
    """Return the device of that name, which is there and able to compute.

    Parameters
    ----------
    device : str or torch.device
        A name that torch knows, such as "cpu", "cuda", "cuda:1" or "mps". "auto" takes an accelerator where there is
        one that works, else the CPU.

    Examples
    --------
    >>> check_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        return first_able(_accelerators())
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError, TypeError) as error:
        names = ", ".join(available_devices())
        raise ValueError(f"device must be 'auto' or one of those that are here ({names}), got {device!r}.") from error
    fault = None if found == CPU else _known_fault(found)
    if fault is not None:
        raise ValueError(f"The device {str(found)!r} is here but cannot be used ({fault}); take 'cpu' or 'auto'.")
    return found


def available_devices() -> list[str]:
    """Return the names of all devices that torch has here, the CPU first."""
    names, count = [str(device) for device in _accelerators()], torch.accelerator.device_count()
    return ["cpu", *(names if count < 2 else [f"{name}:{number}" for name in names for number in range(count)])]


def first_able(
    candidates: Iterable[torch.device], fault: Callable[[torch.device], str | None] | None = None
) -> torch.device:
    """Return the first candidate without a `fault`, by default that of `fault_of`, or the CPU if all have one."""
    return next((device for device in candidates if (fault or _known_fault)(device) is None), CPU)


def fault_of(device: torch.device) -> str | None:
    """Return why a device cannot be used, or None if a small computation works there and ends near the CPU's result.

    A driver, or a graphics card that is too old for this version of torch, is only found out that way.
    """
    try:
        found = _small_computation(device)
    except (RuntimeError, AssertionError, TypeError) as error:
        return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
    for name, expected in _small_computation(CPU).items():
        limit = _TOLERANCE * float(expected.abs().max())
        if not float((found[name] - expected).abs().max()) <= limit:  # which NaN is not either
            return f"its {name} differ from those of the CPU"
    return None


_known_fault = functools.cache(fault_of)


def _accelerators() -> list[torch.device]:
    found = torch.accelerator.current_accelerator(check_available=True)
    return [] if found is None else [found]


def _small_computation(device: torch.device) -> dict[str, Tensor]:
    """Do on a device what training and prediction are made of; return results in double precision on the CPU."""
    generator = torch.Generator().manual_seed(0)  # the global one is left alone
    pixels = torch.randint(256, (6, 12, 12, 2), generator=generator, dtype=torch.uint8).to(device)
    filters = torch.randn(8, 2, 3, 3, generator=generator).to(device, memory_format=torch.channels_last)
    with torch.inference_mode(False), torch.enable_grad():
        filters = filters.detach().clone().requires_grad_()
        convolved = conv2d(pixels.permute(0, 3, 1, 2).to(torch.float32) / 255, filters, padding=1)
        normalised = batch_norm(convolved, None, None, training=True)
        latents = max_pool2d(normalised, 3, stride=2, padding=1).relu().mean(dim=(2, 3))
        precise = to_precise(latents)
        lengths = precise.square().sum(dim=1)
        kernel = (2 * precise @ precise.T - lengths - lengths[:, None]).exp()
        kernel.sum().backward()
    results = {"latents": latents, "kernels": kernel, "gradients": filters.grad}
    return {name: to_cpu_double(result.detach()) for name, result in results.items() if result is not None}


def has_double(device: torch.device) -> bool:
    """Tell whether a device knows double precision."""
    return device.type != "mps"


def to_precise(tensor: Tensor) -> Tensor:
    """Return a tensor in double precision, or as it is on a device that has none."""
    return tensor.double() if has_double(tensor.device) else tensor


def to_cpu_double(tensor: Tensor) -> Tensor:
    """Return a tensor in double precision on the CPU: for few numbers, and for NumPy."""
    return tensor.cpu().double()


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device, in single precision instead of double if it has none."""
    if tensor.dtype == torch.float64 and not has_double(device):
        tensor = tensor.float()
    return tensor.to(device)


def to_like(tensor: Tensor, other: Tensor) -> Tensor:
    """Return a tensor with the device and the dtype of another; converted where double precision is known."""
    if has_double(tensor.device):
        return tensor.to(other.dtype).to(other.device)
    return tensor.to(other.device).to(other.dtype)
