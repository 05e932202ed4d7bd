"""From the bytes of an upload to an image as a model takes it."""

import numpy as np

from lmfcn.data.arrays import check_images, pixel_kind
from lmfcn.data.form import ImageForm
from lmfcn.data.framing import describe_channels, frame_image
from lmfcn.data.images import ImageError, decode_image, probe_content
from lmfcn.serve.limits import MEGABYTE, Limits
from lmfcn.serve.refusals import TooManyBytesError
from lmfcn.serve.uploads import Upload


def image_of(upload: Upload, form: ImageForm, limits: Limits) -> np.ndarray:
    """Return the image (height, width, channels) of a file in the form of a model.

    Raises
    ------
    ImageError
        Names the file and what is wrong with it.
    """
    if len(upload.content) > limits.file_bytes:
        size, most = len(upload.content) / MEGABYTE, limits.file_bytes / MEGABYTE
        raise TooManyBytesError(upload.name, f"has {size:.3g} MB, more than the {most:g} MB allowed")
    header = probe_content(upload.content, upload.name, max_pixels=limits.pixels)
    if header.channels not in _usable_channels(form):  # before memory is needed for all of them
        raise _unlike(upload.name, (header.channels, header.pixels), form)
    image = decode_image(upload.content, upload.name, max_pixels=limits.pixels)
    try:
        image = frame_image(_as_grey_if_it_is(image) if form.channels == 1 else image, form.frame)
        if (image.shape[2], pixel_kind(image)) != (form.channels, form.pixels):
            raise _unlike(upload.name, (image.shape[2], pixel_kind(image)), form)
        return check_images(image[None])[0]
    except ImageError:
        raise
    except ValueError as error:
        raise ImageError(upload.name, str(error).rstrip(".")) from error


def _usable_channels(form: ImageForm) -> set[int]:
    if form.frame.color != "keep":
        return {1, 3}
    return {1, 3} if form.channels == 1 else {form.channels}


def _as_grey_if_it_is(image: np.ndarray) -> np.ndarray:
    """Return one channel of three equal ones: what is pasted from a clipboard comes as RGB, grey or not."""
    equal = image.shape[2] == 3 and bool((image == image[..., :1]).all())
    return image[..., :1] if equal else image


def _unlike(name: str, found: tuple[int, str], form: ImageForm) -> ImageError:
    expected = describe_channels(form.channels, form.pixels)
    return ImageError(name, f"has {describe_channels(*found)} pixels, but the model takes {expected} pixels")
