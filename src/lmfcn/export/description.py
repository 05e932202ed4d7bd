"""What an exported file says about itself, for programs that know nothing of lmfcn."""

import hashlib
from dataclasses import asdict
from typing import Any

from lmfcn import __version__
from lmfcn.algorithm.calibration import least_probability
from lmfcn.data.arrays import SMALLEST_SIDE
from lmfcn.export.agreement import Agreement
from lmfcn.inference.model import TextureModel

FORMAT_VERSION = 1
COVERAGES = (0.8, 0.9, 0.95, 0.99)


def describe(model: TextureModel, agreement: Agreement, tolerance: float) -> dict[str, Any]:
    """Return by name, as JSON can hold it, what users of the file need to know."""
    return {
        "format_version": FORMAT_VERSION,
        "lmfcn_version": __version__,
        "fingerprint": fingerprint(model),
        "classes": model.classes.tolist(),
        "preprocessing": _preprocessing(model),
        "prediction_sets": _prediction_sets(model),
        "tolerance": tolerance,
        "checked": asdict(agreement),
    }


def fingerprint(model: TextureModel) -> str:
    """Return 32 hexadecimal digits that depend on everything that a prediction depends on."""
    constants = (model.gamma, model.calibration.sharpness, model.classes.tolist(), model.form)
    digest = hashlib.blake2b(repr(constants).encode(), digest_size=16)
    for name, tensor in model.state_dict().items():
        digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _preprocessing(model: TextureModel) -> dict[str, Any]:
    """Say what has to be done to a file before it is given to the graph, which scales the pixels itself."""
    form = model.form
    return {
        "pixels": form.pixels,
        "channels": form.channels,
        "smallest_side": SMALLEST_SIDE if form.row_shape is None else 1,
        **asdict(form.frame),
        "row_shape": form.row_shape,
    }


def _prediction_sets(model: TextureModel) -> dict[str, float] | None:
    """Return for some coverages how probable a class must be not to be ruled out."""
    if not model.calibration.held_out:
        return None
    return {str(coverage): least_probability(model.calibration.true_probabilities, coverage) for coverage in COVERAGES}
