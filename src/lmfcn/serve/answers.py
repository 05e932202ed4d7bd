"""From uploads to answers. Reads a model and never changes it, so several threads may answer at a time."""

from collections.abc import Sequence

import numpy as np

from lmfcn.data.images import ImageError
from lmfcn.data.pictures import as_address
from lmfcn.explain import explanation
from lmfcn.explain.explanation import COVERAGE, Explanation, explain
from lmfcn.explain.gallery import Gallery
from lmfcn.inference.model import TextureModel
from lmfcn.serve.limits import Limits
from lmfcn.serve.pictures import pictures_of
from lmfcn.serve.received import image_of
from lmfcn.serve.refusals import refuse_files
from lmfcn.serve.schema import Answer, DecidingImage, Neighbour, Reasons
from lmfcn.serve.uploads import Upload

N_NEIGHBOURS = 6


class Answerer:
    """Answers requests for one model, with or without the gallery of its training images."""

    def __init__(self, model: TextureModel, gallery: Gallery | None, limits: Limits) -> None:
        self.model = model
        self.gallery = gallery
        self.limits = limits
        self._classes = [str(label) for label in model.classes.tolist()]

    def answer_all(self, uploads: Sequence[Upload], *, reasons: bool) -> list[Answer]:
        """Answer for all files, or refuse all of them and name those that cannot be used."""
        answers: list[Answer] = []
        errors: list[ImageError] = []
        for upload in uploads:
            try:
                image = image_of(upload, self.model.form, self.limits)
            except ImageError as error:
                errors.append(error)
                continue
            if not errors:
                answers.append(self._with_reasons(upload.name, image) if reasons else self._plain(upload.name, image))
        if errors:
            raise refuse_files(errors)
        return answers

    def _plain(self, name: str, image: np.ndarray) -> Answer:
        predicted = self.model.predict_proba(image[None])
        order = np.argsort(-predicted[0], kind="stable").tolist()
        inside = self.model.sets_of(predicted, COVERAGE)[0] if self.model.calibration.held_out else None
        return Answer(
            name=name,
            label=self._classes[order[0]],
            probabilities={self._classes[i]: float(predicted[0, i]) for i in order},
            prediction_set=None if inside is None else [self._classes[i] for i in np.flatnonzero(inside)],
        )

    def _with_reasons(self, name: str, image: np.ndarray) -> Answer:
        found = explain(self.model, image, self.gallery)
        return Answer(
            name=name,
            label=found.label,
            probabilities=found.probabilities,
            prediction_set=found.prediction_set,
            reasons=self._reasons(found, image),
        )

    def _reasons(self, found: Explanation, image: np.ndarray) -> Reasons:
        picture, with_map = pictures_of(image, found.map.values)
        return Reasons(
            value=found.value,
            intercept=found.intercept,
            in_favour=[_shown(entry) for entry in found.for_it],
            against=[_shown(entry) for entry in found.against_it],
            rest=found.rest,
            n_rest=found.n_rest,
            picture=picture,
            map=with_map,
            place=None if found.place is None else list(found.place),
            neighbours=self._neighbours(found.latent),
        )

    def _neighbours(self, latent: np.ndarray) -> list[Neighbour]:
        if self.gallery is None:
            return []
        nearest = self.gallery.nearest(latent, N_NEIGHBOURS).tolist()
        distances = np.linalg.norm(self.gallery.latents[nearest] - latent, axis=1).tolist()
        return [Neighbour(image=image, distance=apart) for image, apart in zip(nearest, distances, strict=True)]


def _shown(image: explanation.DecidingImage) -> DecidingImage:
    picture = None if image.picture is None else as_address(image.picture, "jpeg")
    return DecidingImage(weight=image.weight, label=image.label, name=image.name, picture=picture)
