"""Where to compute: which devices are there and able to, and in which precision.

Apple's MPS has no double precision. Everything that needs it goes through the functions below, so that no number in
double precision ever meets such a device, not even on its way there or back.
"""

import functools
from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.nn.functional import batch_norm, conv2d, max_pool2d

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
