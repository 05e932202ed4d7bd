"""A model card in Markdown with the header of Hugging Face, from what a model file knows."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from lmfcn.model import TextureModel
from lmfcn.model_file import describe_images, describe_model
from lmfcn.predict.evaluation import Estimate, balanced_recall

_FEW = 20
"""Training images of a class below which the card warns."""
_MOST_LISTED = 40


def model_card(model: TextureModel, name: str, *, licence: str | None = None) -> str:
    """Return the card of a model; what its file does not know is left out, or said to be unknown.

    Parameters
    ----------
    model : TextureModel
    name : str
        Name of the model, such as that of its file.
    licence : str, optional
        The licence under which you publish it, as Hugging Face names it, such as "cc-by-4.0".

    Examples
    --------
    >>> from lmfcn import LMFCNClassifier, make_gaussians
    >>> X, y = make_gaussians(n_per_class=20, size=16, random_state=0)
    >>> card = model_card(LMFCNClassifier(epochs=1, latent_dim=4, random_state=0).fit(X, y).model_, "wood")
    >>> card.splitlines()[:2]
    ['---', 'library_name: lmfcn']
    """
    told = describe_model(model)
    sections = {
        "Use": list(_use(model, name)),
        "Data": list(_data(told)),
        "Results": list(_results(told)),
        "Probabilities": list(_probabilities(model, told)),
        "Network": list(_network(told)),
        "Limits": list(_limits(model, told)),
        "Training": list(_training(told)),
    }
    body = [f"# {name}", "", f"A texture classifier for {describe_images(model.form)}, made with lmfcn."]
    for title, lines in sections.items():
        body += ["", f"## {title}", "", *lines] if lines else []
    return "\n".join([*_header(told, name, licence), "", *body, ""])


def _header(told: Mapping[str, Any], name: str, licence: str | None) -> list[str]:
    """Return the metadata; texts are quoted as in JSON, which YAML understands."""
    lines = ["---", "library_name: lmfcn", "pipeline_tag: image-classification"]
    lines += [] if licence is None else [f"license: {json.dumps(licence)}"]
    lines += ["tags:", "- texture", "- lmfcn", "- safetensors"]
    estimates = list(_estimates(told))
    if not estimates:
        return [*lines, "---"]
    lines += ["metrics:", "- balanced_accuracy", "model-index:", f"- name: {json.dumps(name)}", "  results:"]
    for what, estimate in estimates:
        lines += [
            "  - task:",
            "      type: image-classification",
            "    dataset:",
            f"      name: {json.dumps(f'own images, {what}')}",
            "      type: own-images",
            "    metrics:",
            "    - type: balanced_accuracy",
            f"      name: {json.dumps(f'Balanced accuracy, {what}')}",
            f"      value: {estimate.value:.4f}",
        ]
    return [*lines, "---"]


def _estimates(told: Mapping[str, Any]) -> Iterator[tuple[str, Estimate]]:
    """Yield what an accuracy was measured on, and the accuracy, the most trustworthy first."""
    if test := told.get("test"):
        yield "test images", Estimate(**test["balanced_accuracy"])
    held_out = told.get("held_out") or {}
    if held_out.get("balanced_accuracy") is None:
        return
    what = "cross-validated training images" if held_out["seen_in_training"] else "held-out images"
    if interval := held_out.get("interval"):
        yield what, Estimate(**interval)
    elif counts := held_out.get("confusion"):
        yield what, _estimate_of(np.array(counts))
    else:
        value = held_out["balanced_accuracy"]
        yield what, Estimate(value, float("nan"), float("nan"), held_out["n_images"])


def _estimate_of(counts: np.ndarray) -> Estimate:
    """Return the balanced accuracy of a confusion matrix with its interval, as if all images were independent."""
    numbers = np.repeat(np.arange(len(counts)), counts.sum(axis=1))
    predicted = np.concatenate([np.repeat(np.arange(len(counts)), row) for row in counts])
    return balanced_recall(numbers, numbers == predicted)[0]


def _use(model: TextureModel, name: str) -> Iterator[str]:
    yield from ("```python", "import lmfcn", "", f'model = lmfcn.load("{name}")')
    yield from (
        'model.predict("new_images")        # labels',
        'model.predict_proba("new_images")  # probabilities',
        "```",
    )
    yield ""
    yield f"On the command line: `lmfcn predict {name} new_images`. Loading the file executes no code."
    if model.typical is not None:
        yield "Images that look like none of the classes: `lmfcn predict --none-of-these 0.05`."


def _data(told: Mapping[str, Any]) -> Iterator[str]:
    data = told.get("data")
    if not data:
        yield f"Classes: {_listed(told['classes'])}. The file does not say what the model was trained on."
        return
    counts = list(data["classes"].items())
    yield f"{data['n_train']} training and {data['n_validation']} validation images of {len(counts)} classes."
    yield ""
    yield from ("| class | training images |", "|---|---|")
    yield from (f"| {_cell(label)} | {count} |" for label, count in counts[:_MOST_LISTED])
    if len(counts) > _MOST_LISTED:
        yield f"| and {len(counts) - _MOST_LISTED} more | |"
    if sizes := told.get("image_sizes"):
        smallest, largest = ("x".join(map(str, sizes[name])) for name in ("smallest", "largest"))
        yield from ("", f"Sizes: {smallest}" + ("" if smallest == largest else f" to {largest}") + " pixels.")
    yield from ("", f"Fingerprint of the training data: `{data['fingerprint']}`.")


def _results(told: Mapping[str, Any]) -> Iterator[str]:
    estimates = list(_estimates(told))
    if not estimates:
        yield "Nothing was held out, and no test is recorded: the accuracy of this model is unknown."
        return
    yield from ("| measured on | images | balanced accuracy | 95 % interval |", "|---|---|---|---|")
    for what, estimate in estimates:
        interval = "unknown" if np.isnan(estimate.low) else f"{estimate.low:.3f} to {estimate.high:.3f}"
        yield f"| {what} | {estimate.n} | {estimate.value:.3f} | {interval} |"
    held_out = told.get("held_out") or {}
    if held_out.get("seen_in_training"):
        yield from ("", "The networks had been trained on these images: expect less on new ones.")
    elif held_out:
        yield ""
        yield "Held-out images selected the epoch, and the model learnt from them after it was measured."


def _probabilities(model: TextureModel, told: Mapping[str, Any]) -> Iterator[str]:
    error = told["calibration"]["error"]
    if error is None:
        yield "Nothing was held out to calibrate with: probabilities are too confident."
        return
    yield f"Expected calibration error on held-out images: {error:.3f}."
    if model.calibration.held_out:
        yield "Prediction sets and a reject option are available; their coverage is approximate for a refitted model."


def _network(told: Mapping[str, Any]) -> Iterator[str]:
    trunk, networks = told["trunk"], told["networks"]
    if trunk is None:
        yield "Trained from scratch: the file holds no weights of others."
    else:
        licence = trunk["licence"] or "unknown"
        yield f"On the maps of {trunk['name']}, which is frozen; licence of its weights: {licence}."
    features = f"{told['n_features']} features with {told['n_support']} support vectors"
    yield f"{networks['n_weights']:,} weights in all; an RBF SVM on {features} decides."


def _limits(model: TextureModel, told: Mapping[str, Any]) -> Iterator[str]:
    yield f"- It names one of its classes for every image: {_listed(told['classes'])}."
    if model.typical is None:
        yield "- It cannot tell images that belong to none of them."
    else:
        yield f"- It can tell images that look like none of them, measured on {len(model.typical.distances)} images."
    yield "- Images must show the texture at the magnification, light and focus of the training images."
    few = [label for label, count in ((told.get("data") or {}).get("classes") or {}).items() if count < _FEW]
    if few:
        yield f"- Fewer than {_FEW} training images: {_listed(few)}."
    if told.get("interrupted"):
        yield "- The training was interrupted before its last epoch."
    yield "- To be added by the author: where the images come from, and what they do not show."


def _training(told: Mapping[str, Any]) -> Iterator[str]:
    if epochs := told.get("best_epochs"):
        more = told["n_closing_epochs"]
        yield f"Selected epoch: {', '.join(map(str, epochs))}" + (
            f", then {more} epochs on all images." if more else "."
        )
    for title, name in (("Parameters", "parameters"), ("Versions", "versions")):
        if values := told.get(name):
            yield from (
                "",
                f"{title}: " + ", ".join(f"{key} {value}" for key, value in values.items() if value is not None),
            )


def _listed(labels: Any) -> str:
    names = [str(label) for label in labels]
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return ", ".join(names[:_MOST_LISTED]) + more


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
