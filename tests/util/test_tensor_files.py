import json
import struct

import pytest
import torch
from safetensors.torch import save

from lmfcn.util.tensor_files import LARGEST_HEADER, FileError, read_tensors, write_tensors

TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(3), "empty": torch.zeros(0, 2, dtype=torch.float64)}
VALUES = {"name": "Größe", "number": 0.1, "list": [1, None, True]}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file.st"
    write_tensors(path, "kind", 2, VALUES, TENSORS)
    return path


def header_of(content: bytes) -> tuple[dict, bytes]:
    length = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def with_header(header: dict, rest: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + rest


def foreign(**entries) -> bytes:
    return save({"a": torch.zeros(2)}, {"lmfcn": json.dumps(entries)})


def test_what_was_written_comes_back(path):
    values, tensors = read_tensors(path, "kind", 2)
    assert values == VALUES
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert torch.equal(tensors[name], tensor)
        assert tensors[name].dtype == tensor.dtype


def test_the_same_content_makes_the_same_bytes(path, tmp_path):
    write_tensors(tmp_path / "again", "kind", 2, dict(reversed(VALUES.items())), dict(reversed(TENSORS.items())))
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_a_tensor_in_another_memory_layout_is_the_same(tmp_path):
    weight = torch.rand(4, 3, 3, 3).to(memory_format=torch.channels_last)
    write_tensors(tmp_path / "f", "kind", 1, {}, {"weight": weight, "part": weight[::2]})
    tensors = read_tensors(tmp_path / "f", "kind", 1)[1]
    assert torch.equal(tensors["weight"], weight)
    assert torch.equal(tensors["part"], weight[::2])


def test_every_truncation_is_refused(path, tmp_path):
    content = path.read_bytes()
    for length in range(len(content)):
        (tmp_path / "cut").write_bytes(content[:length])
        with pytest.raises(FileError, match=r"truncated|not in the safetensors"):
            read_tensors(tmp_path / "cut", "kind", 2)


def test_every_changed_byte_is_refused(path, tmp_path):
    content = path.read_bytes()
    changed = tmp_path / "changed"
    for place in range(len(content)):
        edited = bytearray(content)
        edited[place] ^= 0x04
        changed.write_bytes(edited)
        try:
            values, tensors = read_tensors(changed, "kind", 2)
        except FileError:
            continue
        # Only spaces that pad the header may change without harm.
        assert values == VALUES
        assert all(torch.equal(tensors[name], tensor) for name, tensor in TENSORS.items())
        assert content[place : place + 1] == b" "


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not in the safetensors format, or is truncated"),
        (b"PK\x03\x04 a zip archive with a pickle", "not in the safetensors format"),
        (b"\x80\x04\x95 a pickle, perhaps", "not in the safetensors format"),
        (struct.pack("<Q", LARGEST_HEADER + 1) + b"{}" * 100, "not in the safetensors format"),
        (struct.pack("<Q", 2**63) + b"{}", "not in the safetensors format"),
        (struct.pack("<Q", 1000) + b"{}", "truncated: 10 bytes, but its header alone has 1008"),
        (with_header([], b""), "header that is not understood"),
        (struct.pack("<Q", 4) + b"nope", "header that is not understood"),
        (struct.pack("<Q", 200_000) + b"[" * 200_000, "header that is not understood"),
        (with_header({"__metadata__": {"lmfcn": 3}}, b""), "header that is not understood"),
        (with_header({"__metadata__": 3}, b""), "header that is not understood"),
        (with_header({"a": {"dtype": "F32"}}, b""), "header that is not understood"),
        (with_header({"a": 7}, b""), "header that is not understood"),
        (save({"a": torch.zeros(2)}), "not a file of the kind 'kind'; it says None"),
        (foreign(kind="other"), "not a file of the kind 'kind'; it says 'other'"),
        (foreign(kind="kind", version=3), "format version 3, but .* reads version 2; update lmfcn"),
        (foreign(kind="kind", version=-1), "format version -1"),
        (foreign(kind="kind", version="2"), "format version '2'"),
        (foreign(kind="kind", version=True), "format version True"),
        (foreign(kind="kind", version=1), "format version 1, but .* reads version 2; make the file anew"),
        (foreign(kind="kind", version=2, values={}), "checksum does not fit"),
    ],
)
def test_foreign_newer_and_hostile_files_are_refused(tmp_path, content, message):
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(FileError, match=message):
        read_tensors(tmp_path / "f", "kind", 2)


def test_tensors_that_overlap_or_lie_about_their_size_are_refused(path, tmp_path):
    header, rest = header_of(path.read_bytes())
    header["a"]["shape"] = [10**9, 10**9]
    (tmp_path / "lie").write_bytes(with_header(header, rest))
    with pytest.raises(FileError, match="is damaged"):
        read_tensors(tmp_path / "lie", "kind", 2)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused(tmp_path, bad):
    write_tensors(tmp_path / "f", "kind", 1, {}, {"weight": torch.tensor([1.0, bad])})
    with pytest.raises(FileError, match="weight holds NaN or infinite numbers"):
        read_tensors(tmp_path / "f", "kind", 1)


def test_types_that_are_never_written_are_refused(tmp_path):
    write_tensors(tmp_path / "f", "kind", 1, {}, {"weight": torch.zeros(3, dtype=torch.bfloat16)})
    with pytest.raises(FileError, match=r"weight has the type torch\.bfloat16"):
        read_tensors(tmp_path / "f", "kind", 1)


def test_values_that_json_cannot_hold_leave_no_file(tmp_path):
    with pytest.raises(ValueError, match="Out of range float"):
        write_tensors(tmp_path / "f", "kind", 1, {"x": float("nan")}, {})
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_just_that(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_tensors(tmp_path / "nothing", "kind", 1)
