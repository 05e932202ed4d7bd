"""Predict with an exported model where there is no lmfcn and no torch: onnxruntime, numpy and Pillow alone.

python examples/onnx_only.py model.onnx image.png other.tif many_channels.npy

The file says in its metadata what an image must look like; everything behind that is in the graph.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageOps, TiffImagePlugin

GREY_WEIGHTS = np.array([0.299, 0.587, 0.114], dtype=np.float32)
DEPTHS = {"L": np.uint8, "RGB": np.uint8, "I;16": np.uint16, "I;16L": np.uint16, "I;16B": np.uint16, "F": np.float32}
BITS_PER_SAMPLE = 258


class Model:
    """An ONNX file that `lmfcn export` wrote."""

    def __init__(self, path: str | Path) -> None:
        self.session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        metadata = self.session.get_modelmeta().custom_metadata_map
        if metadata.get("format_version") != "1":
            raise ValueError(f"{path} is not a file of `lmfcn export` in format 1.")
        self.classes = json.loads(metadata["classes"])
        self.preprocessing = json.loads(metadata["preprocessing"])

    def predict(self, image: np.ndarray) -> tuple[object, np.ndarray, np.ndarray]:
        """Return label, scores (n_scores,) and probabilities (n_classes,) of an image (height, width, channels)."""
        outputs = self.session.run(["label", "scores", "probabilities"], {"images": image[None]})
        label, scores, probabilities = (output[0] for output in outputs)
        return label, scores, probabilities

    def prepare(self, image: np.ndarray) -> np.ndarray:
        """Return an image (height, width, channels) as the model was trained on them, or say why it cannot be used."""
        wanted = self.preprocessing
        image = fit(to_color(image, wanted["color"]), wanted["fit"], wanted["size"])
        pixels = "float" if image.dtype.kind == "f" else str(image.dtype)
        if (image.shape[2], pixels) != (wanted["channels"], wanted["pixels"]):
            form = f"{wanted['channels']} channel(s) of {wanted['pixels']}"
            raise ValueError(f"has {image.shape[2]} channel(s) of {pixels}, but the model takes {form}")
        if min(image.shape[:2]) < wanted["smallest_side"]:
            raise ValueError(f"is smaller than {wanted['smallest_side']}x{wanted['smallest_side']} pixels")
        return np.ascontiguousarray(image, dtype=np.float32 if pixels == "float" else None)


def read_image(path: str | Path) -> np.ndarray:
    """Read an image (height, width, channels) at its own depth: by Pillow, or an array from an .npy file."""
    if Path(path).suffix == ".npy":
        image = np.load(path, allow_pickle=False)
        if image.ndim not in (2, 3):
            raise ValueError(
                f"must hold an array (height, width) or (height, width, channels), got shape {image.shape}"
            )
        image = image.astype(image.dtype.newbyteorder("="), copy=False)
    else:
        with Image.open(path) as picture:
            check_depth(path, picture)
            image = to_array(ImageOps.exif_transpose(picture))
    return image[..., None] if image.ndim == 2 else image


def check_depth(path: str | Path, picture: Image.Image) -> None:
    """Refuse colours of more than 8 bits, which Pillow would cut down to 8 without a word."""
    if picture.format == "PNG":
        header = Path(path).read_bytes()[:26]
        deep = header[24] == 16 and header[25] in (2, 4, 6)
    else:
        is_tiff = isinstance(picture, TiffImagePlugin.TiffImageFile)
        bits = picture.tag_v2.get(BITS_PER_SAMPLE, (8,)) if is_tiff else (8,)
        deep = len(bits) > 1 and max(bits) > 8
    if deep:
        raise ValueError("has 16 bits per colour, which Pillow cannot read; save it as .npy")


def to_array(picture: Image.Image) -> np.ndarray:
    """Return the pixels of a picture; palettes and other colour models become RGB, transparency is dropped."""
    if picture.mode == "I":
        values = np.asarray(picture)
        if values.min() < 0 or values.max() > 65535:
            raise ValueError("holds 32-bit integers; 8 bits, 16 bits and floating point can be used")
        return values.astype(np.uint16)
    if picture.mode == "P" and "transparency" in picture.info:
        picture = picture.convert("RGBA")
    if picture.mode not in DEPTHS:
        picture = picture.convert("L" if picture.mode in ("1", "LA", "La") else "RGB")
    return np.asarray(picture).astype(DEPTHS[picture.mode])


def to_color(image: np.ndarray, color: str) -> np.ndarray:
    """Return a grey or RGB version of a grey or RGB image, if the model asks for one."""
    if color == "rgb" and image.shape[2] == 1:
        return np.repeat(image, 3, axis=2)
    if color == "grey" and image.shape[2] == 3:
        grey = (image.astype(np.float32) @ GREY_WEIGHTS)[..., None]
        return grey if image.dtype.kind == "f" else np.rint(grey).astype(image.dtype)
    return image


def fit(image: np.ndarray, how: str, size: list[int] | None) -> np.ndarray:
    """Return an image that has height and width in the way that the model asks for, if it does."""
    if size is None or image.shape[:2] == tuple(size):
        return image
    if how == "resize":
        return resize(image, size[0], size[1])
    if how == "scale-crop":
        return scale_and_crop(image, size)
    if how == "scale-pad":
        return scale_and_pad(image, size)
    top, left = ((side - wanted) // 2 for side, wanted in zip(image.shape, size, strict=False))
    if min(top, left) < 0:
        raise ValueError(f"is too small to cut out {size[0]}x{size[1]} pixels")
    return image[top : top + size[0], left : left + size[1]]


def scale_and_crop(image: np.ndarray, size: list[int]) -> np.ndarray:
    """Scale so that height and width are covered, and cut the middle."""
    height, width = image.shape[:2]
    factor = min(height / size[0], width / size[1])
    rows, columns = size[0] * factor, size[1] * factor
    top, left = (height - rows) / 2, (width - columns) / 2
    return resize(image, size[0], size[1], (left, top, min(width, left + columns), min(height, top + rows)))


def scale_and_pad(image: np.ndarray, size: list[int]) -> np.ndarray:
    """Scale so that the whole image fits in, and mirror it at the borders."""
    height, width = image.shape[:2]
    factor = min(size[0] / height, size[1] / width)
    small = resize(image, max(1, round(height * factor)), max(1, round(width * factor)))
    missing = [full - side for full, side in zip(size, small.shape[:2], strict=True)]
    return np.pad(small, (*((number // 2, number - number // 2) for number in missing), (0, 0)), mode="symmetric")


def resize(
    image: np.ndarray, height: int, width: int, box: tuple[float, float, float, float] | None = None
) -> np.ndarray:
    """Scale with Pillow's averaging filter: 8-bit grey and RGB as they are, everything else as floating point.

    With a `box` (left, top, right, bottom), only this part of the image.
    """
    if image.shape[:2] == (height, width):
        return image
    direct = image.dtype == np.uint8 and image.shape[2] in (1, 3)
    planes = np.moveaxis(image if direct else image.astype(np.float32), 2, 0)
    scaled = [
        np.asarray(Image.fromarray(np.ascontiguousarray(plane)).resize((width, height), Image.Resampling.BILINEAR, box))
        for plane in planes
    ]
    stacked = np.stack(scaled, axis=2)
    return stacked if stacked.dtype == image.dtype else np.rint(stacked).astype(image.dtype)


def main(model_path: str, *image_paths: str) -> None:
    """Print label and probability of every image."""
    try:
        model = Model(model_path)
    except Exception as error:  # onnxruntime has many kinds of its own
        sys.exit(f"{model_path} cannot be used: {error}")
    for path in image_paths:
        try:
            label, _, probabilities = model.predict(model.prepare(read_image(path)))
        except (ValueError, OSError, EOFError) as error:
            sys.exit(f"{path}: {getattr(error, 'strerror', None) or error}.")  # without the number and the name again
        print(f"{path}\t{label}\t{probabilities.max():.4f}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
