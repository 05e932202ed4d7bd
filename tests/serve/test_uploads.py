import io
import os
import socket
import tempfile
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
import tifffile

from lmfcn.data.framing import Preprocessing
from lmfcn.data.image_files import ImageError
from lmfcn.data.image_form import ImageForm
from lmfcn.serve.app import make_app
from lmfcn.serve.uploads import Limits, TooManyBytesError, Upload, decode_upload
from serving import as_files, content, running

SMALL = Limits(file_bytes=3000, request_bytes=20_000, files=5, pixels=2000, seconds=1.0)


@pytest.fixture(scope="module")
def narrow(fitted):
    """A server that allows little."""
    app = make_app(fitted.model, fitted.gallery, SMALL)
    with running(app) as address, httpx.Client(base_url=address, timeout=60) as client:
        yield client


NOISE = content(np.random.default_rng(0).integers(0, 256, (16, 16)).astype(np.uint8))


def image(side=16):
    return content(np.zeros((side, side), np.uint8))


@pytest.mark.parametrize(
    ("files", "status", "reason"),
    [
        ([("a.txt", b"hello")], 415, "a.txt: is not an image of a known format."),
        ([("a.png", NOISE[:120])], 422, "a.png: is damaged or truncated"),
        ([("a.png", b"")], 422, "a.png: is empty (0 bytes)."),
        ([("a.png", image(64))], 413, "a.png: claims 64x64 pixels, more than the 2000 allowed."),
        ([("a.png", bytes(3001))], 413, "a.png: has 0.003 MB, more than the 0.003 MB allowed."),
        ([("a.png", image())] * 6, 413, "A request may hold 5 files; send the others in further requests."),
        ([("a.png", bytes(2500))] * 4 + [("b.png", bytes(12_000))], 413, "A request may have 0.02 MB; send fewer"),
    ],
)
def test_wrong_and_too_large_uploads_are_refused_with_a_reason(narrow, files, status, reason):
    response = narrow.post("/predict", files=[("files", file) for file in files])
    assert response.status_code == status
    assert response.json()["detail"].startswith(reason)


def test_all_files_that_cannot_be_used_are_named_and_nothing_is_predicted(narrow):
    files = [("good.png", image()), ("a.txt", b"hello"), ("b.png", NOISE[:120]), ("good.png", image())]
    response = narrow.post("/predict", files=[("files", file) for file in files])
    assert response.status_code == 415
    assert [file["name"] for file in response.json()["files"]] == ["a.txt", "b.png"]
    assert "answers" not in response.json()


def test_a_body_without_a_length_is_counted_while_it_comes(narrow):
    def chunks():
        yield b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
        for _ in range(30):
            yield bytes(1000)
        yield b"\r\n--x--\r\n"

    response = narrow.post("/predict", content=chunks(), headers={"Content-Type": "multipart/form-data; boundary=x"})
    assert response.status_code == 413
    assert response.json()["detail"] == "A request may have 0.02 MB; send fewer files at a time."


@pytest.mark.parametrize(
    ("kind", "body", "status", "reason"),
    [
        ("application/json", b"{}", 415, "Send files as multipart/form-data in the field 'files'."),
        ("image/png", image(), 415, "Send files as multipart/form-data"),
        ("", b"", 415, "Send files as multipart/form-data"),
        ("multipart/form-data", b"x", 400, "The request is not valid multipart/form-data: Missing boundary"),
        ("multipart/form-data; boundary=x", b"no boundary", 400, "The request is not valid multipart/form-data"),
        ("multipart/form-data; boundary=x", b"--x--\r\n", 422, "There is no file in the request"),
        ("multipart/form-data; boundary=x", b"", 422, "There is no file in the request"),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="files"\r\n\r\ntext\r\n--x--\r\n',
            422,
            "Only files in the field 'files' are expected, got the field 'files'.",
        ),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="other"; filename="a"\r\n\r\ntext\r\n--x--\r\n',
            422,
            "Only files in the field 'files' are expected, got the field 'other'.",
        ),
    ],
)
def test_requests_that_are_not_uploads_are_refused(narrow, kind, body, status, reason):
    response = narrow.post("/predict", content=body, headers={"Content-Type": kind} if kind else {})
    assert response.status_code == status
    assert response.json()["detail"].startswith(reason)


def test_a_request_that_does_not_arrive_is_given_up(narrow):
    host = urlsplit(str(narrow.base_url))
    with socket.create_connection((host.hostname, host.port), timeout=30) as connection:
        head = f"POST /predict HTTP/1.1\r\nHost: {host.hostname}\r\nContent-Length: 900\r\n"
        connection.sendall(f"{head}Content-Type: multipart/form-data; boundary=x\r\n\r\n--x".encode())
        assert b" 408 " in connection.recv(1000)


def test_names_lose_their_folders_and_stay_short(narrow):
    files = [("files", (name, image())) for name in ("C:\\secret\\a.png", "/etc/b.png", "x" * 500, "ä;ß.png")]
    answers = narrow.post("/predict", files=files).json()["answers"]
    assert [answer["name"] for answer in answers] == ["a.png", "b.png", "x" * 200, "ä;ß.png"]


def test_no_upload_touches_the_disk(client, fitted, monkeypatch, tmp_path):
    """Starlette would write files above a megabyte into the folder for temporary files."""
    made = []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(tempfile.SpooledTemporaryFile, "rollover", lambda *_: made.append("rolled over"))
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda *_, **__: made.append("file"))
    large = content(fitted.images[0]) + bytes(5_000_000)  # readers stop where the image ends
    response = client.post("/predict", files=[("files", ("large.png", large)), *as_files(fitted, [0])])
    assert response.status_code == 200
    assert made == []
    assert os.listdir(tmp_path) == []


GREY = ImageForm(channels=1, pixels="uint8")
PIXELS = np.random.default_rng(0).integers(0, 256, (16, 15)).astype(np.uint8)
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
    found = decode_upload(Upload("a.tif", tiff(pixels, **planar)), form, LIMITS)
    assert found.dtype == pixels.dtype
    assert np.array_equal(found, pixels.reshape(20, 20, -1))


def test_images_are_brought_to_the_form_of_the_model(random):
    colour = random.integers(0, 256, (40, 30, 3)).astype(np.uint8)
    frame = Preprocessing(color="grey", fit="resize", size=(16, 16))
    found = decode_upload(Upload("a.png", content(colour)), ImageForm(1, "uint8", frame), LIMITS)
    assert found.shape == (16, 16, 1)
    grey = random.integers(0, 256, (16, 16)).astype(np.uint8)
    found = decode_upload(Upload("a.png", content(grey)), ImageForm(3, "uint8", Preprocessing(color="rgb")), LIMITS)
    assert np.array_equal(found, np.repeat(grey[..., None], 3, axis=2))


def test_a_grey_image_that_a_clipboard_turned_into_rgb_is_grey(random):
    grey = random.integers(0, 256, (16, 16)).astype(np.uint8)
    found = decode_upload(Upload("pasted.png", content(np.repeat(grey[..., None], 3, axis=2))), GREY, LIMITS)
    assert np.array_equal(found[..., 0], grey)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b"hello", "is not an image of a known format"),
        (content(PIXELS)[:120], "is damaged or truncated"),
        (content(np.zeros((200, 200), np.uint8)), "claims 200x200 pixels, more than the 10000 allowed"),
        (content(np.zeros((4, 16), np.uint8)), "Images must have at least 8x8 pixels, got 4x16"),
        (content(PIXELS.reshape(8, 10, 3)), "has 3 channels of uint8 pixels, but the model takes 1"),
        (tiff(np.zeros((16, 16), np.uint16)), "has 1 channel of uint16 pixels, but the model takes 1 channel of uint8"),
        (tiff(np.zeros((9, 16, 16), np.uint8)), "has 9 channels of uint8 pixels"),
        (tiff(np.full((16, 16), np.nan, np.float32)), "has NaN or infinite pixels"),
        (bytes(60_000), "has 0.06 MB, more than the 0.05 MB allowed"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_reason(data, reason):
    with pytest.raises(ImageError, match=reason) as caught:
        decode_upload(Upload("a.png", data), GREY, LIMITS)
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
    monkeypatch.setattr("lmfcn.serve.uploads.decode_image", lambda *_, **__: pytest.fail("was decoded"))
    data = ome(100_000, '<TiffData IFD="0" PlaneCount="1"/>')
    with pytest.raises(ImageError, match="has 100000 channels of uint8 pixels"):
        decode_upload(Upload("a.tif", data), GREY, LIMITS)


def test_a_tiff_that_names_other_files_does_not_make_them_read(tmp_path):
    tifffile.imwrite(tmp_path / "secret.tif", np.full((16, 16), 77, np.uint8))
    name = f'<UUID FileName="{tmp_path}/secret.tif">urn:uuid:1</UUID>'
    data = ome(1, f'<TiffData IFD="0" PlaneCount="1">{name}</TiffData>')
    assert not decode_upload(Upload("a.tif", data), GREY, LIMITS).any()
