"""The most doubtful labels of a training, as rows of a table."""

import numpy as np

from lmfcn.data.collections import ImageCollection
from lmfcn.experiments.own_training import OwnModel
from lmfcn.explain.audit import audit
from lmfcn.explain.audit_table import Audited, doubts

_SHOWN = 20


def doubtful_labels(trained: OwnModel) -> list[tuple[str, str, str, str]]:
    """Return file, label, what the image looks like, and why, for each label to doubt, the likeliest error first."""
    parts = [part for part in (trained.parts.train, trained.parts.validation) if part is not None]
    # Not those of `transform`, which may be whitened by the labels that are in doubt.
    latents = np.concatenate([trained.classifier.model_.latents(part).cpu().numpy() for part in parts])
    labels = np.concatenate([np.asarray(part.labels) for part in parts])
    found = audit(latents, labels, _groups(parts))
    audited = Audited(found, [path for part in parts for path in part.paths], "")
    return [
        (
            audited.names[position],
            str(found.classes[found.numbers[position]]),
            str(found.classes[found.likeliest[position]]),
            "; ".join(doubts(audited, position)),
        )
        for position in found.suspects.tolist()[:_SHOWN]
    ]


def _groups(parts: list[ImageCollection]) -> np.ndarray | None:
    groups = [part.groups for part in parts if part.groups is not None]
    return np.concatenate(groups) if len(groups) == len(parts) else None
