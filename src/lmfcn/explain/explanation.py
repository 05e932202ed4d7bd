"""Explain one prediction: its probabilities, the training images that decide it, and a map over the image."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from lmfcn.compute.resources import to_cpu_double
from lmfcn.explain.gallery import Gallery
from lmfcn.explain.score_map import ClassScore, ScoreMap, class_number, raw_latents, score_map, support_classes
from lmfcn.model import TextureModel, probabilities


@dataclass(frozen=True)
class Contributions:
    """Contributions of the support vectors to the decision value of one class for one image.

    The value is the sum of all weights and the intercept, without approximation.

    Attributes
    ----------
    label
        The class; its images have positive values.
    value : float
        The decision value; with two classes, that of the first class is the negative of that of the second.
    intercept : float
        Constant of the decision value.
    weights : array (n_support,)
        Coefficient times kernel value, in the order of the model's support vectors.
    """

    label: Any
    value: float
    intercept: float
    weights: np.ndarray

    def __repr__(self) -> str:
        return (
            f"Contributions({len(self.weights)} support vectors, decision value {self.value:+.3f} for {self.label!s})"
        )

    def supporting(self, top: int = 5) -> np.ndarray:
        """Return at most `top` support vectors with the largest positive weights, the largest first."""
        order = np.argsort(-self.weights, kind="stable")[:top]
        return order[self.weights[order] > 0]

    def opposing(self, top: int = 5) -> np.ndarray:
        """Return at most `top` support vectors with the largest negative weights, the largest first."""
        order = np.argsort(self.weights, kind="stable")[:top]
        return order[self.weights[order] < 0]

    def rest(self, top: int = 5) -> float:
        """Return the sum of the weights of all support vectors that are not in the two lists."""
        listed = np.concatenate([self.supporting(top), self.opposing(top)])
        return float(np.delete(self.weights, listed).sum())


def decompose_decision(model: TextureModel, latent: np.ndarray, label: Any) -> Contributions:
    """Decompose the decision value of a class into contributions of the support vectors.

    Parameters
    ----------
    model : TextureModel
    latent : array (phi,)
        Latent of one image from `model.transform`.
    label
        One of `model.classes`.

    Examples
    --------
    >>> from lmfcn import LMFCNClassifier, make_gaussians
    >>> X, y = make_gaussians(n_per_class=10, size=16, random_state=0)
    >>> model = LMFCNClassifier(epochs=1, latent_dim=4, random_state=0).fit(X, y).model_
    >>> found = decompose_decision(model, model.transform(X[:1])[0], label=1)
    >>> bool(abs(found.weights.sum() + found.intercept - model.decision_function(X[:1])[0]) < 1e-9)
    True
    """
    number = class_number(model.classes, label)
    score = ClassScore.of(model.decision, number)
    weights = score.weights(torch.as_tensor(latent)).numpy()
    return Contributions(model.classes[number], float(weights.sum()) + score.intercept, score.intercept, weights)


COVERAGE = 0.9
"""Target coverage of the prediction set, see `TextureModel.predict_set`."""


@dataclass(frozen=True)
class DecidingImage:
    """A training image that is a support vector, with its contribution (weight) to the decision value.

    Without a gallery it has no name and no picture. Its label is None if neither a gallery nor the coefficients of the
    SVM give it.
    """

    weight: float
    label: str | None
    name: str | None = None
    picture: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Explanation:
    """Explanation of one prediction.

    Attributes
    ----------
    label : str
        The predicted class.
    probabilities : dict of float
        By class, the most probable first.
    prediction_set : list of str or None
        Prediction set with a coverage of 0.9; None if the model was fitted without validation images.
    explained : str
        The class whose decision value is explained, by default the predicted class.
    value : float
        Its decision value: the sum of `intercept`, the weights of all deciding images, and `rest`.
    intercept : float
    supporting, opposing : list of DecidingImage
        Images with the largest positive and negative weights, the largest first.
    rest : float
        Sum of the weights of the `n_rest` other support vectors.
    n_rest : int
    map : ScoreMap
        The same value as a map over the pixels.
    latent : array (phi,)
    coordinates : tuple of two floats or None
        Position on the plane of the gallery.
    decision_values : dict of float
        By class, the largest first: that class is predicted. With more than two classes all of them may be negative.
    """

    label: str
    probabilities: dict[str, float]
    prediction_set: list[str] | None
    explained: str
    value: float
    intercept: float
    supporting: list[DecidingImage]
    opposing: list[DecidingImage]
    rest: float
    n_rest: int
    map: ScoreMap
    latent: np.ndarray
    coordinates: tuple[float, float] | None
    decision_values: dict[str, float]

    def __repr__(self) -> str:
        return (
            f"Explanation({self.label!r} with probability {self.probabilities[self.label]:.3f}; decision value"
            f" {self.value:+.3f} for {self.explained!r}, from {len(self.supporting)} images for it,"
            f" {len(self.opposing)} against it and {self.n_rest} others)"
        )

    @property
    def standing(self) -> str:
        """How the decision value compares with those of the other classes, in words."""
        others = {label: value for label, value in self.decision_values.items() if label != self.explained}
        label, value = next(iter(others.items()))
        if self.value < value:
            return f"Not the largest: {label} has {value:+.3f}. The class with the largest value is predicted."
        below_0 = " A value below 0 is no contradiction: no class stands out, and the largest counts."
        return f"The largest of all classes; {label} follows with {value:+.3f}.{below_0 if self.value < 0 else ''}"

    def as_dict(self) -> dict[str, Any]:
        """Return all values that JSON supports: everything except pictures, map and latent."""
        return {
            "label": self.label,
            "probabilities": self.probabilities,
            "prediction_set": self.prediction_set,
            "explained": self.explained,
            "value": self.value,
            "decision_values": self.decision_values,
            "intercept": self.intercept,
            "for": [_entry(image) for image in self.supporting],
            "against": [_entry(image) for image in self.opposing],
            "rest": {"weight": self.rest, "support_vectors": self.n_rest},
            "map": {
                "base": self.map.base,
                "border": self.map.border,
                "smallest": self.map.values.min(),
                "largest": self.map.values.max(),
            },
            "place": self.coordinates,
        }


def explain(
    model: TextureModel, image: np.ndarray, gallery: Gallery | None = None, label: Any = None, top: int = 5
) -> Explanation:
    """Explain the prediction for one image.

    Parameters
    ----------
    model : TextureModel
    image : array (height, width[, channels])
        In the form of the model; `model.form.load` converts files to it.
    gallery : Gallery, optional
        Gives the deciding images names and pictures.
    label : optional
        The class to explain; the predicted one by default.
    top : int
        Number of deciding images to list for and against the class.

    Examples
    --------
    >>> from lmfcn import LMFCNClassifier, make_gaussians
    >>> X, y = make_gaussians(n_per_class=10, size=16, random_state=0)
    >>> classifier = LMFCNClassifier(epochs=1, latent_dim=4, random_state=0).fit(X, y)
    >>> found = explain(classifier.model_, X[0], Gallery.of(classifier, X, y), top=2)
    >>> images = found.supporting + found.opposing
    >>> bool(abs(sum(image.weight for image in images) + found.rest + found.intercept - found.value) < 1e-9)
    True
    """
    if gallery is not None:
        gallery.check_belongs_to(model)
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}.")
    image = image[..., None] if image.ndim == 2 else image
    raw = raw_latents(model, image)
    latent = model.decision.scale.apply(raw).cpu().numpy()[0]
    scores = to_cpu_double(model.decision.scores(raw))
    predicted = probabilities(scores, model.calibration.inverse_temperature).numpy()
    classes = [str(name) for name in model.classes.tolist()]
    best = classes[int(predicted.argmax())]
    found = decompose_decision(model, latent, best if label is None else label)
    images = _list_images(model, gallery, found.weights)
    supporting, opposing = found.supporting(top).tolist(), found.opposing(top).tolist()
    return Explanation(
        label=best,
        probabilities={classes[i]: float(predicted[0, i]) for i in np.argsort(-predicted[0], kind="stable")},
        prediction_set=_prediction_set(model, predicted, classes),
        explained=str(found.label),
        value=found.value,
        intercept=found.intercept,
        supporting=[images[i] for i in supporting],
        opposing=[images[i] for i in opposing],
        rest=found.rest(top),
        n_rest=len(images) - len(supporting) - len(opposing),
        map=score_map(model, image, found.label, latent=latent),
        latent=latent,
        coordinates=None if gallery is None else _pair(gallery.projection.transform(latent[None])[0]),
        decision_values=_decision_values(scores[0].numpy(), classes),
    )


def _decision_values(scores: np.ndarray, classes: list[str]) -> dict[str, float]:
    """Return the decision value of each class, the largest first; two classes have one score, of the second."""
    values = np.array([-scores[0], scores[0]]) if len(classes) == 2 else scores
    return {classes[i]: float(values[i]) for i in np.argsort(-values, kind="stable")}


def _list_images(model: TextureModel, gallery: Gallery | None, weights: np.ndarray) -> list[DecidingImage]:
    """Return all support vectors with their labels, and with names and pictures from the gallery."""
    if gallery is None:
        labels = [None if i < 0 else str(model.classes[i]) for i in support_classes(model.decision).tolist()]
        return [DecidingImage(weight, label) for weight, label in zip(weights.tolist(), labels, strict=True)]
    gallery_labels = gallery.labels
    return [
        DecidingImage(weight, gallery_labels[i], gallery.names[i], gallery.pictures[i])
        for weight, i in zip(weights.tolist(), gallery.support.tolist(), strict=True)
    ]


def _prediction_set(model: TextureModel, predicted: np.ndarray, classes: list[str]) -> list[str] | None:
    if not model.calibration.held_out:
        return None
    (inside,) = model.sets_of(predicted, COVERAGE)
    return [name for name, is_inside in zip(classes, inside, strict=True) if is_inside]


def _entry(image: DecidingImage) -> dict[str, Any]:
    return {"weight": image.weight, "label": image.label, "name": image.name}


def _pair(values: np.ndarray) -> tuple[float, float]:
    return float(values[0]), float(values[1])
