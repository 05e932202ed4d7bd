"""How much a request may ask for."""

from dataclasses import dataclass, replace

import torch

from lmfcn.data.form import ImageForm

MEGABYTE = 1_000_000
MEGAPIXEL = 1_000_000
MEGAPIXELS, MEGAPIXELS_AS_THEY_ARE = 50, 2.5


@dataclass(frozen=True)
class Limits:
    """Bounds that keep one request from taking the whole machine.

    Attributes
    ----------
    file_bytes : int
        Of one file.
    request_bytes : int
        Of a whole request, whether it says so beforehand or not.
    files : int
        In one request.
    pixels : int
        Of one image; compared with its header before it is decoded.
    requests : int
        Read into memory and answered at a time; others wait.
    workers : int
        Requests that compute at a time.
    seconds : float
        For a request to arrive completely.
    """

    file_bytes: int = 32 * MEGABYTE
    request_bytes: int = 128 * MEGABYTE
    files: int = 200
    pixels: int = MEGAPIXELS * MEGAPIXEL
    requests: int = 8
    workers: int = 2
    seconds: float = 60.0

    def on(self, device: torch.device) -> "Limits":
        """Return the limits for a model on a device: on Apple's MPS, two threads at a time end the process."""
        return replace(self, workers=1) if device.type == "mps" else self


def default_pixels(form: ImageForm) -> int:
    """Return how many pixels an image may have: fewer where the network takes images in the size in which they come.

    Examples
    --------
    >>> default_pixels(ImageForm(channels=3, pixels="uint8"))
    2500000
    """
    return int((MEGAPIXELS_AS_THEY_ARE if form.frame.size is None else MEGAPIXELS) * MEGAPIXEL)
