"""Describe the images of a folder once by a frozen network, and keep the features in a file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lmfcn.compute.encode import encode, evenly_spaced, refresh_and_encode
from lmfcn.compute.resources import check_device
from lmfcn.data.arrays import SMALLEST_SIDE as SMALLEST_FROM_SCRATCH
from lmfcn.data.arrays import check_smallest_side, pixel_kind
from lmfcn.data.collection import ImageCollection
from lmfcn.data.framing import Color, describe_channels, to_color
from lmfcn.data.image_files import ImageError, probe_image, read_image
from lmfcn.data.image_store import map_in_threads
from lmfcn.method.network import TextureFCN
from lmfcn.networks.registry import EFFICIENTNET_LITE0, TEXTURE_FCN, describe_network, find_network, has_weights
from lmfcn.networks.trunk import SMALLEST_SIDE, Trunk
from lmfcn.training.first_filters import start_first_filters
from lmfcn.training.frozen import describe, pixel_range
from lmfcn.util.tensor_files import FileError, read_tensors, write_tensors

KIND = "lmfcn features"
VERSION = 1

_N_PROBED, _N_MEASURED = 200, 32
_TEXTURE_FCN_BATCH = 16
_LARGEST_SIDE = 512
_SHORT = {EFFICIENTNET_LITE0: "the pretrained EfficientNet-Lite0", TEXTURE_FCN: "an untrained network"}


class Describer:
    """Turns images into features by a network that learns nothing from them.

    Use `for_files` or `of_file`. Features of an image do not depend on the other images that are described later.
    """

    def __init__(self, network: str, channels: int, pixels: str, device: str = "auto") -> None:
        self.network, self.channels, self.pixels = network, channels, pixels
        self.device = check_device(device)
        self.low, self.high = 0.0, 1.0
        self.fingerprint = ""
        self._trunk: Trunk | None = None
        self._untrained: TextureFCN | None = None

    @classmethod
    def for_files(cls, files: Sequence[str | Path], network: str = "auto", device: str = "auto") -> "Describer":
        """Return the describer for image files, made for the kind of pixels that most of them have.

        Parameters
        ----------
        files : sequence of paths
        network : {"auto", "efficientnet-lite0", "texture-fcn"}
            "auto" takes the pretrained network if its weights are installed and the images are large enough.
        device : str
        """
        chosen = [str(files[i]) for i in evenly_spaced(len(files), _N_PROBED)]
        infos = [(path, info) for path, info in zip(chosen, _probe(chosen), strict=True) if info is not None]
        if not infos:
            raise ValueError(f"None of the {len(chosen)} image files that were tried can be read; look at {chosen[0]}.")
        forms = [(_color_channels(info.channels), info.pixels) for _, info in infos]
        form = max(dict.fromkeys(forms), key=forms.count)
        alike = [(path, info) for (path, info), one in zip(infos, forms, strict=True) if one == form]
        smallest = min(min(info.height, info.width) for _, info in alike)
        if network == "auto":
            network = choose_describer(smallest)
        found = cls(network, *form, device=device)
        files = [path for path, _ in alike]
        found._start(lambda: found._collection([files[i] for i in evenly_spaced(len(files), _N_MEASURED)]))
        return found

    @classmethod
    def for_windows(cls, windows: np.ndarray, network: str = "auto", device: str = "auto") -> "Describer":
        """Return the describer for windows of one image, of which a few (n, height, width, channels) are given."""
        if network == "auto":
            network = choose_describer(min(windows.shape[1:3]))
        found = cls(network, windows.shape[3], pixel_kind(windows), device)
        found._start(lambda: ImageCollection(windows))
        return found

    def _start(self, measured: Callable[[], ImageCollection]) -> None:
        """Load the network; where it depends on a few of the images, measure these."""
        frozen = find_network(self.network)
        if frozen is None:
            self._untrained = _untrained(measured(), self.channels, self.device)
            self.fingerprint = describe_network(self._untrained)
            return
        if self.pixels != "uint8":
            images = measured()
            self.low, self.high = pixel_range(images, np.arange(len(images)), self.device)
        self._use(frozen)

    def _use(self, frozen: Any) -> None:
        self._trunk = Trunk(frozen, self.channels, self.low, self.high).to(self.device)
        self.fingerprint = describe_network(frozen)

    def _collection(self, files: list[str]) -> ImageCollection:
        color: Color = "rgb" if self.channels == 3 else "keep"
        found = ImageCollection(files, color=color).checked("skip")
        small = (found.sizes() <= _LARGEST_SIDE).all(axis=1)
        return found.subset(small) if small.any() else found.cropped(_LARGEST_SIDE)

    @property
    def batch_size(self) -> int:
        """How many images to describe at once."""
        return _TEXTURE_FCN_BATCH if self._trunk is None else self._trunk.encoding_batch

    @property
    def about(self) -> str:
        """Which network describes the images, in words."""
        return _SHORT[self.network]

    def read(self, path: str | Path) -> np.ndarray:
        """Return an image (height, width, channels) as the network takes it; raise ImageError with the reason."""
        image = read_image(path)
        try:
            image = to_color(image, "rgb") if self.channels == 3 else image
            if (image.shape[2], pixel_kind(image)) != (self.channels, self.pixels):
                found = describe_channels(image.shape[2], pixel_kind(image))
                most = describe_channels(self.channels, self.pixels)
                raise ValueError(f"has {found}, but most images have {most}")
            smallest = SMALLEST_FROM_SCRATCH if self._trunk is None else SMALLEST_SIDE
            check_smallest_side(image.shape[0], image.shape[1], smallest=smallest)
        except ValueError as error:
            raise ImageError(path, str(error).rstrip(".")) from error
        return image

    def describe(self, images: Sequence[np.ndarray]) -> np.ndarray:
        """Return the features (n, d) of images (height, width, channels) as `read` returns them."""
        found: list[Tensor] = []
        with torch.no_grad():
            for batch in _equal_shapes(images):
                if self._trunk is not None:
                    found.append(describe(self._trunk, batch, self.device)[0])
                elif self._untrained is not None:
                    found.append(encode(self._untrained, batch, self.device))
        return torch.cat(found).float().cpu().numpy()

    def to_file(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what `of_file` needs, as values and tensors of a file."""
        names = ("network", "channels", "pixels", "low", "high", "fingerprint")
        state = {} if self._untrained is None else self._untrained.state_dict()
        return {name: getattr(self, name) for name in names}, {f"network.{name}": t for name, t in state.items()}

    @classmethod
    def of_file(cls, values: dict[str, Any], tensors: dict[str, Tensor], device: str = "auto") -> "Describer":
        """Return the describer that an earlier session used; raise ValueError if its network is not there any more."""
        found = cls(values["network"], values["channels"], values["pixels"], device)
        found.low, found.high = values["low"], values["high"]
        frozen = find_network(found.network)
        if frozen is not None:
            found._use(frozen)
        else:
            found._untrained = _new_untrained(found.channels)
            prefix = "network."
            state = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
            found._untrained.load_state_dict(state)
            found._untrained.to(found.device).eval()
            found.fingerprint = values["fingerprint"]
        if found.fingerprint != values["fingerprint"]:
            raise ValueError("the network is another one now")
        return found


def choose_describer(smallest: int) -> str:
    """Return the network for images of which the smallest side is so many pixels: the pretrained one if it can be."""
    return EFFICIENTNET_LITE0 if has_weights() and smallest >= SMALLEST_SIDE else TEXTURE_FCN


def _probe(files: list[str]) -> list[Any]:
    found = map_in_threads(lambda number: probe_image(files[number]), range(len(files)))
    return [None if isinstance(info, ImageError) else info for info in found]


def _color_channels(channels: int) -> int:
    return 3 if channels in (1, 3) else channels


def _new_untrained(channels: int) -> TextureFCN:
    return TextureFCN(channels, pooling="all", generator=torch.Generator().manual_seed(0))


def _untrained(images: ImageCollection, channels: int, device: torch.device) -> TextureFCN:
    """Return an untrained network with first filters and batch-norm statistics of some images."""
    network = _new_untrained(channels)
    start_first_filters(network, "decorrelated", images)
    network.to(device)
    refresh_and_encode(network, images, device)
    return network


def _equal_shapes(images: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return consecutive images of equal shape as arrays (b, h, w, c)."""
    parts: list[list[np.ndarray]] = []
    for image in images:
        if parts and parts[-1][0].shape == image.shape:
            parts[-1].append(image)
        else:
            parts.append([image])
    return [np.stack(part) for part in parts]


@dataclass
class Features:
    """Features of the images of a folder, by the path of each, and the file that keeps them.

    A file that has changed (by its size or the time of its last change) is described again.

    Attributes
    ----------
    path : Path
        The file that keeps the features.
    describer : Describer or None
        None until the first image is described.
    rows : dict of str to array (d,)
        Features by path of the image.
    stamps : dict of str to (size, mtime in ns)
        What the file of each image was when it was described.
    """

    path: Path
    describer: Describer | None = None
    rows: dict[str, np.ndarray] = field(default_factory=dict)
    stamps: dict[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, device: str = "auto") -> "Features":
        """Read the features that an earlier session kept; an unusable file is the same as none."""
        try:
            values, tensors = read_tensors(path, KIND, VERSION)
            describer = Describer.of_file(values, tensors, device)
            rows = tensors["features"].numpy()
            files = [(str(name), (int(size), int(changed))) for name, size, changed in values["files"]]
        except (FileNotFoundError, FileError, ImportError, KeyError, TypeError, ValueError, RuntimeError):
            return cls(path)
        return cls(path, describer, {name: row for (name, _), row in zip(files, rows, strict=True)}, dict(files))

    def missing(self, root: Path, names: Sequence[str]) -> list[str]:
        """Return the images that have to be described: new ones, and those whose file has changed."""
        return [name for name in names if name not in self.rows or self.stamps[name] != _stamp(root / name)]

    def add(
        self, root: Path, names: Sequence[str], refused: Callable[[str, str], None] = lambda _, __: None
    ) -> list[str]:
        """Describe some images; return those that could be, and call `refused(name, reason)` for the others."""
        if self.describer is None:
            raise ValueError("Set the describer first.")
        read, images, stamps = [], [], []
        for name in names:
            try:
                stamp = _stamp(root / name)
                images.append(self.describer.read(root / name))
            except ImageError as error:
                refused(name, error.reason)
                continue
            read.append(name)
            stamps.append(stamp)
        if images:
            for name, stamp, row in zip(read, stamps, self.describer.describe(images), strict=True):
                self.rows[name], self.stamps[name] = row, stamp
        return read

    def matrix(self, names: Sequence[str]) -> np.ndarray:
        """Return the features (n, d) of described images."""
        return np.stack([self.rows[name] for name in names])

    def save(self) -> None:
        """Write the file, whole or not at all."""
        if self.describer is None or not self.rows:
            return
        values, tensors = self.describer.to_file()
        names = list(self.rows)
        values["files"] = [[name, *self.stamps[name]] for name in names]
        tensors["features"] = torch.from_numpy(self.matrix(names))
        write_tensors(self.path, KIND, VERSION, values, tensors)


def _stamp(path: Path) -> tuple[int, int]:
    """Return size and time of the last change of a file; zeros if it is not there."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns
