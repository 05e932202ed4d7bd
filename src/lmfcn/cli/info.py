"""`lmfcn info`: describe a model file."""

from typing import Any

from lmfcn.cli.console import CommandConsole, format_count
from lmfcn.cli.options import AsJson, ModelFile


def info(
    model: ModelFile,
    as_json: AsJson = False,
) -> None:
    """Describe a model: classes, training data, accuracy, size, parameters, versions."""
    from lmfcn.model_file import describe_images, describe_model, load
    from lmfcn.util.tensor_files import format_version

    loaded, console = load(model, "cpu"), CommandConsole(as_json=as_json)
    n_bytes = model.stat().st_size
    information = {"format_version": format_version(model), **describe_model(loaded)}
    images = describe_images(loaded.form)
    lines = {
        "file": f"{model}, {n_bytes / 1e6:.2f} MB, format version {information['format_version']}",
        "classes": ", ".join(str(label) for label in information["classes"]),
        "images": images,
        **_network_lines(information),
        **_record_lines(information),
    }
    width = max(map(len, lines))
    for name, text in lines.items():
        console.print_result(f"{name:<{width}}  {text}")
    console.print_json({"file": str(model), "n_bytes": n_bytes, **information})


def _network_lines(information: dict[str, Any]) -> dict[str, str]:
    networks = information["networks"]
    error = information["calibration"]["error"]
    return {
        "network": _describe_network(information["trunk"]),
        "networks": f"{networks['count']}, with {format_count(networks['n_weights'], 'weight')} in all",
        "decision": f"RBF SVM on {_features(information)} with {information['n_support']} support vectors",
        "calibration": "none" if error is None else f"expected calibration error {error:.3f}",
    }


def _describe_network(trunk: dict[str, Any] | None) -> str:
    """Describe the network that a training starts from."""
    if trunk is None:
        return "texture-fcn, trained from scratch"
    licence = f"licence {trunk['licence']}" if trunk["licence"] else "licence unknown"
    return f"{trunk['name']}, frozen, {licence}, SHA-256 of its weights {trunk['sha256'][:16]}..."


def _features(information: dict[str, Any]) -> str:
    """Describe the features that the kernel compares."""
    latents = format_count(information["n_latents"], "latent")
    return f"{information['n_features']} whitened directions of {latents}" if information["whitened"] else latents


def _training_images(data: dict[str, Any], information: dict[str, Any]) -> str:
    counts = ", ".join(f"{label} {count}" for label, count in data["classes"].items())
    text = f"{format_count(data['n_train'], 'image')} ({counts})"
    if not data["n_validation"]:
        return text
    later = ", then on all of them" if information.get("n_closing_epochs") else ""
    return f"{text}, with {data['n_validation']} others held out for validation{later}"


def _epoch_score(information: dict[str, Any]) -> str:
    """Return the score by which the epoch was selected, of a model with one network."""
    score = information.get("epoch_score")
    return "" if score is None else f" (epoch score {score:.3f})"


def _record_lines(information: dict[str, Any]) -> dict[str, str]:
    """Return lines about the training; the record of a model built by hand may lack some."""
    lines: dict[str, str] = {}
    if data := information.get("data"):
        lines["trained on"] = _training_images(data, information)
        lines["fingerprint"] = data["fingerprint"]
    if (held_out := information.get("held_out")) and held_out["balanced_accuracy"] is not None:
        what = "cross-validated training" if held_out["seen_in_training"] else "validation"
        lines["accuracy"] = f"{held_out['balanced_accuracy']:.3f} balanced, on {held_out['n_images']} {what} images"
    if test := information.get("test"):
        score = test["balanced_accuracy"]
        interval = f"{score['low']:.3f} to {score['high']:.3f}"
        lines["test"] = f"{score['value']:.3f} balanced ({interval}), on {test['n_images']} test images"
    if epochs := information.get("best_epochs"):
        n_refit = information["n_closing_epochs"]
        more = f", then {format_count(n_refit, 'refit epoch')} on all images" if n_refit else ""
        lines["epoch"] = f"{', '.join(map(str, epochs))} selected{_epoch_score(information)}{more}"
    if "interrupted" in information:
        stopped = "interrupted by the user before its last epoch" if information["interrupted"] else "complete"
        threads = information.get("threads")
        lines["training"] = stopped + ("" if threads is None else f", with {format_count(threads, 'thread')}")
    if sizes := information.get("image_sizes"):
        smallest, largest = ("x".join(map(str, sizes[name])) for name in ("smallest", "largest"))
        lines["sizes"] = (
            f"training images of {smallest}" + ("" if smallest == largest else f" to {largest}") + " pixels"
        )
    if information.get("random_state") is not None:
        lines["seed"] = str(information["random_state"])
    for name in ("parameters", "versions"):
        if name in information:
            lines[name] = ", ".join(f"{key} {value}" for key, value in information[name].items() if value is not None)
    return lines
