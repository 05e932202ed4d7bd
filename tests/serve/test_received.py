import io

import numpy as np
import pytest
import tifffile

from lmfcn.data.form import ImageForm
from lmfcn.data.framing import Frame
from lmfcn.data.images import ImageError
from lmfcn.serve.limits import Limits
from lmfcn.serve.received import image_of
from lmfcn.serve.refusals import TooManyBytesError
from lmfcn.serve.uploads import Upload
from serving import content

GREY = ImageForm(channels=1, pixels="uint8")
NOISE = np.random.default_rng(0).integers(0, 256, (16, 15)).astype(np.uint8)
LIMITS = Limits(pixels=10_000, file_bytes=50_000)


def tiff(image: np.ndarray, **options) -> bytes:
    buffer = io.BytesIO()
    tifffile.imwrite(buffer, image, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("pixels", "form"),
    [
        (np.arange(400, dtype=np.uint16).reshape(20, 20) * 150, ImageForm(1, "uint16")),
        (np.linspace(0, 1, 400, dtype=np.float32).reshape(20, 20), ImageForm(1, "float")),
        (np.arange(20 * 20 * 5, dtype=np.uint16).reshape(20, 20, 5), ImageForm(5, "uint16")),
        (np.arange(20 * 20 * 3).reshape(20, 20, 3).astype(np.uint8), ImageForm(3, "uint8")),
    ],
    ids=["16 bit", "floating point", "five channels", "RGB"],
)
def test_deep_and_many_channel_images_arrive_as_they_are(pixels, form):
    planar = {"photometric": "minisblack", "planarconfig": "contig"} if pixels.shape[2:] == (5,) else {}
    found = image_of(Upload("a.tif", tiff(pixels, **planar)), form, LIMITS)
    assert found.dtype == pixels.dtype
    assert np.array_equal(found, pixels.reshape(20, 20, -1))


def test_images_are_brought_to_the_form_of_the_model(random):
    colour = random.integers(0, 256, (40, 30, 3)).astype(np.uint8)
    frame = Frame(color="grey", fit="resize", size=(16, 16))
    found = image_of(Upload("a.png", content(colour)), ImageForm(1, "uint8", frame), LIMITS)
    assert found.shape == (16, 16, 1)
    grey = random.integers(0, 256, (16, 16)).astype(np.uint8)
    found = image_of(Upload("a.png", content(grey)), ImageForm(3, "uint8", Frame(color="rgb")), LIMITS)
    assert np.array_equal(found, np.repeat(grey[..., None], 3, axis=2))


def test_a_grey_image_that_a_clipboard_turned_into_rgb_is_grey(random):
    grey = random.integers(0, 256, (16, 16)).astype(np.uint8)
    found = image_of(Upload("pasted.png", content(np.repeat(grey[..., None], 3, axis=2))), GREY, LIMITS)
    assert np.array_equal(found[..., 0], grey)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b"hello", "is not an image of a known format"),
        (content(NOISE)[:120], "is damaged or truncated"),
        (content(np.zeros((200, 200), np.uint8)), "claims 200x200 pixels, more than the 10000 allowed"),
        (content(np.zeros((4, 16), np.uint8)), "Images must have at least 8x8 pixels, got 4x16"),
        (content(NOISE.reshape(8, 10, 3)), "has 3 channels of uint8 pixels, but the model takes 1"),
        (tiff(np.zeros((16, 16), np.uint16)), "has 1 channel of uint16 pixels, but the model takes 1 channel of uint8"),
        (tiff(np.zeros((9, 16, 16), np.uint8)), "has 9 channels of uint8 pixels"),
        (tiff(np.full((16, 16), np.nan, np.float32)), "has NaN or infinite pixels"),
        (bytes(60_000), "has 0.06 MB, more than the 0.05 MB allowed"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_reason(data, reason):
    with pytest.raises(ImageError, match=reason) as caught:
        image_of(Upload("a.png", data), GREY, LIMITS)
    assert caught.value.path == "a.png"
    assert not caught.value.reason.endswith(".")
    assert isinstance(caught.value, TooManyBytesError) == ("MB" in reason)


def ome(n_channels: int, data: str) -> bytes:
    """Return a small TIFF whose description claims something else."""
    claim = (
        '<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image ID="Image:0">'
        '<Pixels ID="Pixels:0" DimensionOrder="XYCZT" Type="uint8" SizeX="16" SizeY="16" SizeZ="1" SizeT="1"'
        f' SizeC="{n_channels}">{data}</Pixels></Image></OME>'
    )
    return tiff(np.zeros((16, 16), np.uint8), description=claim, metadata=None)


def test_channels_are_counted_before_memory_is_taken_for_them(monkeypatch):
    monkeypatch.setattr("lmfcn.serve.received.decode_image", lambda *_, **__: pytest.fail("was decoded"))
    data = ome(100_000, '<TiffData IFD="0" PlaneCount="1"/>')
    with pytest.raises(ImageError, match="has 100000 channels of uint8 pixels"):
        image_of(Upload("a.tif", data), GREY, LIMITS)


def test_a_tiff_that_names_other_files_does_not_make_them_read(tmp_path):
    tifffile.imwrite(tmp_path / "secret.tif", np.full((16, 16), 77, np.uint8))
    name = f'<UUID FileName="{tmp_path}/secret.tif">urn:uuid:1</UUID>'
    data = ome(1, f'<TiffData IFD="0" PlaneCount="1">{name}</TiffData>')
    assert not image_of(Upload("a.tif", data), GREY, LIMITS).any()
