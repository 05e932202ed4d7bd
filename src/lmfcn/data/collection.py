"""Collections of image files, decoded when needed: the X of `fit` and `predict`."""

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lmfcn.data.arrays import RandomState, as_generator, check_image_list, check_images, vote_by_source
from lmfcn.data.framing import (
    SIZE_FITS,
    Color,
    Preprocessing,
    Size,
    SizeFit,
    as_pair,
    complete_preprocessing,
    describe_channels,
    describe_fit,
    describe_image,
    describe_preprocessing,
    tile_boxes,
)
from lmfcn.data.image_files import CollectionError, ImageError, ImageInfo, describe_errors
from lmfcn.data.image_store import CACHE_BYTES, ImageStore, map_in_threads
from lmfcn.util.checks import check_choice
from lmfcn.util.progress import item_progress

if TYPE_CHECKING:
    from lmfcn.data.leaks import Inspection

OnError = Literal["raise", "skip"]


class ImageCollection:
    """Images with labels, decoded when they are needed.

    Parameters
    ----------
    images : sequence of paths, array (n, height, width[, channels]), or list of arrays (height, width[, channels])
        Images of a list may differ in size.
    labels : array-like (n,), optional
    groups : array-like (n,), optional
        Images of one group (one patient, one slide, one source image) are never separated by a split.
    split : array-like (n,) of str, optional
        A given split, with part names such as "train", "val" and "test".
    color : {"keep", "grey", "rgb"}, default="keep"
        Colour that images are converted to; needed only if grey and colour images are mixed.
    cache_bytes : int
        Memory for decoded images; images that do not fit are decoded again when needed.

    Attributes
    ----------
    labels, groups, split : arrays (n,) or None
    left_out : list of ImageError
        Files that `checked(on_error="skip")` left out, with the reasons.

    Examples
    --------
    >>> import numpy as np
    >>> collection = ImageCollection(np.zeros((4, 16, 16), dtype=np.uint8), labels=["a", "a", "b", "b"])
    >>> len(collection), collection[0].shape
    (4, (16, 16, 1))
    >>> collection.subset([0, 2]).labels.tolist()
    ['a', 'b']
    """

    def __init__(
        self,
        images: Sequence[str | Path] | np.ndarray | Sequence[np.ndarray],
        labels: Any = None,
        groups: Any = None,
        split: Any = None,
        *,
        color: Color = "keep",
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        source = _check_source(images)
        self._store = ImageStore(source, Preprocessing(color), cache_bytes)
        self._sources = np.arange(len(source))
        self._boxes: np.ndarray | None = None
        self.labels = _check_length("labels", labels, len(source))
        self.groups = _check_length("groups", groups, len(source))
        self.split = _check_length("split", split, len(source))
        self.left_out: list[ImageError] = []
        self._size_numbers: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self._sources)

    @property
    def shape(self) -> tuple[int]:
        """The number of images as a tuple, which scikit-learn needs to split a collection."""
        return (len(self),)

    def __repr__(self) -> str:
        classes = "" if self.labels is None else f", {len(np.unique(self.labels))} classes"
        return f"ImageCollection({len(self)} images{classes})"

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self._image(position) for position in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        """Return one image for an integer, a smaller collection for any other index."""
        if isinstance(key, tuple) and len(key) == 2 and key[1] is Ellipsis:
            key = key[0]  # the form in which scikit-learn indexes
        if isinstance(key, int | np.integer):
            if not -len(self) <= key < len(self):
                raise IndexError(f"image {key} of a collection of {len(self)}")
            return self._image(int(key) % len(self))
        return self.subset(key)

    @property
    def paths(self) -> list[str]:
        """The path (or the number in an array) of the source image of each image."""
        return [self._store.name(source) for source in self._sources.tolist()]

    def file_of(self, position: int) -> str | None:
        """Return the path of the file of an image, or None for tiles, crops and images of an array."""
        whole = self._boxes is None and not self._store.holds_arrays
        return self._store.name(int(self._sources[position])) if whole else None

    @property
    def preprocessing(self) -> Preprocessing:
        """Colour and size that every image is converted to."""
        return self._store.preprocessing

    @property
    def is_whole(self) -> bool:
        """Whether the images are whole source images, not tiles or crops of them."""
        return self._boxes is None

    @property
    def sources(self) -> np.ndarray:
        """The number (n,) of the source image of each image; tiles of one image share it."""
        return self._sources

    def summary(self) -> "Inspection":
        """Return counts of classes, sizes, channels and groups, and problems, from the file headers alone."""
        from lmfcn.data.leaks import inspect  # imports this module

        return inspect(self, pixels=False)

    def subset(self, key: Any) -> "ImageCollection":
        """Return the collection of the images that an index array, a mask or a slice selects."""
        positions = np.arange(len(self))[key]
        smaller = copy.copy(self)
        smaller._sources = self._sources[positions]
        smaller._size_numbers = None
        smaller._boxes = None if self._boxes is None else self._boxes[positions]
        for name in ("labels", "groups", "split"):
            values = getattr(self, name)
            setattr(smaller, name, None if values is None else values[positions])
        return smaller

    def part(self, name: str) -> "ImageCollection":
        """Return the images of one part of the given split, such as "train"."""
        if self.split is None:
            raise ValueError("The collection has no given split; split it with lmfcn.data.splits.")
        if name not in self.split:
            raise ValueError(f"The split has the parts {sorted(set(self.split.tolist()))}, not {name!r}.")
        return self.subset(self.split == name)

    def resized(self, size: Size, fit: SizeFit = "stretch") -> "ImageCollection":
        """Return the collection with every image scaled to `size` (a side, or height and width).

        Images of another shape are stretched, or keep their proportions: "crop" covers `size` and cuts the middle,
        "pad" fits the whole image in and mirrors it at the borders.
        """
        check_choice("fit", fit, tuple(SIZE_FITS))
        return self.preprocessed(replace(self.preprocessing, fit=SIZE_FITS[fit], size=as_pair(size)))

    def describe_resizing(self) -> str | None:
        """Say what is done to the sizes of the images, such as "310 images of ... scaled and cut to 64x64"."""
        if self.preprocessing.size is None:
            return None
        sizes = self.source_sizes()
        areas = sizes.prod(axis=1)
        least, most = ("x".join(map(str, sizes[int(number)])) for number in (areas.argmin(), areas.argmax()))
        many = least if least == most else f"{least} to {most}"
        side = "x".join(map(str, self.preprocessing.size))
        return f"{len(self):,} images of {many} pixels (height x width) {describe_fit(self.preprocessing)} to {side}"

    def unstretched(self) -> "ImageCollection":
        """Return the collection with every image in its own shape, for pictures: resizing may have distorted it."""
        if not self.is_whole or self.preprocessing.fit != "resize":
            return self
        return self.preprocessed(replace(self.preprocessing, fit="keep", size=None))

    def preprocessed(self, preprocessing: Preprocessing) -> "ImageCollection":
        """Return the collection with every image converted to the colour and size of `preprocessing`."""
        if not self.is_whole:
            raise ValueError("Tiles and random crops cannot be resized; resize the images before you cut them.")
        return self._with_preprocessing(preprocessing)

    def preprocessed_for_model(self, preprocessing: Preprocessing) -> "ImageCollection":
        """Return the collection with its preprocessing completed by that of a model.

        Different colours or sizes are refused. Tiles and random crops cannot be resized: they must have the size of the
        model's training images, or be cut from images that were resized or cropped to it.
        """
        completed = complete_preprocessing(self.preprocessing, preprocessing)
        if not self.is_whole:
            self._check_tile_size(preprocessing)
            completed = replace(self.preprocessing, color=completed.color)
        return self if completed == self.preprocessing else self._with_preprocessing(completed)

    def cropped(self, size: Size, random_state: RandomState | Literal["centre"] = "centre") -> "ImageCollection":
        """Return the collection with `size` cut out of every image: the middle, or a random box drawn once."""
        if isinstance(random_state, str):
            return self.preprocessed(replace(self.preprocessing, fit="crop", size=as_pair(size)))
        random, (height, width) = as_generator(random_state), as_pair(size)
        boxes = []
        for position, (image_height, image_width) in enumerate(self.sizes()):
            if image_height < height or image_width < width:
                raise ImageError(
                    self.paths[position],
                    f"is {image_height}x{image_width} pixels, too small to cut out {height}x{width}",
                )
            top, left = random.integers(image_height - height + 1), random.integers(image_width - width + 1)
            boxes.append((top, left, height, width))
        return self._with_boxes(np.arange(len(self)), np.array(boxes))

    def tiled(self, size: Size, stride: Size | None = None) -> "ImageCollection":
        """Return the collection of all tiles of all images, adjacent or `stride` pixels apart.

        Tiles inherit the label. Their group is that of their image, or the image itself if there are no groups. `vote`
        combines predictions for tiles into predictions for images.
        """
        size, stride = as_pair(size), as_pair(size if stride is None else stride)
        positions: list[int] = []
        boxes: list[tuple[int, int, int, int]] = []
        for position, (height, width) in enumerate(self.sizes()):
            tiles = tile_boxes(height, width, size, stride)
            if not tiles:
                raise ImageError(self.paths[position], f"is {height}x{width} pixels, too small for tiles of {size}")
            positions += [position] * len(tiles)
            boxes += tiles
        tiled = self._with_boxes(np.array(positions), np.array(boxes))
        if self.groups is None:
            tiled.groups = tiled._sources
        return tiled

    def vote(self, values: Any) -> tuple[np.ndarray, np.ndarray]:
        """Combine values of tiles into one value per image: the mean of numbers, the most frequent of labels.

        Returns
        -------
        sources : array (n_images,)
            Numbers of the source images, ascending.
        values : array (n_images, ...)
        """
        return vote_by_source(self._sources, np.asarray(values))

    def checked(self, on_error: OnError = "raise", *, verbose: bool = False) -> "ImageCollection":
        """Decode every image once and report all files that cannot be used.

        Parameters
        ----------
        on_error : {"raise", "skip"}
            Raise a `CollectionError` that names all of them, or return the collection without them, with a
            warning and the list `left_out`.
        verbose : bool
            Show a progress bar.
        """
        results = self._map_images(self._shape_of, verbose=verbose)
        errors = {position: result for position, result in enumerate(results) if isinstance(result, ImageError)}
        if not errors:
            return self
        if on_error == "raise" or len(errors) == len(self):
            raise CollectionError(list(errors.values()))
        warnings.warn(f"Left out: {describe_errors(list(errors.values()))}", UserWarning, stacklevel=2)
        readable = self.subset(np.delete(np.arange(len(self)), list(errors)))
        readable.left_out = [*self.left_out, *errors.values()]
        return readable

    def to_array(self, *, verbose: bool = False) -> np.ndarray:
        """Return all images as one array (n, height, width, channels); they must agree in size and channels."""
        images = _raise_errors(self._map_images(self._image, verbose=verbose))
        return self._stack(images, np.arange(len(self)))

    def batch(self, positions: np.ndarray) -> np.ndarray:
        """Return some images of equal size as one array; images with equal `size_numbers` have equal size."""
        return self._stack([self._image(int(position)) for position in positions], positions)

    @property
    def size_numbers(self) -> np.ndarray:
        """A number (n,) for each image; images with the same number have the same size."""
        if self._size_numbers is None:
            self._size_numbers = np.unique(self.sizes(), axis=0, return_inverse=True)[1].reshape(-1)
        return self._size_numbers

    def pixel_format(self) -> tuple[int, str]:
        """Return channels and kind of pixels from the file headers; all images must agree."""
        sources = np.unique(self._sources).tolist()
        formats = _raise_errors(map_in_threads(self._store.pixel_format, sources))
        for source, found in zip(sources, formats, strict=True):
            if found != formats[0]:
                raise ValueError(
                    f"{self._store.name(sources[0])} has {describe_channels(*formats[0])}"
                    f" but {self._store.name(source)} has {describe_channels(*found)};"
                    " use color='grey' or 'rgb', or files of one kind."
                )
        return formats[0]

    def fits_in_memory(self) -> bool:
        """Return whether all images have one size and fit into the cache together."""
        sizes, (channels, _) = self.sizes(), self.pixel_format()
        n_values = int(sizes.prod(axis=1).sum()) * channels
        n_bytes = n_values * self._store.value_bytes(int(self._sources[0]))
        return n_bytes <= self._store.cache_bytes and len(np.unique(sizes, axis=0)) == 1

    def info(self, position: int) -> ImageInfo:
        """Return the information in the file header of an image."""
        return self._store.info(int(self._sources[position]))

    def sizes(self) -> np.ndarray:
        """Return height and width (n, 2) of every image, from the headers of the files."""
        if self._boxes is not None:
            return self._boxes[:, 2:]
        return np.array(_raise_errors(map_in_threads(self._store.size, self._sources.tolist())))

    def source_sizes(self) -> np.ndarray:
        """Return height and width (n, 2) of every image as its textures were recorded: before it is resized."""
        if not self.preprocessing.scales:
            return self.sizes()
        infos = [self._store.info(source) for source in self._sources.tolist()]
        return np.array([(info.height, info.width) for info in infos])

    def _map_images(self, function: Callable[[int], Any], *, verbose: bool) -> list[Any]:
        """Apply a function to all positions in parallel; `ImageError`s are among the results."""
        with item_progress("Reading images", len(self), visible=verbose) as advance:
            results = []
            for result in map_in_threads(function, range(len(self))):
                results.append(result)
                advance()
        return results

    def _image(self, position: int) -> np.ndarray:
        image = self._store.read(int(self._sources[position]))
        if self._boxes is None:
            return image
        top, left, height, width = self._boxes[position]
        return image[top : top + height, left : left + width].copy()  # a view would keep the whole image in memory

    def _shape_of(self, position: int) -> tuple[int, ...]:
        return self._image(position).shape

    def _stack(self, images: list[np.ndarray], positions: np.ndarray) -> np.ndarray:
        for image, position in zip(images, positions, strict=True):
            if image.shape != images[0].shape or image.dtype != images[0].dtype:
                first, this = self.paths[positions[0]], self.paths[position]
                raise ValueError(
                    f"{this} is {describe_image(image)}, but {first} is {describe_image(images[0])};"
                    " use resized or cropped for one size, color='grey' or 'rgb' for one kind of colour."
                )
        return np.stack(images)

    def _with_preprocessing(self, preprocessing: Preprocessing) -> "ImageCollection":
        other = copy.copy(self)
        other._size_numbers = None
        other._store = ImageStore(self._store.source, preprocessing, self._store.cache_bytes)
        return other

    def _check_tile_size(self, preprocessing: Preprocessing) -> None:
        """Refuse tiles of unresized images if their size differs from that of the model's training images."""
        size = tuple(self.sizes()[0].tolist())  # all boxes have one size
        if preprocessing.size is not None and self.preprocessing.size is None and size != preprocessing.size:
            raise ValueError(
                f"The collection has tiles or crops of {size[0]}x{size[1]} pixels, but the model was trained on images"
                f" {describe_preprocessing(preprocessing)}; cut them in that size, or give whole images, which the"
                " model resizes or crops itself."
            )

    def _with_boxes(self, positions: np.ndarray, boxes: np.ndarray) -> "ImageCollection":
        if self._boxes is not None:
            raise ValueError(
                "The collection holds tiles or crops, which cannot be cut again; cut the original collection."
            )
        cut = self.subset(positions)
        cut._boxes = boxes
        return cut


def _check_source(images: Any) -> list[str] | list[np.ndarray] | np.ndarray:
    """Return paths as text, or checked arrays."""
    if len(images) == 0:
        raise ValueError("A collection needs at least one image, got none.")
    if hasattr(images, "shape"):
        return check_images(images)
    return check_image_list(images) if hasattr(images[0], "shape") else [str(path) for path in images]


def _raise_errors(results: Iterable[Any]) -> list[Any]:
    """Return the results, or raise one error for all files that cannot be used."""
    results = list(results)
    if errors := [result for result in results if isinstance(result, ImageError)]:
        raise CollectionError(errors)
    return results


def _check_length(name: str, values: Any, expected: int) -> np.ndarray | None:
    if values is None:
        return None
    values = np.asarray(values)
    if values.shape != (expected,):
        raise ValueError(f"{name} must hold one entry per image, shape ({expected},), got shape {values.shape}.")
    return values
