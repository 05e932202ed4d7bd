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
    images = describe_images(loaded.form.channels, loaded.form.pixels, loaded.form.preprocessing)
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
        "calibration": "none" if error is None else f"expected error {error:.3f}",
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


def _record_lines(information: dict[str, Any]) -> dict[str, str]:
    """Return lines about the training; the record of a model built by hand may lack some."""
    lines: dict[str, str] = {}
    if data := information.get("data"):
        counts = ", ".join(f"{label} {count}" for label, count in data["classes"].items())
        lines["trained on"] = (
            f"{format_count(data['n_train'], 'image')} ({counts}), {data['n_validation']} for validation"
        )
        lines["fingerprint"] = data["fingerprint"]
    if (held_out := information.get("held_out")) and held_out["balanced_accuracy"] is not None:
        what = "cross-validated training" if held_out["seen_in_training"] else "validation"
        lines["accuracy"] = f"{held_out['balanced_accuracy']:.3f} balanced, on {held_out['n_images']} {what} images"
    if test := information.get("test"):
        score = test["balanced_accuracy"]
        interval = f"{score['low']:.3f} to {score['high']:.3f}"
        lines["test"] = f"{score['value']:.3f} balanced ({interval}), on {test['n_images']} test images"
    if epochs := information.get("best_epochs"):
        more = (
            f", then {format_count(information['n_closing_epochs'], 'epoch')} on all images"
            if information["n_closing_epochs"]
            else ""
        )
        lines["epoch"] = f"{', '.join(map(str, epochs))} selected{more}"
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
