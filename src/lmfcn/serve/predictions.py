"""Predict and explain uploaded images. The model is never changed, so several threads may use it."""

import io
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch

from lmfcn import __version__
from lmfcn.data.framing import resize_image, to_data_url, to_pillow, to_uint8
from lmfcn.data.image_files import ImageError, probe_content
from lmfcn.explain import explanation
from lmfcn.explain.explanation import COVERAGE, Explanation, explain
from lmfcn.explain.gallery import Gallery
from lmfcn.model import TextureModel
from lmfcn.report.overlay import in_shape, overlay
from lmfcn.serve.schema import AllowedUploads, DecidingImage, ModelCard, Neighbour, Prediction, Reasons, TrainingImages
from lmfcn.serve.uploads import Limits, Upload, decode_upload, refuse_files
from lmfcn.util.class_style import class_color, class_mark

LARGEST_SIDE = 512
"""Pixels: the largest allowed side of a picture."""
N_NEIGHBOURS = 6


class Predictor:
    """Predicts and explains images with one model, with or without the gallery of its training images.

    Its name and the SHA-256 of its file tell it from other models.
    """

    def __init__(
        self, model: TextureModel, gallery: Gallery | None, limits: Limits, name: str, fingerprint: str
    ) -> None:
        self.model = model
        self.gallery = gallery
        self.limits = limits
        self.name = name
        self.fingerprint = fingerprint
        self._classes = [str(label) for label in model.classes.tolist()]

    @cached_property
    def training_images(self) -> TrainingImages | None:
        """The images of the gallery as points on a plane."""
        return None if self.gallery is None else describe_gallery(self.gallery, self.fingerprint)

    def predict_all(self, uploads: Sequence[Upload], *, reasons: bool) -> list[Prediction]:
        """Return predictions for all files; if some cannot be used, refuse the request and name them."""
        predictions: list[Prediction] = []
        errors: list[ImageError] = []
        for upload in uploads:
            try:
                image = decode_upload(upload, self.model.form, self.limits)
            except ImageError as error:
                errors.append(error)
                continue
            if not errors:
                found = self._explain(upload, image) if reasons else self._predict(upload.name, image)
                predictions.append(found)
        if errors:
            raise refuse_files(errors)
        return predictions

    def _predict(self, name: str, image: np.ndarray) -> Prediction:
        predicted, typicality = self.model.predict_with_typicality(image[None])
        order = np.argsort(-predicted[0], kind="stable").tolist()
        in_set = self.model.sets_of(predicted, COVERAGE)[0] if self.model.calibration.held_out else None
        return Prediction(
            name=name,
            label=self._classes[order[0]],
            probabilities={self._classes[i]: float(predicted[0, i]) for i in order},
            prediction_set=None if in_set is None else [self._classes[i] for i in np.flatnonzero(in_set)],
            typicality=None if typicality is None else float(typicality[0]),
            fingerprint=self.fingerprint,
        )

    def _explain(self, upload: Upload, image: np.ndarray) -> Prediction:
        found = explain(self.model, image, self.gallery)
        return Prediction(
            name=upload.name,
            label=found.label,
            probabilities=found.probabilities,
            prediction_set=found.prediction_set,
            typicality=self._typicality(found.latent),
            fingerprint=self.fingerprint,
            reasons=self._reasons(found, image, self._own_shape(upload)),
        )

    def _typicality(self, latent: np.ndarray) -> float | None:
        if self.model.typical is None:
            return None
        return float(self.model.typical.typicality(torch.from_numpy(latent[None]))[0])

    def _own_shape(self, upload: Upload) -> tuple[int, int] | None:
        """Return height and width of the file, if the model resizes images, which changes their shape."""
        if self.model.form.preprocessing.fit != "resize":
            return None
        header = probe_content(upload.content, upload.name, max_pixels=self.limits.pixels)
        return header.height, header.width

    def _reasons(self, found: Explanation, image: np.ndarray, shape: tuple[int, int] | None) -> Reasons:
        picture, with_map = make_pictures(*in_shape(image, found.map.values, shape))
        return Reasons(
            value=found.value,
            standing=found.standing,
            intercept=found.intercept,
            in_favour=[_to_schema(entry) for entry in found.supporting],
            against=[_to_schema(entry) for entry in found.opposing],
            rest=found.rest,
            n_rest=found.n_rest,
            picture=picture,
            map=with_map,
            place=None if found.coordinates is None else list(found.coordinates),
            neighbours=self._neighbours(found.latent),
        )

    def _neighbours(self, latent: np.ndarray) -> list[Neighbour]:
        if self.gallery is None:
            return []
        nearest = self.gallery.nearest(latent, N_NEIGHBOURS).tolist()
        distances = np.linalg.norm(self.gallery.latents[nearest] - latent, axis=1).tolist()
        return [Neighbour(image=image, distance=distance) for image, distance in zip(nearest, distances, strict=True)]


def _to_schema(image: explanation.DecidingImage) -> DecidingImage:
    picture = None if image.picture is None else to_data_url(image.picture, "jpeg")
    return DecidingImage(weight=image.weight, label=image.label, name=image.name, picture=picture)


def describe_model(predictor: Predictor) -> ModelCard:
    """Return what a client needs to know about a model."""
    model, gallery, limits = predictor.model, predictor.gallery, predictor.limits
    return ModelCard(
        name=predictor.name,
        fingerprint=predictor.fingerprint,
        classes=[str(label) for label in model.classes.tolist()],
        channels=model.form.channels,
        pixels=model.form.pixels,
        size=None if model.form.preprocessing.size is None else list(model.form.preprocessing.size),
        coverage=COVERAGE if model.calibration.held_out else None,
        n_support=len(model.support_latents),
        n_weights=sum(weights.numel() for weights in model.parameters()),
        n_gallery=None if gallery is None else len(gallery),
        version=__version__,
        limits=AllowedUploads(
            files=limits.files,
            file_bytes=limits.file_bytes,
            request_bytes=limits.request_bytes,
            pixels=limits.pixels,
        ),
    )


def describe_gallery(gallery: Gallery, fingerprint: str) -> TrainingImages:
    """Return the training images as points on the plane of their largest variance."""
    return TrainingImages(
        fingerprint=fingerprint,
        names=gallery.names,
        classes=gallery.classes,
        colors=[class_color(number) for number in range(len(gallery.classes))],
        marks=[class_mark(number) for number in range(len(gallery.classes))],
        numbers=gallery.numbers.tolist(),
        support=gallery.support.tolist(),
        places=gallery.coordinates.round(4).tolist(),
        shares=list(gallery.projection.shares),
    )


def make_pictures(image: np.ndarray, values: np.ndarray) -> tuple[str, str]:
    """Return two pictures as data URLs: an image, and the same with a map over it.

    Parameters
    ----------
    image : array (height, width, channels)
    values : array (height, width)

    Examples
    --------
    >>> picture, with_map = make_pictures(np.zeros((16, 16, 1), dtype=np.uint8), np.ones((16, 16)))
    >>> picture[:30]
    'data:image/png;base64,iVBORw0K'
    """
    scale = LARGEST_SIDE / max(values.shape)
    if scale < 1:
        size = (max(1, round(scale * values.shape[0])), max(1, round(scale * values.shape[1])))
        values = resize_image(values.astype(np.float32)[..., None], size)[..., 0]
        image = resize_image(to_uint8(image), size)
    buffer = io.BytesIO()
    to_pillow(to_uint8(image)).save(buffer, format="PNG")
    return to_data_url(buffer.getvalue(), "png"), to_data_url(overlay(image, values), "png")
