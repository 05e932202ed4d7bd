"""PNG files with 16 bits in several channels, which Pillow would cut down to 8 bits."""

import struct
import zlib

import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {2: 3, 4: 2, 6: 4}  # by colour type: RGB, grey with alpha, RGB with alpha


def deep_colour_png_size(data: bytes) -> tuple[int, int] | None:
    """Return height and width if `data` starts like a PNG with 16 bits in more than one channel, else None."""
    if not data.startswith(_SIGNATURE) or len(data) < 29 or data[24] != 16 or data[25] not in _CHANNELS:
        return None
    width, height = struct.unpack(">II", data[16:24])
    return height, width


def read_deep_colour_png(data: bytes) -> np.ndarray:
    """Return the pixels (height, width, 1 or 3) as uint16, without alpha."""
    width, height, _, colour_type, _, _, interlaced = struct.unpack(">IIBBBBB", data[16:29])
    if interlaced:
        raise ValueError("interlaced PNG with 16 bits per channel; save it without interlacing")
    pixel_bytes = 2 * _CHANNELS[colour_type]
    stride = width * pixel_bytes
    decompressor = zlib.decompressobj()
    # No more than the image needs is unpacked, whatever the file says.
    raw = decompressor.decompress(b"".join(_data_chunks(data)), height * (stride + 1))
    if len(raw) != height * (stride + 1):
        raise ValueError("the pixel data end too early")
    lines = np.frombuffer(raw, dtype=np.uint8).reshape(height, stride + 1)
    pixels = _undo_filters(lines[:, 0], lines[:, 1:].reshape(height, width, pixel_bytes))
    image = pixels.reshape(height, stride).view(">u2").reshape(height, width, -1).astype(np.uint16)
    return image if colour_type == 2 else np.ascontiguousarray(image[..., :-1])


def _data_chunks(data: bytes) -> list[bytes]:
    chunks, position = [], len(_SIGNATURE)
    while position + 12 <= len(data):
        (length,) = struct.unpack(">I", data[position : position + 4])
        kind, body = data[position + 4 : position + 8], data[position + 8 : position + 8 + length]
        (checksum,) = struct.unpack(">I", data[position + 8 + length : position + 12 + length] or b"\0\0\0\0")
        if kind == b"IDAT":
            if zlib.crc32(kind + body) != checksum:
                raise ValueError("a block of pixel data is damaged")
            chunks.append(body)
        position += 12 + length
    return chunks


def _undo_filters(filters: np.ndarray, lines: np.ndarray) -> np.ndarray:
    """Undo the prediction of each line from its left and upper neighbours (bytes, modulo 256)."""
    pixels = np.zeros_like(lines)
    above = np.zeros_like(lines[0])
    for filter_type, line, result in zip(filters, lines, pixels, strict=True):
        if filter_type == 0:
            result[:] = line
        elif filter_type == 1:
            result[:] = np.cumsum(line, axis=0, dtype=np.uint8)
        elif filter_type == 2:
            result[:] = line + above
        elif filter_type in (3, 4):
            _undo_neighbour_filter(line, above, result, paeth=filter_type == 4)
        else:
            raise ValueError(f"unknown filter {filter_type}")
        above = result
    return pixels


def _undo_neighbour_filter(line: np.ndarray, above: np.ndarray, result: np.ndarray, *, paeth: bool) -> None:
    left = upper_left = np.zeros(line.shape[1], dtype=np.int64)
    for i, (value, up) in enumerate(zip(line.astype(np.int64), above.astype(np.int64), strict=True)):
        left = (value + (_paeth(left, up, upper_left) if paeth else (left + up) // 2)) % 256
        result[i], upper_left = left, up


def _paeth(left: np.ndarray, up: np.ndarray, upper_left: np.ndarray) -> np.ndarray:
    estimate = left + up - upper_left
    from_left, from_up, from_corner = abs(estimate - left), abs(estimate - up), abs(estimate - upper_left)
    nearest_up = np.where(from_up <= from_corner, up, upper_left)
    return np.where((from_left <= from_up) & (from_left <= from_corner), left, nearest_up)
