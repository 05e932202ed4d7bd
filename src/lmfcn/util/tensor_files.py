"""Write and read tensors and JSON values in one safetensors file. Reading a file executes no code."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from lmfcn.util.files import write_bytes

LARGEST_HEADER = 2**26
"""Bytes; a real header, with names, shapes and a history, is thousands of times smaller."""

_ENTRY = "lmfcn"
_DTYPES = (torch.float16, torch.float32, torch.float64, torch.int64, torch.uint8)


class FileError(ValueError):
    """A file is damaged or of another kind."""


def write_tensors(
    path: str | Path, kind: str, version: int, values: dict[str, Any], tensors: dict[str, Tensor]
) -> None:
    """Write tensors and JSON values, completely or not at all.

    Parameters
    ----------
    path : path
    kind : str
        Kind of the file, such as "lmfcn model"; readers refuse other kinds.
    version : int
        Version of the layout of `values` and `tensors`.
    values : dict
        Anything that JSON can hold.
    tensors : dict of Tensor
    """
    write_bytes(path, pack_tensors(kind, version, values, tensors))


def pack_tensors(kind: str, version: int, values: dict[str, Any], tensors: dict[str, Tensor]) -> bytes:
    """Return the content of the file that `write_tensors` writes."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {"kind": kind, "version": version, "values": values}
    header["digest"] = _digest(header, tensors)
    # One entry only: safetensors writes several in any order, but the same content should give the same bytes.
    return safetensors.torch.save(tensors, {_ENTRY: _dump(header)})


def read_tensors(path: str | Path, kind: str, *versions: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read what `write_tensors` wrote; refuse files that are damaged, changed or of another kind.

    Raises
    ------
    FileError
        For a file that is truncated, changed, of another kind, or of another version.
    """
    content = _read_checked(Path(path))
    header = _read_header(path, content)
    if header.get("kind") != kind:
        raise FileError(f"{path} is not a file of the kind {kind!r}; it says {header.get('kind')!r:.40}.")
    found = header.get("version")
    if type(found) is not int or found not in versions:
        version = max(versions)
        cure = "update lmfcn" if type(found) is int and found > version else "make the file anew"
        raise FileError(
            f"{path} has format version {found!r:.20}, but this version of lmfcn reads version {version}; {cure}."
        )
    try:
        tensors = safetensors.torch.load(content)
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise FileError(f"{path} is damaged: {_short(error)}. Get a fresh copy.") from error
    if header.pop("digest", None) != _digest(header, tensors):
        raise FileError(f"{path} was changed after it was written: its checksum does not fit. Get a fresh copy.")
    _check_numbers(path, tensors)
    values = header.get("values")
    if not isinstance(values, dict):
        raise FileError(f"{path} has a header that is not understood.")
    return values, tensors


def format_version(path: str | Path) -> int:
    """Return the version of the layout of a file that `write_tensors` wrote."""
    return int(_read_header(path, _read_checked(Path(path)))["version"])


def _read_checked(path: Path) -> bytes:
    """Read a file, after a check of its first bytes."""
    if path.exists() and not path.is_file():
        raise FileError(f"{path} is not a file.")
    with path.open("rb") as file:
        start = file.read(8)
        if int.from_bytes(start, "little") > LARGEST_HEADER:
            raise FileError(f"{path} is not in the safetensors format, so lmfcn did not write it.")
        return start + file.read()


def _read_header(path: str | Path, content: bytes) -> dict[str, Any]:
    """Return our own entry of the safetensors header, before any tensor is read."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > LARGEST_HEADER:
        raise FileError(f"{path} is not in the safetensors format, or is truncated ({len(content)} bytes).")
    if len(content) < 8 + length:
        raise FileError(f"{path} is truncated: {len(content)} bytes, but its header alone has {8 + length}.")
    header = _parse(path, content[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    end = max((_tensor_end(path, entry) for entry in header.values()), default=0)
    if len(content) != 8 + length + end:
        raise FileError(f"{path} is truncated or has a tail: {len(content)} bytes instead of {8 + length + end}.")
    if not isinstance(metadata, dict) or not isinstance(metadata.get(_ENTRY, "{}"), str):
        raise FileError(f"{path} has a header that is not understood.")
    return _parse(path, metadata.get(_ENTRY, "{}"))


def _tensor_end(path: str | Path, entry: Any) -> int:
    try:
        return int(entry["data_offsets"][1])
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise FileError(f"{path} has a header that is not understood.") from error


def _parse(path: str | Path, text: str | bytes) -> dict[str, Any]:
    try:
        values = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} has a header that is not understood: {_short(error)}.") from error
    if not isinstance(values, dict):
        raise FileError(f"{path} has a header that is not understood.")
    return values


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _check_numbers(path: str | Path, tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype not in _DTYPES:
            raise FileError(f"{path}: {name} has the type {tensor.dtype}, which lmfcn does not write.")
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise FileError(f"{path}: {name} holds NaN or infinite numbers.")


def _digest(header: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(_dump(header).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        if math.prod(tensor.shape):
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _dump(header: dict[str, Any]) -> str:
    return json.dumps(header, allow_nan=False, sort_keys=True)


def _short(error: BaseException) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
