"""Every format and mode that is promised, and every way in which a file can be bad."""

import io
import os
import random as python_random
import struct
import zlib

import numpy as np
import pytest
import tifffile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from lmfcn.data.image_files import (
    ImageError,
    TooManyPixelsError,
    UnknownFormatError,
    decode_image,
    probe_content,
    probe_image,
    read_image,
)


def picture(random, channels=3, dtype=np.uint8, height=12, width=17):
    shape = (height, width) if channels == 1 else (height, width, channels)
    if np.issubdtype(dtype, np.floating):
        return random.normal(size=shape).astype(dtype)
    return random.integers(0, np.iinfo(dtype).max + 1, shape).astype(dtype)


def save(image: Image.Image, path, **options):
    image.save(path, **options)
    return path


def check_header(path):
    """The header must promise what the pixels turn out to be."""
    image, info = read_image(path), probe_image(path)
    assert image.shape == (info.height, info.width, info.channels)
    assert info.pixels == ("float" if image.dtype == np.float32 else str(image.dtype))
    assert image.flags.writeable
    return image


@pytest.mark.parametrize("ending", ["png", "bmp", "tif", "webp"])
@pytest.mark.parametrize("channels", [1, 3])
def test_lossless_formats_round_trip(random, tmp_path, ending, channels):
    pixels = picture(random, channels)
    options = {"lossless": True} if ending == "webp" else {}
    image = check_header(save(Image.fromarray(pixels), tmp_path / f"a.{ending}", **options))
    if ending == "webp" and channels == 1:
        pixels = np.repeat(pixels[..., None], 3, axis=2)  # WebP has no grey
    assert np.array_equal(image, pixels.reshape(12, 17, -1))


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_jpeg_comes_close(tmp_path, mode):
    smooth = Image.fromarray(np.full((16, 24, 3), (200, 120, 60), np.uint8)).convert(mode)
    image = check_header(save(smooth, tmp_path / "a.jpg", quality=95))
    expected = np.asarray(smooth.convert("L" if mode == "L" else "RGB")).reshape(16, 24, -1)
    assert image.shape == expected.shape
    assert np.abs(image.astype(int) - expected).max() <= 6


def test_gif_and_palette_become_rgb(tmp_path):
    colours = np.zeros((8, 10, 3), np.uint8)
    colours[:, 5:] = (255, 10, 20)
    for name in ("a.gif", "a.png"):
        paletted = Image.fromarray(colours).quantize(4)
        assert paletted.mode == "P"
        image = check_header(save(paletted, tmp_path / name))
        assert np.array_equal(image, np.asarray(paletted.convert("RGB")))


def test_first_frame_of_an_animation(tmp_path):
    frames = [Image.fromarray(np.full((8, 8), level, np.uint8)) for level in (10, 200)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert read_image(tmp_path / "a.gif").max() == 10


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_alpha_is_dropped(random, tmp_path, mode):
    pixels = picture(random, len(mode))
    pixels[0, 0, -1] = 0
    image = check_header(save(Image.fromarray(pixels), tmp_path / "a.png"))
    assert np.array_equal(image, pixels[..., :-1])


def test_one_bit_images_are_black_and_white(tmp_path):
    bits = np.arange(80).reshape(8, 10) % 3 == 0
    for name in ("a.png", "a.tif"):
        image = check_header(save(Image.fromarray(bits), tmp_path / name))
        assert np.array_equal(image[..., 0], bits * np.uint8(255))


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_grey_keeps_its_16_bits(random, tmp_path, ending):
    pixels = picture(random, 1, np.uint16)
    image = check_header(save(Image.fromarray(pixels), tmp_path / f"a.{ending}"))
    assert image.dtype == np.uint16
    assert np.array_equal(image[..., 0], pixels)


def png_chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def deep_png_of(lines: bytes, height: int, width: int, colour_type: int, *, interlace: int = 0, more=b"") -> bytes:
    """A PNG with 16 bits per channel around filtered lines, with more chunks before the pixels."""
    header = struct.pack(">IIBBBBB", width, height, 16, colour_type, 0, 0, interlace)
    packed = zlib.compress(lines)
    body = png_chunk(b"IDAT", packed[:20]) + png_chunk(b"IDAT", packed[20:])
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + more + body + png_chunk(b"IEND", b"")


def deep_png(pixels: np.ndarray, filters=(0,), *, colour_type: int, interlace: int = 0, more=b"") -> bytes:
    """A PNG with 16 bits per channel, written by hand with the given filters, one line after the other."""
    height, width, channels = pixels.shape
    raw = pixels.astype(">u2").tobytes()
    stride, step = width * channels * 2, channels * 2
    lines, above = b"", bytes(stride)
    for y in range(height):
        line = raw[y * stride : (y + 1) * stride]
        kind = filters[y % len(filters)]
        coded = bytearray()
        for i, value in enumerate(line):
            left, up = (line[i - step] if i >= step else 0), above[i]
            corner = above[i - step] if i >= step else 0
            estimate = left + up - corner
            nearest = min((abs(estimate - v), rank, v) for rank, v in enumerate((left, up, corner)))[2]
            coded.append((value - (0, left, up, (left + up) // 2, nearest)[kind]) % 256)
        lines, above = lines + bytes([kind]) + bytes(coded), line
    return deep_png_of(lines, height, width, colour_type, interlace=interlace, more=more)


def interlaced_png(pixels: np.ndarray, colour_type: int) -> bytes:
    """A PNG with 16 bits per channel, stored as the seven passes of Adam7."""
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    parts = [pixels[top::down, left::right] for top, left, down, right in passes]
    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for part in parts if part.size for line in part)
    return deep_png_of(lines, *pixels.shape[:2], colour_type, interlace=1)


@pytest.mark.parametrize(("colour_type", "channels", "kept"), [(2, 3, 3), (6, 4, 3), (4, 2, 1)])
@pytest.mark.parametrize("filters", [(0,), (1,), (2,), (3,), (4,), (4, 3, 2, 1, 0)])
def test_png_colour_keeps_its_16_bits(random, tmp_path, colour_type, channels, kept, filters):
    pixels = random.integers(0, 65536, (9, 11, channels)).astype(np.uint16)
    (tmp_path / "a.png").write_bytes(deep_png(pixels, filters, colour_type=colour_type))
    image = check_header(tmp_path / "a.png")
    assert image.dtype == np.uint16
    assert np.array_equal(image, pixels[..., :kept])


@pytest.mark.parametrize(("colour_type", "channels", "kept"), [(2, 3, 3), (6, 4, 3), (4, 2, 1)])
def test_interlaced_png_keeps_its_16_bits_and_nothing_is_printed(random, tmp_path, capfd, colour_type, channels, kept):
    pixels = random.integers(0, 65536, (13, 10, channels)).astype(np.uint16)
    (tmp_path / "a.png").write_bytes(interlaced_png(pixels, colour_type))
    assert np.array_equal(check_header(tmp_path / "a.png"), pixels[..., :kept])
    assert capfd.readouterr() == ("", "")


def test_a_transparent_colour_adds_no_channel(random, tmp_path):
    pixels = random.integers(0, 65536, (9, 11, 3)).astype(np.uint16)
    transparent = png_chunk(b"tRNS", pixels[0, 0].astype(">u2").tobytes())
    (tmp_path / "a.png").write_bytes(deep_png(pixels, colour_type=2, more=transparent))
    assert np.array_equal(check_header(tmp_path / "a.png"), pixels)


def test_damaged_deep_png_is_refused(random, tmp_path):
    pixels = random.integers(0, 65536, (9, 11, 3)).astype(np.uint16)
    valid = deep_png(pixels, colour_type=2)
    taller = valid[8:16] + struct.pack(">II", 11, 10) + valid[24:29]
    taller = valid[:8] + taller + struct.pack(">I", zlib.crc32(taller[4:])) + valid[33:]
    wrong_passes = deep_png(pixels, colour_type=2, interlace=1)
    for bad in (valid[:-60], valid[:70] + b"\xff" + valid[71:], taller, wrong_passes):
        (tmp_path / "a.png").write_bytes(bad)
        with pytest.raises(ImageError, match=r"a\.png: is damaged or truncated"):
            read_image(tmp_path / "a.png")


@pytest.mark.parametrize(
    ("dtype", "channels", "options"),
    [
        (np.uint8, 1, {}),
        (np.uint8, 3, {"photometric": "rgb"}),
        (np.uint16, 3, {"photometric": "rgb"}),
        (np.uint16, 1, {"compression": "zlib"}),
        (np.float32, 1, {}),
        (np.float64, 3, {"photometric": "rgb"}),
        (np.uint8, 7, {"photometric": "minisblack", "planarconfig": "contig"}),
        (np.uint16, 5, {"photometric": "minisblack", "planarconfig": "contig", "tile": (16, 16)}),
        (np.uint16, 1, {"byteorder": ">"}),
        (np.uint8, 1, {"bigtiff": True}),
    ],
)
def test_tiff_round_trips(random, tmp_path, dtype, channels, options):
    pixels = picture(random, channels, dtype, 40, 33)
    tifffile.imwrite(tmp_path / "a.tif", pixels, **options)
    image = check_header(tmp_path / "a.tif")
    assert image.dtype == (np.float32 if np.issubdtype(dtype, np.floating) else dtype)
    assert np.array_equal(image, pixels.reshape(40, 33, -1).astype(image.dtype))


def test_tiff_pages_and_planes_are_channels(random, tmp_path):
    pixels = random.integers(0, 65536, (6, 20, 30)).astype(np.uint16)
    for options in ({}, {"photometric": "minisblack", "planarconfig": "separate"}):
        tifffile.imwrite(tmp_path / "a.tif", pixels, **options)
        assert np.array_equal(check_header(tmp_path / "a.tif"), np.moveaxis(pixels, 0, 2))


def test_tiff_alpha_is_dropped_and_white_is_zero_is_turned(random, tmp_path):
    pixels = picture(random, 4)
    tifffile.imwrite(tmp_path / "a.tif", pixels, photometric="rgb", extrasamples=["unassalpha"])
    assert np.array_equal(check_header(tmp_path / "a.tif"), pixels[..., :3])
    grey = picture(random, 1)
    tifffile.imwrite(tmp_path / "b.tif", grey, photometric="miniswhite")
    assert np.array_equal(check_header(tmp_path / "b.tif")[..., 0], 255 - grey)


def test_compressed_tiff_that_pillow_must_read(random, tmp_path):
    pixels = picture(random, 3)
    for compression in ("tiff_lzw", "packbits"):
        image = check_header(save(Image.fromarray(pixels), tmp_path / "a.tif", compression=compression))
        assert np.array_equal(image, pixels)
    cmyk = Image.fromarray(pixels).convert("CMYK")
    assert np.array_equal(check_header(save(cmyk, tmp_path / "b.tif")), np.asarray(cmyk.convert("RGB")))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("ending", ["jpg", "png", "tif"])
def test_orientation_of_the_camera_is_applied(tmp_path, orientation, ending):
    pixels = np.zeros((16, 32, 3), np.uint8)
    pixels[:8, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(Image.fromarray(pixels), tmp_path / f"a.{ending}", exif=exif)
    image = check_header(path)
    turns = {
        1: pixels,
        2: pixels[:, ::-1],
        3: pixels[::-1, ::-1],
        4: pixels[::-1],
        5: pixels.swapaxes(0, 1),
        6: np.rot90(pixels, -1),
        7: pixels[::-1, ::-1].swapaxes(0, 1),
        8: np.rot90(pixels),
    }
    assert image.shape == turns[orientation].shape
    assert np.abs(image.astype(int) - turns[orientation]).mean() < 3


@pytest.fixture
def png(random, tmp_path):
    return save(Image.fromarray(picture(random)), tmp_path / "a.png")


def test_bad_files_are_named_with_their_reason(png, tmp_path):
    cases = {
        "missing.png": (None, "does not exist"),
        "empty.png": (b"", r"is empty \(0 bytes\)"),
        "text.png": (b"hello, I am not an image at all", "is not an image of a known format"),
        "short.png": (png.read_bytes()[:60], "is damaged or truncated"),
        "half.jpg": (None, "is damaged or truncated"),
        "short.tif": (b"II*\0\x08\0\0\0", "is damaged or truncated"),
    }
    buffer = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(buffer, "JPEG")
    (tmp_path / "half.jpg").write_bytes(buffer.getvalue()[: len(buffer.getvalue()) // 2])
    for name, (content, reason) in cases.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(ImageError, match=f"{name}: {reason}") as caught:
            read_image(tmp_path / name)
        assert caught.value.path == str(tmp_path / name)
    with pytest.raises(ImageError, match="is a folder, not a file"):
        read_image(tmp_path)


def test_absurdly_large_images_are_refused_before_decoding(png, tmp_path):
    with pytest.raises(ImageError, match="claims 12x17 pixels, more than the 100 allowed"):
        read_image(png, max_pixels=100)
    with pytest.raises(ImageError, match="claims 12x17 pixels"):
        probe_image(png, max_pixels=100)
    bomb = bytearray(png.read_bytes())
    bomb[16:24] = struct.pack(">II", 200_000, 200_000)
    bomb[29:33] = struct.pack(">I", zlib.crc32(bytes(bomb[12:29])))
    (tmp_path / "bomb.png").write_bytes(bomb)
    with pytest.raises(ImageError, match=r"bomb\.png: claims"):
        read_image(tmp_path / "bomb.png")
    deep = deep_png(np.zeros((4, 4, 3), np.uint16), colour_type=2)
    (tmp_path / "deep.png").write_bytes(deep[:16] + struct.pack(">II", 2**31, 2**31) + deep[24:])
    with pytest.raises(ImageError, match=r"deep\.png: claims 2147483648x2147483648 pixels"):
        read_image(tmp_path / "deep.png")


def test_more_pixels_than_the_bytes_can_hold_are_refused_before_decoding(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((5000, 5000), np.uint8), compression="zstd", rowsperstrip=5000)
    for read in (read_image, probe_image):
        with pytest.raises(
            TooManyPixelsError, match=r"claims 5000x5000 pixels in \d+ bytes, which cannot hold an image"
        ):
            read(tmp_path / "a.tif")


def test_a_tiff_block_that_unpacks_to_more_than_its_pixels_is_refused(tmp_path):
    tifffile.imwrite(tmp_path / "good.tif", np.zeros((64, 64), np.uint8), compression="zlib")
    content = (tmp_path / "good.tif").read_bytes()
    with tifffile.TiffFile(tmp_path / "good.tif") as tiff:
        places = {name: tiff.pages[0].tags[name].valueoffset for name in ("StripOffsets", "StripByteCounts")}
    packed = zlib.compress(bytes(10_000_000))
    bomb = bytearray(content + packed)
    for name, value in (("StripOffsets", len(content)), ("StripByteCounts", len(packed))):
        width = 4 if name == "StripOffsets" else 2
        bomb[places[name] : places[name] + width] = value.to_bytes(width, "little")
    with pytest.raises(ImageError, match=r"bomb\.tif: .*a block of pixel data is larger than it should be"):
        decode_image(bytes(bomb), "bomb.tif")
    assert decode_image(content, "good.tif").shape == (64, 64, 1)


@pytest.mark.parametrize(
    ("compression", "photometric"),
    [("jpeg", "minisblack"), ("jpeg2000", "rgb"), ("png", "rgb"), ("webp", "rgb")],  # colour as JPEG is left to Pillow
)
def test_a_tiff_block_that_is_a_larger_image_is_refused_before_it_is_decoded(tmp_path, compression, photometric):
    for name, side in (("small", 64), ("large", 512)):
        pixels = np.full((side, side, 3) if photometric == "rgb" else (side, side), 99, np.uint8)
        options = {"compression": compression, "tile": (side, side), "photometric": photometric}
        tifffile.imwrite(tmp_path / f"{name}.tif", pixels, **options)
    assert np.abs(read_image(tmp_path / "small.tif").astype(int) - 99).max() <= 2
    bomb = bytearray((tmp_path / "large.tif").read_bytes())
    with tifffile.TiffFile(tmp_path / "large.tif") as tiff:
        for name in ("ImageWidth", "ImageLength", "TileWidth", "TileLength"):
            place = tiff.pages[0].tags[name].valueoffset
            bomb[place : place + 2] = (64).to_bytes(2, "little")
    with pytest.raises(ImageError, match=r"bomb\.tif: .*a block of pixel data is larger than it should be"):
        decode_image(bytes(bomb), "bomb.tif")


def test_a_tiff_compression_whose_size_cannot_be_bounded_is_refused(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((16, 16), np.uint8), compression="lerc")
    with pytest.raises(ImageError, match=r"a\.tif: .*LERC compression cannot be read; save it with deflate, LZW or"):
        read_image(tmp_path / "a.tif")


def test_content_is_read_as_files_are_and_the_kind_of_error_tells_what_is_wrong(png):
    content = png.read_bytes()
    assert np.array_equal(decode_image(content, "a.png"), read_image(png))
    assert probe_content(content, "a.png") == probe_image(png)
    for read in (decode_image, probe_content):
        with pytest.raises(UnknownFormatError, match=r"a\.eps: is not an image of a known format"):
            read(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 16 16\n", "a.eps")
        with pytest.raises(TooManyPixelsError, match=r"a\.png: claims 12x17 pixels"):
            read(content, "a.png", max_pixels=100)
        with pytest.raises(ImageError, match=r"a\.png: is empty"):
            read(b"", "a.png")


def test_pixels_that_cannot_be_used_are_refused(tmp_path):
    tifffile.imwrite(tmp_path / "nan.tif", np.full((8, 8), np.nan, np.float32))
    with pytest.raises(ImageError, match="has NaN or infinite pixels"):
        read_image(tmp_path / "nan.tif")
    tifffile.imwrite(tmp_path / "int.tif", np.zeros((8, 8), np.int32))
    with pytest.raises(ImageError, match="holds int32 values; uint8, uint16 and floating point pixels can be used"):
        read_image(tmp_path / "int.tif")
    tifffile.imwrite(tmp_path / "stack.tif", np.zeros((2, 3, 16, 16), np.uint8), photometric="minisblack")
    with pytest.raises(ImageError, match="holds a stack with the axes"):
        read_image(tmp_path / "stack.tif")


def test_the_content_counts_not_the_name(png, tmp_path):
    (tmp_path / "a.jpg").write_bytes(png.read_bytes())
    assert np.array_equal(read_image(tmp_path / "a.jpg"), read_image(png))


def samples() -> list[bytes]:
    pixels = np.arange(12 * 10 * 3, dtype=np.uint8).reshape(12, 10, 3)
    files = []
    for kind in ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF"):
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, kind)
        files.append(buffer.getvalue())
    buffer = io.BytesIO()
    tifffile.imwrite(buffer, np.zeros((5, 20, 20), np.uint16))
    return [*files, buffer.getvalue(), deep_png(np.ones((5, 6, 3), np.uint16), (4,), colour_type=2)]


SAMPLES = samples()


@settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
@given(st.one_of(st.binary(max_size=200), st.tuples(st.sampled_from(SAMPLES), st.integers(0, 2**32))))
@pytest.mark.filterwarnings("ignore")
def test_random_and_mutated_bytes_give_an_image_or_our_own_error(tmp_path_factory, drawn):
    if isinstance(drawn, tuple):
        content, seed = bytearray(drawn[0]), drawn[1]
        mutator = python_random.Random(seed)
        for _ in range(mutator.randint(1, 6)):
            content[mutator.randrange(len(content))] = mutator.randrange(256)
        if mutator.random() < 0.3:
            content = content[: mutator.randrange(len(content))]
        drawn = bytes(content)
    path = tmp_path_factory.getbasetemp() / "fuzz.bin"
    path.write_bytes(drawn)
    for read in (read_image, probe_image):
        try:
            result = read(path, max_pixels=1_000_000)
        except ImageError:
            continue
        if read is read_image:
            assert result.ndim == 3
            assert result.dtype in (np.uint8, np.uint16, np.float32)


def test_no_file_stays_open(png, tmp_path):
    (tmp_path / "short.png").write_bytes(png.read_bytes()[:60])
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((8, 8), np.uint8))
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    for _ in range(5):
        for name in ("a.png", "short.png", "a.tif"):
            for read in (read_image, probe_image):
                try:
                    read(tmp_path / name)
                except ImageError:
                    assert name == "short.png"
    after = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    assert after <= before
