"""What a model file tells about the model."""

from typing import Any

from lmfcn.data.framing import Frame, describe_channels
from lmfcn.inference.model import TextureModel

_TOLD = (
    "data",
    "held_out",
    "test",
    "best_epochs",
    "interrupted",
    "C",
    "random_state",
    "seed",
    "parameters",
    "versions",
)


def describe_model(model: TextureModel) -> dict[str, Any]:
    """Return what a model is and where it comes from, as JSON can hold it.

    Models that were put together by hand may lack a part of it.

    Examples
    --------
    >>> from lmfcn import LMFCNClassifier, make_gaussians
    >>> X, y = make_gaussians(n_per_class=20, size=16, random_state=0)
    >>> told = describe_model(LMFCNClassifier(epochs=1, latent_dim=4, random_state=0).fit(X, y).model_)
    >>> told["classes"], told["images"]["channels"], told["data"]["n_train"]
    ([0, 1], 1, 32)
    """
    first, *_ = model.members
    frame = model.form.frame
    return {
        "classes": model.classes.tolist(),
        "images": {
            "channels": model.form.channels,
            "pixels": model.form.pixels,
            "color": frame.color,
            "fit": frame.fit,
            "size": None if frame.size is None else list(frame.size),
        },
        "networks": {
            "count": len(model.members),
            "widths": list(first.widths),
            "latent_dim": first.latent_dim,
            "n_weights": sum(weights.numel() for weights in model.parameters()),
        },
        "n_latents": len(model.mean),
        "n_features": model.n_features,
        "whitened": model.whitening is not None,
        "n_support": len(model.support_latents),
        "gamma": model.gamma,
        "calibration": {"error": model.calibration.error, "held_out": model.calibration.held_out},
        **{name: model.record[name] for name in _TOLD if name in model.record},
        "n_closing_epochs": max((len(history) - 1 for history in model.record.get("closing_histories", [])), default=0),
    }


def describe_images(channels: int, pixels: str, frame: Frame) -> str:
    """Say what images a model takes, and what it does to files."""
    words = describe_channels(channels, pixels)
    color = "" if frame.color == "keep" else f", turned {frame.color}"
    if frame.size is None:
        return f"{words}{color}, of any size from 8x8"
    done = "scaled to" if frame.fit == "resize" else "cut to the middle"
    return f"{words}{color}, {done} {frame.size[0]}x{frame.size[1]}"
