"""`lmfcn info`: what a model is and where it comes from."""

from typing import Any

from lmfcn.cli.console import Teller, counted
from lmfcn.cli.options import AsJson, ModelFile


def info(
    model: ModelFile,
    as_json: AsJson = False,
) -> None:
    """Tell what a model is: its classes, data, accuracy, size, parameters, versions."""
    from lmfcn.model_file import describe_images, describe_model, load

    loaded, teller = load(model, "cpu"), Teller(as_json=as_json)
    n_bytes = model.stat().st_size
    told = describe_model(loaded)
    images = describe_images(loaded.form.channels, loaded.form.pixels, loaded.form.preprocessing)
    lines = {
        "file": f"{model}, {n_bytes / 1e6:.2f} MB",
        "classes": ", ".join(str(label) for label in told["classes"]),
        "images": images,
        **_network_lines(told),
        **_record_lines(told),
    }
    width = max(map(len, lines))
    for name, text in lines.items():
        teller.say(f"{name:<{width}}  {text}")
    teller.give({"file": str(model), "n_bytes": n_bytes, **told})


def _network_lines(told: dict[str, Any]) -> dict[str, str]:
    networks = told["networks"]
    error = told["calibration"]["error"]
    return {
        "networks": f"{networks['count']}, with {counted(networks['n_weights'], 'weight')} in all",
        "decision": f"RBF SVM on {_space(told)} with {told['n_support']} support vectors",
        "calibration": "none" if error is None else f"expected error {error:.3f}",
    }


def _space(told: dict[str, Any]) -> str:
    """Say what the kernel compares."""
    latents = counted(told["n_latents"], "latent")
    return f"{told['n_features']} whitened directions of {latents}" if told["whitened"] else latents


def _record_lines(told: dict[str, Any]) -> dict[str, str]:
    """Return what the record tells; models that were put together by hand may tell less."""
    lines: dict[str, str] = {}
    if data := told.get("data"):
        counts = ", ".join(f"{label} {count}" for label, count in data["classes"].items())
        lines["trained on"] = f"{counted(data['n_train'], 'image')} ({counts}), {data['n_validation']} for validation"
        lines["fingerprint"] = data["fingerprint"]
    if (held_out := told.get("held_out")) and held_out["balanced_accuracy"] is not None:
        what = "cross-validated training" if held_out["seen_in_training"] else "validation"
        lines["accuracy"] = f"{held_out['balanced_accuracy']:.3f} balanced, on {held_out['n_images']} {what} images"
    if test := told.get("test"):
        score = test["balanced_accuracy"]
        interval = f"{score['low']:.3f} to {score['high']:.3f}"
        lines["test"] = f"{score['value']:.3f} balanced ({interval}), on {test['n_images']} test images"
    if epochs := told.get("best_epochs"):
        more = (
            f", then {counted(told['n_closing_epochs'], 'epoch')} with all images" if told["n_closing_epochs"] else ""
        )
        stopped = ", interrupted by the user" if told.get("interrupted") else ""
        lines["kept epoch"] = ", ".join(map(str, epochs)) + more + stopped
    if told.get("random_state") is not None:
        lines["seed"] = str(told["random_state"])
    for name in ("parameters", "versions"):
        if name in told:
            lines[name] = ", ".join(f"{key} {value}" for key, value in told[name].items() if value is not None)
    return lines
