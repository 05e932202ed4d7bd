"""TextureModel: what is left after training, and how it predicts."""

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import torch
from torch import Tensor, nn

from lmfcn.compute.encode import encode, scale_pixels
from lmfcn.compute.resources import has_double, to_cpu_double
from lmfcn.data.arrays import check_images, check_pixel_format, pixel_kind
from lmfcn.data.framing import to_color
from lmfcn.data.image_form import ImageForm, as_collection, paths_of
from lmfcn.method.kernel_svm import Decision, balanced_accuracy, squared_distances
from lmfcn.method.network import TextureFCN
from lmfcn.networks.trunk import Trunk

if TYPE_CHECKING:
    from lmfcn.maps.texture_map import Mapper, TextureMap


@dataclass(frozen=True)
class HeldOut:
    """Predictions for held-out images, each from an SVM that was not fitted on that image.

    Attributes
    ----------
    positions : array (m,)
        Indices into X; validation images that were given beside X follow after those of X.
    numbers : array (m,)
        Their true classes.
    probabilities : array (m, n_classes)
    seen : bool
        Whether the networks had been trained on these images when they were predicted; the probabilities are then too
        good. (Refit epochs train on them later, after these predictions.)
    """

    positions: np.ndarray
    numbers: np.ndarray
    probabilities: np.ndarray
    seen: bool

    def __repr__(self) -> str:
        score = self.balanced_accuracy
        told = "" if score is None else f", balanced accuracy {score:.3f}"
        return f"HeldOut({len(self.numbers)} images{told}{', seen in training' if self.seen else ''})"

    @property
    def confusion(self) -> np.ndarray:
        """Number of images (n_classes, n_classes) by true class (row) and predicted class (column)."""
        n_classes = self.probabilities.shape[1]
        counts = np.zeros((n_classes, n_classes), dtype=int)
        np.add.at(counts, (self.numbers, self.probabilities.argmax(axis=1)), 1)
        return counts

    @property
    def balanced_accuracy(self) -> float | None:
        """Mean recall over the classes; None without images."""
        if len(self.numbers) == 0:
            return None
        predicted = torch.from_numpy(self.probabilities.argmax(axis=1))
        return balanced_accuracy(torch.from_numpy(self.numbers), predicted)


@dataclass(frozen=True)
class Calibration:
    """How scores become probabilities and prediction sets, fitted on held-out images.

    Attributes
    ----------
    inverse_temperature : float
        Factor on the scores before the softmax, the inverse of a temperature.
    true_probabilities : Tensor (m,)
        What each held-out image's own class was given, ascending; the basis of prediction sets.
    error : float or None
        Expected calibration error of the model's probabilities of held-out images; None if nothing could be held out.
    held_out : bool
        Whether the networks that the scores come from had not seen the images either. If they had, the probabilities
        are too confident.
    """

    inverse_temperature: float
    true_probabilities: Tensor
    error: float | None
    held_out: bool

    def with_scores(self, scores: Tensor, labels: Tensor) -> "Calibration":
        """Return the same for other scores (m, n_scores) of the held-out images."""
        true = sorted_true_probabilities(to_cpu_double(scores), labels.cpu(), self.inverse_temperature)
        return replace(self, true_probabilities=true)


@dataclass(frozen=True)
class TypicalDistances:
    """How far images of the known classes are from the centre of the nearest class; farther ones may be none of them.

    Attributes
    ----------
    centres : Tensor (n_classes, n_features)
        Mean of the images of each class that the model learnt from, in the space of the kernel.
    distances : Tensor (m,)
        Squared distance of each held-out image to the nearest centre, ascending, when neither the centres nor the
        space had been learnt from that image.
    """

    centres: Tensor
    distances: Tensor

    @classmethod
    def of(cls, centres: Tensor, distances: Tensor) -> "TypicalDistances":
        """Return them on the CPU, in the precision of a file."""
        return cls(centres.cpu().float(), to_cpu_double(distances).sort().values)

    def typicality(self, features: Tensor) -> np.ndarray:
        """Return the conformal p-value (n,) of images with features (n, n_features) in the space of the kernel.

        The share of held-out images, the new one among them, that are at least as far from their nearest centre.

        Examples
        --------
        >>> import torch
        >>> known = TypicalDistances(torch.zeros(1, 1), torch.tensor([1.0, 4.0, 9.0], dtype=torch.float64))
        >>> known.typicality(torch.tensor([[0.0], [1.5], [5.0]])).tolist()
        [1.0, 0.75, 0.25]
        """
        nearest = nearest_centre(to_cpu_double(features), self.centres)
        n_closer = torch.searchsorted(self.distances, nearest.contiguous())  # counts those that are truly closer
        n_held_out = len(self.distances)
        return ((n_held_out - n_closer + 1) / (n_held_out + 1)).numpy()

    def check_rate(self, false_alarms: float) -> None:
        """Refuse a rate of false alarms that is no share, or that so few held-out images cannot promise."""
        _check_share("false_alarms", false_alarms, ends=False)
        n_held_out = len(self.distances)
        if false_alarms * (n_held_out + 1) < 1:
            raise ValueError(
                f"With {n_held_out} held-out images the smallest share of false_alarms is {1 / (n_held_out + 1):.3f},"
                f" got {false_alarms!r}; ask for a larger one, or train with more validation images."
            )


def class_centres(features: Tensor, labels: Tensor) -> Tensor:
    """Return the mean (n_classes, k) of the features (n, k) of each class 0, 1, ..., in double precision."""
    features, labels = to_cpu_double(features), labels.cpu()
    sums = features.new_zeros(int(labels.max()) + 1, features.shape[1]).index_add_(0, labels, features)
    return sums / labels.bincount()[:, None].clamp(min=1)


def nearest_centre(features: Tensor, centres: Tensor) -> Tensor:
    """Return the squared distance (n,) of features (n, k) to the nearest of centres (c, k)."""
    return squared_distances(features, centres).min(dim=1).values


def probabilities(scores: Tensor, inverse_temperature: float) -> Tensor:
    """Return the probabilities (m, n_classes) that scores (m, n_scores) stand for.

    One factor for all scores keeps their order, so the most probable class is the predicted one.
    """
    return (to_logits(scores) * inverse_temperature).softmax(dim=1)


def least_probability(true_probabilities: Tensor, coverage: float) -> float:
    """Return how probable a class must be to get into a prediction set, by split-conformal prediction.

    The k-th largest of the m held-out values with k = ceil((m + 1) coverage): a new image that is exchangeable with
    the held-out ones then has its true class in the set with probability of at least `coverage`, if the same model
    gives its probabilities; nothing is guaranteed for a model that was trained further since. With too few held-out
    images for that, every class gets in.
    """
    n_images = len(true_probabilities)
    rank = math.ceil((n_images + 1) * coverage - 1e-9)
    return 0.0 if rank > n_images else float(true_probabilities.sort(descending=True).values[rank - 1])


def sorted_true_probabilities(scores: Tensor, labels: Tensor, inverse_temperature: float) -> Tensor:
    """Return the probabilities (m,) that scores (m, n_scores) give to the true classes (m,), ascending."""
    return probabilities(scores, inverse_temperature).gather(1, labels[:, None])[:, 0].sort().values


def to_logits(scores: Tensor) -> Tensor:
    """One score speaks for class 1 against class 0."""
    return torch.cat([torch.zeros_like(scores), scores], dim=-1) if scores.shape[-1] == 1 else scores


class Networks(nn.Module):
    """Several networks that look at the same images, or at the maps of the same trunk; their latents are joined.

    With a trunk, its features come first, if they are kept.
    """

    def __init__(self, networks: Sequence[TextureFCN], trunk: Trunk | None = None, *, keep_trunk: bool = True) -> None:
        super().__init__()
        self.members = nn.ModuleList(networks)
        self.trunk = trunk
        self.keep_trunk = keep_trunk and trunk is not None
        self.average: Callable[[Tensor], Tensor] = TextureFCN.average

    def forward(self, batch: Tensor) -> Tensor:
        """Return latents (b, n_latents), those of all networks."""
        parts = []
        if self.trunk is not None:
            stages = self.trunk(batch)
            if self.keep_trunk:
                parts.append(self.trunk.features(stages, self.average))
            batch = self.trunk.trained_maps(stages)
        return torch.cat([*parts, *(network(batch) for network in self.members)], dim=1)

    def maps(self, batch: Tensor, sides: tuple[int, int] | None = None) -> Iterator[Tensor]:
        """Go through the maps (b, c, h, w) whose means are the latents, in the order of the latents.

        A trunk brings the images to its own input size, or to the given `sides`.
        """
        if self.trunk is not None:
            stages = self.trunk(batch) if sides is None else self.trunk.stages_at(batch, sides)
            if self.keep_trunk:
                yield from self.trunk.feature_maps(stages, self.average)
            batch = self.trunk.trained_maps(stages)
        for network in self.members:
            yield from network.maps(batch, self.average)  # type: ignore[operator]

    @property
    def n_latents(self) -> int:
        """Length of the joined latents."""
        beside = self.trunk.n_features if self.trunk is not None and self.keep_trunk else 0
        return beside + sum(network.n_latents for network in self.members)  # type: ignore[misc]

    @property
    def encoding_batch(self) -> int | None:
        """How many images to encode at once, if there is a trunk to decide it."""
        return None if self.trunk is None else self.trunk.encoding_batch


class TextureModel(nn.Module):
    """A fitted model that needs nothing but itself.

    `LMFCNClassifier` predicts through the one in its `model_`; `lmfcn.load` reads one from a file.

    Parameters
    ----------
    networks : Networks, or sequence of TextureFCN
        One, or one per class; before them the untrained one, if it is kept. Behind a trunk they look at its maps.
    decision : Decision
        The RBF SVM on their latents.
    calibration : Calibration
    classes : array (n_classes,)
        Labels in the order of the class numbers.
    form : ImageForm
        What images must look like.
    record : dict, optional
        What else should stay with the model, as JSON can hold it: parameters, history, versions.
    typical : TypicalDistances, optional
        Tells images that belong to no class; earlier files, and models without held-out images, have none.
    """

    mean: Tensor
    std: Tensor
    whitening: Tensor | None
    support_latents: Tensor
    coefficients: Tensor
    intercepts: Tensor

    def __init__(
        self,
        networks: Networks | Sequence[TextureFCN],
        decision: Decision,
        calibration: Calibration,
        classes: np.ndarray,
        form: ImageForm,
        record: dict[str, Any] | None = None,
        typical: TypicalDistances | None = None,
    ) -> None:
        super().__init__()
        self.networks = networks if isinstance(networks, Networks) else Networks(networks)
        self.register_buffer("mean", decision.scale.mean)
        self.register_buffer("std", decision.scale.std)
        self.register_buffer("whitening", decision.scale.whitening)
        self.register_buffer("support_latents", decision.support_latents)
        self.register_buffer("coefficients", decision.coefficients)
        self.register_buffer("intercepts", decision.intercepts)
        self.gamma = decision.gamma
        self.calibration = calibration
        self.classes = classes
        self.form = form
        self.record = record if record is not None else {}
        self.typical = typical
        self.eval()

    def extra_repr(self) -> str:
        """Say what the model tells apart, for `print(model)`."""
        return f"classes={self.classes.tolist()}, n_support={len(self.support_latents)}, gamma={self.gamma:.4g}"

    def save(self, path: str | Path) -> None:
        """Write the model to one file, whole or not at all; `lmfcn.load` reads it."""
        from lmfcn.model_file import save  # which needs this module

        save(self, path)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: classes, accuracy, size, network, confusions."""
        from lmfcn.model_html import model_html

        return model_html(self)

    @property
    def decision(self) -> Decision:
        """The RBF decision on the latents, where the model computes."""
        return Decision.of_tensors(self.decision_tensors(), self.gamma, self.device)

    def decision_tensors(self) -> dict[str, Tensor]:
        """Return the parts of the decision by name, in the precision in which they were learnt."""
        return dict(self.named_buffers(recurse=False, remove_duplicate=False))

    @property
    def n_features(self) -> int:
        """Dimensions of the space in which the kernel measures."""
        return self.support_latents.shape[1]

    @property
    def members(self) -> list[TextureFCN]:
        """The networks in the order of their latents."""
        return list(self.networks.members)  # type: ignore[arg-type]

    @property
    def trunk(self) -> Trunk | None:
        """The frozen network in front of the others, if there is one."""
        return self.networks.trunk

    @property
    def device(self) -> torch.device:
        """Where the model computes; move it with `model.to("cuda")`, or see `copied_to`."""
        return next(self.networks.parameters()).device

    def copied_to(self, device: torch.device) -> "TextureModel":
        """Return a copy on a device; this model stays where it is."""
        return copy.deepcopy(self).to(device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "TextureModel":
        """Do what `to` and its like ask for; numbers in double precision do not go where there is none.

        They stay on the CPU, so that a model that comes back or is saved is the same, bit for bit.
        """
        if has_double(fn(torch.zeros(1)).device):
            return super()._apply(fn, recurse)
        return super()._apply(lambda tensor: tensor if tensor.dtype == torch.float64 else fn(tensor), recurse)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores (b, n_scores) of images (b, h, w, c) as they come: uint8, uint16 or float."""
        return self.decision.scores(self.networks(scale_pixels(images)))

    def latents(self, X: Any) -> Tensor:
        """Return the networks' latents (n, phi) of checked images, batch by batch."""
        return encode(self.networks, self.form.load(X), self.device)

    def transform(self, X: Any) -> np.ndarray:
        """Return the latents (n, n_features) in the space in which the kernel measures."""
        return self.decision.scale.apply(self.latents(X)).cpu().numpy()

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the score (n,) for the second of two classes, or those (n, n_classes) for each of several."""
        scores = self._scores(X).numpy()
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return calibrated probabilities (n, n_classes)."""
        return probabilities(self._scores(X), self.calibration.inverse_temperature).numpy()

    @overload
    def predict(self, X: Any, *, return_paths: Literal[False] = False) -> np.ndarray: ...

    @overload
    def predict(self, X: Any, *, return_paths: Literal[True]) -> tuple[np.ndarray, np.ndarray]: ...

    def predict(self, X: Any, *, return_paths: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Return the most probable label (n,) of every image.

        Parameters
        ----------
        X : array or torch tensor (n, height, width[, channels]), list of images, ImageCollection, path or list of paths
            Of a folder, all images at any depth are predicted, sorted by their path. Images of a list may differ in
            size.
        return_paths : bool, default=False
            Return the path (n,) of every image too; of an array "image 0", "image 1" and so on.

        Returns
        -------
        labels : array (n,)
        paths : array (n,) of str
            Only with `return_paths`.

        Examples
        --------
        >>> from lmfcn import LMFCNClassifier, make_gaussians
        >>> X, y = make_gaussians(n_per_class=10, size=16, random_state=0)
        >>> model = LMFCNClassifier(epochs=1, latent_dim=8, random_state=0).fit(X, y).model_
        >>> labels, paths = model.predict(X[:2], return_paths=True)
        >>> paths.tolist()
        ['image 0', 'image 1']
        """
        X = as_collection(X, labelled=False)
        labels = self.classes[self.predict_proba(X).argmax(axis=1)]
        return (labels, paths_of(X)) if return_paths else labels

    def predict_set(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Return for every image which classes (n, n_classes) cannot be ruled out.

        Parameters
        ----------
        X : images
        coverage : float
            The share of images whose true class shall be in their set.

        Notes
        -----
        Conformal prediction guarantees the coverage, on average over images that are exchangeable with the validation
        images, for a model that is not trained further after it was calibrated: one of `refit=False`, but for the
        choice of its epoch. The default model is trained further after that, on the validation images too, so that
        its coverage is approximate: usually above `coverage`, but not guaranteed. Measure it with `lmfcn evaluate`
        on new images.
        """
        least = self._least_probability(coverage)  # which may refuse, before any work is done
        return _sets(self.predict_proba(X), least)

    def sets_of(self, predicted: np.ndarray, coverage: float = 0.9) -> np.ndarray:
        """Return what `predict_set` does, for images whose probabilities (n, n_classes) are known already."""
        return _sets(predicted, self._least_probability(coverage))

    def predict_or_reject(
        self, X: Any, confidence: float = 0.9, rejected: Any = None, false_alarms: float | None = None
    ) -> np.ndarray:
        """Return labels (n,), or `rejected` for images that are doubtful or belong to no class.

        Parameters
        ----------
        X : images
        confidence : float, default=0.9
            Images whose most probable class has a lower probability are rejected; 0 rejects none for that.
        rejected : optional
            What stands for the label of a rejected image.
        false_alarms : float, optional
            Also reject images that look like none of the classes: those whose `typicality` is at most this share. Of
            images that do belong to a class about this share is rejected by mistake.
        """
        _check_share("confidence", confidence, ends=True)
        if false_alarms is not None:
            self.known_distances().check_rate(false_alarms)
        predicted, typicality = self.predict_with_typicality(X)
        labels = self.classes[predicted.argmax(axis=1)].astype(object)
        labels[predicted.max(axis=1) < confidence] = rejected
        if false_alarms is not None and typicality is not None:
            labels[typicality <= false_alarms] = rejected
        return labels

    def typicality(self, X: Any) -> np.ndarray:
        """Return how usual every image (n,) is among images of the known classes, from near 0 to 1.

        The share of held-out images that are at least as far from the centre of their nearest class. A small value says
        that the image may belong to none of the classes, whatever its probabilities are: these only compare the known
        classes. Of new images of the known classes at most a share *a* have a typicality of *a* or less, if they are
        exchangeable with the held-out images and the model was not trained further after it was calibrated
        (`refit=False`); for the default model this is approximate.
        """
        known = self.known_distances()
        return known.typicality(self.decision.scale.apply(self.latents(X)))

    def predict_with_typicality(self, X: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """Return what `predict_proba` and `typicality` do, at the cost of one; None if typicality is unknown."""
        latents, decision = self.latents(X), self.decision
        scores = to_cpu_double(decision.scores(latents))
        predicted = probabilities(scores, self.calibration.inverse_temperature).numpy()
        return predicted, None if self.typical is None else self.typical.typicality(decision.scale.apply(latents))

    def known_distances(self) -> TypicalDistances:
        """Return the distances that typicality is measured by; refuse a model that has none."""
        if self.typical is None:
            raise ValueError(
                "The model does not know how far images of its classes may be from them: it was fitted without"
                " validation images, or written by an earlier version; fit it again, with validation_fraction above 0."
            )
        return self.typical

    def map(self, image: Any, window: int | None = None, stride: int | None = None) -> "TextureMap":
        """Return what is where in one image.

        At every place of a window the map holds what `predict_proba` says about the window cut out of the image, up
        to rounding, but the networks go over the image once and not over every window. Behind a pretrained network
        this is an approximation, as that network sees what is around a window. For images that do not fit into
        memory there is `lmfcn map`.

        Parameters
        ----------
        image : array (height, width) or (height, width, channels)
            Pixels as the model was trained on.
        window : int, optional
            Side of the windows in pixels: by default that of the training images if they had been brought to a size,
            else 64, or more if the networks need it. For networks of the default depth a multiple of 4 times the
            largest factor by which they reduce images; behind a pretrained network at least 32.
        stride : int, optional
            Pixels from one window to the next, likewise: by default 16, or more if the networks need it.

        Examples
        --------
        >>> from lmfcn import LMFCNClassifier, make_gaussians
        >>> X, y = make_gaussians(n_per_class=10, size=32, random_state=0)
        >>> model = LMFCNClassifier(epochs=1, latent_dim=8, random_state=0).fit(X, y).model_
        >>> model.map(np.zeros((64, 96), dtype=np.uint8), window=32, stride=16).probabilities.shape
        (3, 5, 2)
        """
        pixels = np.asarray(image)
        if pixels.ndim not in (2, 3):
            raise ValueError(
                "image must be one array of the shape (height, width) or (height, width, channels), got"
                f" {pixels.shape if pixels.ndim else repr(image)}; for files there is `lmfcn map`."
            )
        pixels = to_color(check_images(pixels[None])[0], self.form.preprocessing.color)
        check_pixel_format((pixels.shape[2], pixel_kind(pixels)), self.form.channels, self.form.pixels)
        from lmfcn.maps.texture_map import TextureMap, scale_note

        if note := scale_note(self):
            warnings.warn(note, UserWarning, stacklevel=2)
        mapper = self.mapper()
        window = mapper.default_window(self.form.preprocessing.size) if window is None else window
        grid = mapper.grid(pixels.shape[:2], window, mapper.default_stride() if stride is None else stride)
        return TextureMap(mapper.map(pixels, grid), self.classes, grid)

    def extend(self, X_new: Any, y_new: Any, X: Any, y: Any = None, groups: Any = None) -> "TextureModel":
        """Return a model whose last SVM has also learnt from new images, of new classes too.

        The networks stay as they are, so that it takes as long as describing the images. This model does not change.

        Parameters
        ----------
        X_new : images, as for `predict`
            Images that the model has not been trained on. A folder must hold class folders.
        y_new : array-like (n_new,) or None
            Their labels; None takes those of a collection or folder.
        X, y : as X_new and y_new
            The images that the model was trained on: a model file holds only what it needs to predict.
        groups : array-like (n_new,), optional
            New images of one group are held out together.

        Returns
        -------
        TextureModel
            `record["extended"]` tells the balanced accuracy on new images, each held out once from the SVM, and
            whether a full training is due, which is also a `TrainingWarning`: there is a new class, many new images
            have come, or the model is worse on them. With 30 new images or more they calibrate the probabilities.
            It knows no `typicality`; a full training measures that again.

        Examples
        --------
        >>> from lmfcn import LMFCNClassifier, make_gaussians
        >>> X, y = make_gaussians(n_per_class=20, size=16, random_state=0)
        >>> model = LMFCNClassifier(epochs=1, latent_dim=8, random_state=0).fit(X, y).model_
        >>> X_new, y_new = make_gaussians(n_per_class=5, size=16, random_state=1)
        >>> model.extend(X_new, y_new, X, y).record["extended"]["n_new"]
        10
        """
        from lmfcn.training.extend import extend

        return extend(self, X_new, y_new, X, y, groups)

    def mapper(self) -> "Mapper":
        """Return what maps images, or parts of large ones."""
        from lmfcn.maps.texture_map import Mapper

        return Mapper.of(self)

    def _scores(self, X: Any) -> Tensor:
        return to_cpu_double(self.decision.scores(self.latents(X)))

    def _least_probability(self, coverage: float) -> float:
        """Return how probable a class must be to get into a set; refuse a model without validation images."""
        _check_share("coverage", coverage, ends=False)
        if not self.calibration.held_out:
            raise ValueError(
                "Prediction sets need validation images, but the model was fitted without any;"
                " fit it with validation_fraction above 0 or with validation=."
            )
        return least_probability(self.calibration.true_probabilities, coverage)


def _sets(predicted: np.ndarray, least: float) -> np.ndarray:
    sets = predicted >= least
    sets[np.arange(len(sets)), predicted.argmax(axis=1)] = True  # an empty set would help nobody
    return sets


def _check_share(name: str, value: Any, *, ends: bool) -> None:
    """Refuse anything but a number between 0 and 1, with or without the ends."""
    sound = not isinstance(value, bool) and isinstance(value, Real) and 0 <= float(value) <= 1
    if not sound or (value in (0, 1) and not ends):
        raise ValueError(f"{name} must be between 0 and 1, got {value!r}.")
