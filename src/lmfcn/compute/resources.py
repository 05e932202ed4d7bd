"""Resources of this machine: which devices work, how many threads compute, and how much memory is free.

Apple's MPS has no double precision. Everything that needs it goes through the functions below, so that no number in
double precision ever meets such a device.
"""

import functools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import batch_norm, conv2d, max_pool2d

from lmfcn.compute.parallel import use_workers

Argument = TypeVar("Argument")
Result = TypeVar("Result")

CPU = torch.device("cpu")

_TOLERANCE = 0.01
"""Share of the largest number by which a device may differ from the CPU; CUDA's short formats (TF32) need a tenth."""

_PROCESS_LOCK = threading.RLock()
"""The number of threads and the computing time belong to the whole process."""
_THIS_THREAD = threading.local()


def check_device(device: str | torch.device = "auto") -> torch.device:
    """Return the device with that name, after a check that it exists and computes correctly.

    Parameters
    ----------
    device : str or torch.device
        A name that torch knows, such as "cpu", "cuda", "cuda:1" or "mps". "auto" takes an accelerator where there is
        one that works, and else the CPU.

    Examples
    --------
    >>> check_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        return first_working(_accelerators())
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError, TypeError) as error:
        names = ", ".join(available_devices())
        reason = why_no_cuda() if str(device).startswith("cuda") else ""
        raise ValueError(f"device must be 'auto' or an available device ({names}), got {device!r}.{reason}") from error
    fault = None if found == CPU else _known_fault(found)
    if fault is not None:
        raise ValueError(f"The device {str(found)!r} cannot be used ({fault}); choose 'cpu' or 'auto'.")
    return found


def why_no_cuda() -> str:
    """Say what is missing for a graphics card of NVIDIA, if anything is, and where to get it."""
    if torch.version.cuda is None and torch.version.hip is None:
        return (
            f" This torch ({torch.__version__}) was built without CUDA; install a build with it"
            " (pytorch.org/get-started), or leave device='auto'."
        )
    if not torch.cuda.is_available():
        return " Torch finds no graphics card or no driver for it: see what the command nvidia-smi says."
    return ""


def available_devices() -> list[str]:
    """Return the names of all devices that torch finds on this machine, the CPU first."""
    names, count = [str(device) for device in _accelerators()], torch.accelerator.device_count()
    return ["cpu", *(names if count < 2 else [f"{name}:{number}" for name in names for number in range(count)])]


def first_working(
    candidates: Iterable[torch.device], fault: Callable[[torch.device], str | None] | None = None
) -> torch.device:
    """Return the first candidate that works, or the CPU; `fault` returns why one does not (default: `find_fault`)."""
    return next((device for device in candidates if (fault or _known_fault)(device) is None), CPU)


def find_fault(device: torch.device) -> str | None:
    """Return why a device cannot be used, or None if a small computation gives nearly the same result as on the CPU.

    Only a computation shows that a driver, or a graphics card, is too old for this version of torch.
    """
    try:
        found = _small_computation(device)
    except (RuntimeError, AssertionError, TypeError) as error:
        return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
    for name, expected in _small_computation(CPU).items():
        limit = _TOLERANCE * float(expected.abs().max())
        if not float((found[name] - expected).abs().max()) <= limit:  # also refuses NaN
            return f"its {name} differ from those of the CPU"
    return None


_known_fault = functools.cache(find_fault)


def _accelerators() -> list[torch.device]:
    found = torch.accelerator.current_accelerator(check_available=True)
    return [] if found is None else [found]


def _small_computation(device: torch.device) -> dict[str, Tensor]:
    """Run the operations of training and prediction on a device; return results in double precision on the CPU."""
    generator = torch.Generator().manual_seed(0)  # leaves the global one unchanged
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
    """Return whether a device has double precision."""
    return device.type != "mps"


def to_precise(tensor: Tensor) -> Tensor:
    """Return a tensor in double precision, or as it is on a device that has none."""
    return tensor.double() if has_double(tensor.device) else tensor


def to_cpu_double(tensor: Tensor) -> Tensor:
    """Return a tensor in double precision on the CPU, for small tensors and for NumPy."""
    return tensor.cpu().double()


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device, in single precision instead of double if it has none."""
    if tensor.dtype == torch.float64 and not has_double(device):
        tensor = tensor.float()
    return tensor.to(device)


def to_like(tensor: Tensor, other: Tensor) -> Tensor:
    """Return a tensor with the device and the dtype of another; converted on a device that has double precision."""
    if has_double(tensor.device):
        return tensor.to(other.dtype).to(other.device)
    return tensor.to(other.device).to(other.dtype)


class ThreadCounts(NamedTuple):
    """Numbers of threads that one fit uses.

    Attributes
    ----------
    process : int
        For everything except the training of networks.
    network : int
        For the training of each network.
    """

    process: int
    network: int

    def __str__(self) -> str:
        per_network = "" if self.network == self.process else f", {self.network} per network"
        return f"{self.process} thread{'s' * (self.process != 1)}{per_network}"


@dataclass(frozen=True)
class WithThreads(Generic[Argument, Result]):
    """A function that always runs with the same number of threads, in a single process.

    Several threads round sums of floating-point numbers differently from one thread, so the bits of a trained network
    depend on the number of threads. With a fixed number they depend neither on the cores of a machine nor on its load.
    Estimators inside the function treat any `n_jobs` as 1.

    Parameters
    ----------
    function : callable
        Of one argument.
    n_threads : int

    Examples
    --------
    >>> WithThreads(abs, 1)(-3)
    3
    """

    function: Callable[[Argument], Result]
    n_threads: int = 1

    def __call__(self, argument: Argument) -> Result:
        """Call the function."""
        with _PROCESS_LOCK, use_threads(self.n_threads), use_workers(jobs=1):
            return self.function(argument)


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Compute with `count` threads inside the block: those of PyTorch and of BLAS and OpenMP libraries.

    Blocks may be nested, and several threads of a process may enter and leave them in any order: the numbers from
    before the first block are restored when the last one ends. While blocks with different counts overlap in several
    threads, PyTorch keeps to the count of each thread, and BLAS to that of the last block that was entered.

    Examples
    --------
    >>> import torch
    >>> with use_threads(1):
    ...     torch.get_num_threads()
    1
    """
    outer = getattr(_THIS_THREAD, "count", None)
    _THREAD_BLOCKS.enter(count)
    _THIS_THREAD.count = count
    try:
        yield
    finally:
        _THIS_THREAD.count = outer
        _THREAD_BLOCKS.leave(count, outer)


class _ThreadBlocks:
    """The open blocks of `use_threads` in this process, and the counts to restore after the last of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: list[int] = []
        self._n_before = 0
        self._libraries_before: list[tuple[Any, int]] = []

    def enter(self, count: int) -> None:
        """Set the counts of this process and of this thread."""
        with self._lock:
            n_now, libraries = torch.get_num_threads(), _thread_libraries()
            if not self._counts:
                self._n_before = n_now
                self._libraries_before = [(library, library.num_threads) for library in libraries]
            self._counts.append(count)
            self._set(libraries, count)

    def leave(self, count: int, outer: int | None) -> None:
        """Go back to the blocks that are still open, and this thread to its `outer` block, if it is in one."""
        with self._lock:
            self._counts.remove(count)
            if not self._counts:
                for library, n_before in self._libraries_before:
                    _set_library(library, n_before)
                torch.set_num_threads(self._n_before)
                return
            libraries = _thread_libraries()
            self._set(libraries, self._counts[-1])
            # OpenMP has a count for every thread of a process, which only that thread can set.
            for library in libraries:
                if library.user_api == "openmp":
                    _set_library(library, self._n_before if outer is None else outer)

    def _set(self, libraries: list[Any], count: int) -> None:
        for library in libraries:
            _set_library(library, count)
        torch.set_num_threads(count)


_CPU_TIMES = Path("/proc/stat")
_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_SECONDS_WATCHED = 0.2


@functools.cache
def free_threads() -> int:
    """Return how many threads this process should compute with: as many as there are processors without work.

    At least 1, and never more than PyTorch would take, than the scheduler lets this process run on, or than its control
    group may use. OMP_NUM_THREADS has the last word. The answer is found once per process, in a fifth of a second, so
    that everything in it computes with the same number.
    """
    most = allowed_threads()
    if most == 1 or "OMP_NUM_THREADS" in os.environ:
        return most
    return max(1, min(most, round(idle_processors())))


def allowed_threads() -> int:
    """Return how many threads this process may use at most, however busy the machine is."""
    most = torch.get_num_threads()
    if "OMP_NUM_THREADS" in os.environ:
        return most
    return max(1, min(most, len(_allowed_processors()), _quota(_CPU_QUOTA)))


def idle_processors(times: Path = _CPU_TIMES, seconds: float = _SECONDS_WATCHED) -> float:
    """Return how many of the processors that this process may use have nothing to do, such as 1.5.

    Other than the load average, which looks back over a minute, this does not count a training that has just ended.
    Where the system tells no times, the load average has to do.
    """
    before = _idle_times(times)
    if not before:
        return len(_allowed_processors()) - os.getloadavg()[0]
    time.sleep(seconds)
    after = _idle_times(times)
    shares = [
        (after[name][0] - idle) / max(1, after[name][1] - total)
        for name, (idle, total) in before.items()
        if name in after
    ]
    return sum(shares)


def _idle_times(path: Path) -> dict[int, tuple[int, int]]:
    """Return the idle time and the whole time so far of each processor that this process may use."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    allowed, times = _allowed_processors(), {}
    for line in lines:
        name, *counts = line.split()
        number = name.removeprefix("cpu")
        if number.isdecimal() and int(number) in allowed:
            values = [int(count) for count in counts[:8]]  # those behind it are contained in the first
            times[int(number)] = (values[3] + values[4], sum(values))  # idle, and waiting for a disk
    return times


def _allowed_processors() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _quota(path: Path) -> int:
    """Return how many processors the control group may keep busy, rounded up; very many without a limit."""
    try:
        quota, period = path.read_text(encoding="ascii").split()
        return -(-int(quota) // int(period))
    except (OSError, ValueError):
        return 2**16


def _thread_libraries() -> list[Any]:
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().lib_controllers)


def _set_library(library: Any, count: int) -> None:
    library.set_num_threads(count)
    # From threadpoolctl 3.8 on, only the first thread that sets OpenBLAS may set it again, until it releases it.
    if hasattr(library, "clear_controlling_thread"):
        library.clear_controlling_thread()


_THREAD_BLOCKS = _ThreadBlocks()


def check_kernel_memory(n_images: int) -> None:
    """Refuse a training set whose kernel matrix does not fit into the free memory, before any work is done.

    Distances, the kernel and its parts in cross-validation need up to about four n x n matrices in double precision.
    """
    needed, free = 4 * 8 * n_images**2, free_memory()
    if free is not None and needed > free:
        raise ValueError(
            f"The SVM on {n_images} images needs about {needed / 1e9:.1f} GB for its kernel, but {free / 1e9:.1f} GB of"
            " memory are free; train on fewer images (a random part of every class), or on a larger machine."
        )


def resident_memory() -> int:
    """Return how many bytes of memory this process holds, or 0 if the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def free_memory() -> int | None:
    """Return how many bytes are available without swapping, or None if the system does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None
