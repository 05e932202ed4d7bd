"""What the page and the JSON interface say about a model and its training images."""

from lmfcn import __version__
from lmfcn.explain.explanation import COVERAGE
from lmfcn.explain.gallery import Gallery
from lmfcn.inference.model import TextureModel
from lmfcn.serve.limits import Limits
from lmfcn.serve.schema import AllowedUploads, ModelCard, TrainingImages


def model_card(name: str, model: TextureModel, gallery: Gallery | None, limits: Limits) -> ModelCard:
    """Return what a model is and takes."""
    return ModelCard(
        name=name,
        classes=[str(label) for label in model.classes.tolist()],
        channels=model.form.channels,
        pixels=model.form.pixels,
        size=None if model.form.frame.size is None else list(model.form.frame.size),
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


def training_images(gallery: Gallery) -> TrainingImages:
    """Return the training images as points on the plane in which they differ most."""
    return TrainingImages(
        names=gallery.names,
        classes=gallery.classes,
        numbers=gallery.numbers.tolist(),
        support=gallery.support.tolist(),
        places=gallery.places.round(4).tolist(),
        shares=list(gallery.projection.shares),
    )
