"""A device that is not there: tensors that say they are on it, and are refused what it could not do.

Every tensor on the device holds one on the CPU, which does the work, so that answers can be compared. As on a real
device, tensors here and there do not mix and NumPy sees none of them; Apple's MPS has neither double precision nor
unsigned numbers of 16 bits. To torch's own C++ code the tensors are on its device "meta", which asks for no hardware.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

NOT_ON_MPS = (torch.float64, torch.uint16)
_MOVES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
_INDEXING = ("aten::index.", "aten::index_put", "aten::_index_put")
_META = torch.device("meta")


class DeviceMistakeError(AssertionError):
    """Something that a real device refuses; no RuntimeError, which the package may expect and pass over."""


@contextmanager
def pretended(name: str, spoil: Callable | None = None) -> Iterator[torch.device]:
    """Let tensors be made on and moved to a device such as "mps:0" or "cuda:0" while the block runs.

    `spoil` is told the name of every operation there and its result, and returns what the device makes of it.
    """
    device = torch.device(name)
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)  # so that `torch.tensor(..., device=device)` moves what it has made
    try:
        with _Pretence(device, spoil):
            yield device
    finally:
        torch._C._set_only_lift_cpu_tensors(before)


class _OnDevice(torch.Tensor):
    """A tensor on the pretended device."""

    @staticmethod
    def __new__(cls, inner, device):
        shape, layout = inner.shape, {"strides": inner.stride(), "storage_offset": inner.storage_offset()}
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=inner.dtype, device=_META, **layout)

    def __init__(self, inner, device):
        self.inner, self.pretended = inner, device

    @property
    def device(self):
        return self.pretended

    def tolist(self):
        return self.inner.tolist()

    def __repr__(self):
        return f"{self.inner} on {self.pretended}"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise DeviceMistakeError(f"{func} on a device that is pretended no more.")


class _Pretence(TorchDispatchMode):
    _mode_key = torch._C._TorchDispatchModeKey.FAKE  # for which torch does not look for the hardware

    def __init__(self, device, spoil):
        super().__init__()
        self.pretended, self.spoil = device, spoil

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
        there = any(isinstance(tensor, _OnDevice) for tensor in tensors)
        if func not in _MOVES:
            _check_not_mixed(func, args, tensors)
        stays = there if kwargs.get("device") is None else kwargs["device"] in (self.pretended, _META)
        if func is torch.ops.aten.copy_.default:
            stays = isinstance(args[0], _OnDevice)
        if there or stays:
            self._check_types(func, kwargs.get("dtype"), tensors)
        if kwargs.get("device") is not None:
            kwargs["device"] = torch.device("cpu")
        found = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))
        if stays and self.spoil is not None:
            found = self.spoil(func.name(), found)
        return tree_map(lambda value: self._outer(value, tensors), found) if stays else found

    def _check_types(self, func, dtype, tensors):
        # A conversion in one step with a move is done on the device, whichever way it goes, or may be.
        types = [dtype, *(tensor.dtype for tensor in tensors if tensor.ndim or isinstance(tensor, _OnDevice))]
        strange = [dtype for dtype in types if dtype in NOT_ON_MPS and self.pretended.type == "mps"]
        if strange:
            raise DeviceMistakeError(f"{func} needs {strange[0]}, which MPS does not have.")

    def _outer(self, value, tensors):
        if not isinstance(value, torch.Tensor):
            return value
        self._check_types("A result", value.dtype, [])
        changed = next((tensor for tensor in tensors if _inner(tensor) is value), None)
        return _OnDevice(value, self.pretended) if changed is None else changed


def _inner(value):
    return value.inner if isinstance(value, _OnDevice) else value


def _check_not_mixed(func, args, tensors):
    # As in torch, indices into tensors there may be anywhere, and a single number on the CPU may meet anything.
    if func.name().startswith(_INDEXING) and isinstance(args[0], _OnDevice):
        tensors = [args[0], *(value for value in args[2:] if isinstance(value, torch.Tensor))]
    places = {tensor.device for tensor in tensors if tensor.ndim or isinstance(tensor, _OnDevice)}
    if len(places) > 1:
        raise DeviceMistakeError(f"{func} mixes {' and '.join(sorted(map(str, places)))}.")
