"""Save a model to one file and load it: safetensors with JSON metadata, never pickle."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn

from lmfcn.compute.resources import CPU, check_device
from lmfcn.data.arrays import SMALLEST_SIDE, check_row_shape
from lmfcn.data.framing import Fit, Preprocessing, describe_channels
from lmfcn.data.image_form import ImageForm
from lmfcn.method.kernel_svm import Decision
from lmfcn.method.network import POOLING, TextureFCN
from lmfcn.model import Calibration, Networks, TextureModel, TypicalDistances, probabilities
from lmfcn.networks.efficientnet_lite import EfficientNetLite0
from lmfcn.networks.trunk import Trunk, fingerprint
from lmfcn.util.tensor_files import FileError, pack_tensors, read_tensors, write_tensors

KIND = "lmfcn model"
VERSION = 3
VERSION_WITH_TRUNK = 4
"""Of files with a frozen network, which earlier versions of lmfcn cannot read."""
VERSION_WITH_SCALES = 5
"""Of files whose networks reduce their images, or have standard deviations of maps among their latents."""
VERSION_WITH_CORRELATIONS = 6
"""Of files whose networks, or frozen network, have correlations of maps among their latents."""
VERSIONS = (VERSION, VERSION_WITH_TRUNK, VERSION_WITH_SCALES, VERSION_WITH_CORRELATIONS)
_LARGEST_REDUCTION = 2**10
_LARGEST_COUNT = 10**6
_LARGEST_SIDE = 2**14
_LABEL_TYPES: dict[str, tuple[type, ...]] = {"i": (int,), "u": (int,), "f": (float,), "b": (bool,), "U": (str,)}


def save(model: TextureModel, path: str | Path) -> None:
    """Write a model to a file, whole or not at all: weights, support vectors' latents, and how it came about."""
    write_tensors(path, KIND, _version(model), _values(model), _tensors(model))


def to_bytes(model: TextureModel) -> bytes:
    """Return the content of the file that `save` writes."""
    return pack_tensors(KIND, _version(model), _values(model), _tensors(model))


def _values(model: TextureModel) -> dict[str, Any]:
    """Return everything in a file that JSON can hold."""
    networks, trunk = model.members, model.trunk
    first = networks[0]
    return {
        "networks": {
            "count": len(networks),
            "in_channels": first.in_channels,
            "latent_dim": first.latent_dim,
            "widths": list(first.widths),
            "pooling": [network.pooling for network in networks],
            "deviations": [network.deviations for network in networks],
            "correlations": [network.correlations for network in networks],
            "reduction": [network.reduction for network in networks],
        },
        "gamma": model.gamma,
        "classes": _describe_classes(model.classes),
        "form": model.form.as_dict(),
        "calibration": {
            "sharpness": model.calibration.inverse_temperature,
            "error": model.calibration.error,
            "held_out": model.calibration.held_out,
        },
        "record": model.record,
        **({} if trunk is None else {"trunk": _describe_trunk(trunk, keep=model.networks.keep_trunk)}),
    }


def _tensors(model: TextureModel) -> dict[str, Tensor]:
    """Return the tensors of a file: the decision, the calibration, and the weights of all networks."""
    tensors = {
        f"decision.{name}": _compact(tensor) if name == "whitening" else tensor
        for name, tensor in model.decision_tensors().items()
    }
    tensors["calibration.true_probabilities"] = model.calibration.true_probabilities
    if model.typical is not None:
        tensors |= {"typical.centres": model.typical.centres, "typical.distances": model.typical.distances}
    for number, network in enumerate(model.members):
        tensors |= {
            f"network-{number}.{name}": _compact(tensor) if tensor.ndim == 4 else tensor
            for name, tensor in network.state_dict().items()
        }
    trunk = model.trunk
    if trunk is None:
        return tensors
    tensors["trunk.map_std"] = trunk.map_std
    if trunk.correlations:
        tensors["trunk.stage_std"] = trunk.stage_std
    if isinstance(trunk.network, EfficientNetLite0):
        tensors |= {f"trunk.{name}": _compact(tensor) for name, tensor in trunk.network.state_dict().items()}
    return tensors


def _version(model: TextureModel) -> int:
    """Return the earliest version of the format that knows everything in a model."""
    described = [*model.members, *([] if model.trunk is None else [model.trunk])]
    if any(network.correlations for network in described):
        return VERSION_WITH_CORRELATIONS
    if any(network.deviations or network.reduction != 1 for network in model.members):
        return VERSION_WITH_SCALES
    return VERSION if model.trunk is None else VERSION_WITH_TRUNK


def _describe_trunk(trunk: Trunk, *, keep: bool) -> dict[str, Any]:
    return {
        "name": trunk.name,
        "sha256": fingerprint(trunk.network),
        "licence": trunk.licence,
        "keep": keep,
        "low": trunk.low,
        "high": trunk.high,
    }


def _compact(tensor: Tensor) -> Tensor:
    """Return numbers in half precision if that loses nothing."""
    half = tensor.half()
    return half if torch.equal(half.to(tensor.dtype), tensor) else tensor


def load(path: str | Path, device: str | torch.device = "auto", *, network: nn.Module | None = None) -> TextureModel:
    """Read a model from a file that `save` wrote.

    Nothing in the file is executed. It is refused, with a reason, if it is truncated, changed, not a model, or made by
    another version of the format.

    Parameters
    ----------
    path : path of a file, usually ending in .lmfcn
    device : str or torch.device, default="auto"
        Where the model shall compute: "cpu", "cuda", "mps" and so on; "auto" takes an accelerator where there is one
        that works, else the CPU. `model.to(device)` moves it later.
    network : torch.nn.Module, optional
        The frozen network of a model that was trained with a module of your own, with the same weights: a file holds
        the weights of EfficientNet-Lite0, but not those of other frozen networks.

    Raises
    ------
    FileNotFoundError
    lmfcn.util.tensor_files.FileError
    """
    there = check_device(device)
    values, tensors = read_tensors(path, KIND, *VERSIONS)
    try:
        model = _build(values, tensors, network)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError, MemoryError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise FileError(f"{path} is not a sound model: {reason.splitlines()[0]}.") from error
    return model.to(there)


def _build(values: dict[str, Any], tensors: dict[str, Tensor], network: nn.Module | None = None) -> TextureModel:
    classes = _read_classes(values["classes"])
    calibration = _read_calibration(values["calibration"], tensors.pop("calibration.true_probabilities"))
    parts = {
        name.removeprefix("decision."): tensors.pop(name) for name in list(tensors) if name.startswith("decision.")
    }
    if "whitening" in parts and parts["whitening"].dtype == torch.float16:
        parts["whitening"] = parts["whitening"].float()
    typical = _read_typical(tensors)
    form = _read_form(values["form"])
    trunk, keep_trunk = _read_trunk(values.get("trunk"), tensors, form.channels, network)
    members = _read_networks(values["networks"], tensors)
    takes = form.channels if trunk is None else trunk.stage_channels[trunk.trained_stage]
    if members[0].in_channels != takes:
        raise ValueError(f"its networks take {members[0].in_channels} channels, its images have {takes}")
    networks = Networks(members, trunk, keep_trunk=keep_trunk)
    n_latents = networks.n_latents
    n_scores = 1 if len(classes) == 2 else len(classes)
    _check_decision(parts, n_latents, n_scores)
    if typical is not None and typical.centres.shape != (len(classes), parts["support_latents"].shape[1]):
        raise ValueError("the centres of its classes do not fit its decision")
    decision = Decision.of_tensors(parts, _number("gamma", values["gamma"]), CPU)
    model = TextureModel(networks, decision, calibration, classes, form, dict(values["record"]), typical)
    _try_out(model)
    return model


def _try_out(model: TextureModel) -> None:
    """Refuse numbers that are finite one by one, but not what comes of them."""
    shape = (model.form.smallest_side, model.form.smallest_side, model.form.channels)
    images = torch.stack([torch.zeros(shape), torch.ones(shape)])
    with torch.no_grad():
        if not bool(torch.isfinite(probabilities(model(images), model.calibration.inverse_temperature)).all()):
            raise ValueError("its numbers are so large or small that predictions are not finite")


def _read_trunk(
    values: Any, tensors: dict[str, Tensor], channels: int, network: nn.Module | None
) -> tuple[Trunk | None, bool]:
    """Return the frozen network of a file and whether its features are kept; its weights are in the file, or given."""
    if values is None:
        if network is not None:
            raise ValueError("it has no frozen network; leave out network=")
        return None, False
    weights = {name.removeprefix("trunk."): tensors.pop(name) for name in list(tensors) if name.startswith("trunk.")}
    map_std, stage_std = weights.pop("map_std"), weights.pop("stage_std", None)
    if type(values["keep"]) is not bool:
        raise ValueError("it does not say whether the features of its frozen network are kept")
    low, high = (_finite(name, values[name]) for name in ("low", "high"))
    if not low < high:
        raise ValueError("its range of pixels is empty")
    frozen = _frozen_network(values, weights, network)
    trunk = Trunk(frozen, channels, low, high, correlations=stage_std is not None)
    trunk.licence = None if values["licence"] is None else str(values["licence"])
    scales = [(trunk.map_std, map_std), *([] if stage_std is None else [(trunk.stage_std, stage_std)])]
    for own, stored in scales:
        if stored.shape != own.shape or stored.dtype != torch.float32 or not bool((stored > 0).all()):
            raise ValueError("the scale of the maps of its frozen network is not sound")
        own.copy_(stored)
    return trunk, values["keep"]


def _frozen_network(values: dict[str, Any], weights: dict[str, Tensor], network: nn.Module | None) -> nn.Module:
    name = values["name"]
    if not weights:
        if network is None:
            raise ValueError(f"it needs the frozen network {name!r:.60}, which it does not hold: give it as network=")
        if fingerprint(network) != values["sha256"]:
            raise ValueError(f"the given network has other weights than {name!r:.60}, which it was trained with")
        return network
    if name != EfficientNetLite0.name:
        raise ValueError(f"it holds an unknown frozen network, {name!r:.60}")
    built = EfficientNetLite0()
    expected = {key: tuple(tensor.shape) for key, tensor in built.state_dict().items()}
    if {key: tuple(tensor.shape) for key, tensor in weights.items()} != expected:
        raise ValueError("the weights of its frozen network do not have the shapes that it describes")
    built.load_state_dict({key: tensor.float() for key, tensor in weights.items()}, assign=True)
    return built.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _read_calibration(values: dict[str, Any], true_probabilities: Tensor) -> Calibration:
    if true_probabilities.ndim != 1 or true_probabilities.dtype != torch.float64:
        raise ValueError("its held-out probabilities are not a row of numbers")
    if type(values["held_out"]) is not bool:
        raise ValueError("it does not say whether images were held out")
    return Calibration(
        inverse_temperature=_number("sharpness", values["sharpness"]),
        true_probabilities=true_probabilities,
        error=None if values["error"] is None else _number("calibration error", values["error"], zero=True),
        held_out=values["held_out"],
    )


def _read_typical(tensors: dict[str, Tensor]) -> TypicalDistances | None:
    """Return the distances of held-out images; None in files of earlier versions, and without held-out images."""
    centres, distances = tensors.pop("typical.centres", None), tensors.pop("typical.distances", None)
    if centres is None and distances is None:
        return None
    if centres is None or distances is None or centres.dtype != torch.float32 or distances.dtype != torch.float64:
        raise ValueError("its distances of held-out images are not complete")
    sound = distances.ndim == 1 and len(distances) and bool((distances >= 0).all())
    if not sound or bool((distances.diff() < 0).any()):
        raise ValueError("its distances of held-out images are not a row of ascending numbers")
    return TypicalDistances(centres, distances)


def _read_kinds(shape: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Return how each network pools its maps and reduces its images; files up to version 4 say only the first."""
    poolings = shape["pooling"]
    deviations, correlations = (shape.get(name, [False] * count) for name in ("deviations", "correlations"))
    reductions = shape.get("reduction", [1] * count)
    for values in (poolings, deviations, correlations, reductions):
        if not isinstance(values, list) or len(values) != count:
            raise ValueError("it does not describe each of its networks")
    switches = [*deviations, *correlations]
    if not all(pooling in POOLING for pooling in poolings) or not all(type(value) is bool for value in switches):
        raise ValueError(f"it asks for an unknown pooling, {poolings!r:.40}, {switches!r:.40}")
    if any(more and not first for first, more in zip(deviations, correlations, strict=True)):
        raise ValueError("it asks for correlations without standard deviations")
    factors = [_count("reduction", factor, largest=_LARGEST_REDUCTION) for factor in reductions]
    return [
        {"pooling": pooling, "deviations": deviation, "correlations": correlation, "reduction": factor}
        for pooling, deviation, correlation, factor in zip(poolings, deviations, correlations, factors, strict=True)
    ]


def _read_networks(shape: dict[str, Any], tensors: dict[str, Tensor]) -> list[TextureFCN]:
    in_channels, latent_dim = (_count(name, shape[name]) for name in ("in_channels", "latent_dim"))
    widths = [_count("widths", width) for width in shape["widths"]]
    count = _count("count", shape["count"])
    expected = _weight_shapes(in_channels, latent_dim, widths)
    networks = []
    for number, kind in zip(range(count), _read_kinds(shape, count), strict=True):
        prefix = f"network-{number}."
        weights = {name.removeprefix(prefix): tensors.pop(name) for name in list(tensors) if name.startswith(prefix)}
        # Compared before anything is built, so that a lie about sizes cannot ask for memory.
        if {name: tuple(weight.shape) for name, weight in weights.items()} != expected:
            raise ValueError(f"the weights of network {number} do not have the shapes that it describes")
        network = TextureFCN(in_channels, latent_dim, widths, **kind)
        network.load_state_dict(weights)
        if any(bool((buffer < 0).any()) for name, buffer in network.named_buffers() if name.endswith("running_var")):
            raise ValueError(f"network {number} has a negative variance")
        networks.append(network)
    if tensors:
        raise ValueError(f"it has tensors that do not belong there: {sorted(tensors)[:3]}")
    return networks


def _weight_shapes(in_channels: int, latent_dim: int, widths: list[int]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight and statistic of such a network, without building it."""
    shapes: dict[str, tuple[int, ...]] = {}
    sides = [in_channels, *widths, latent_dim]
    for block, (inputs, outputs) in enumerate(pairwise(sides)):
        shapes[f"features.{4 * block}.weight"] = (outputs, inputs, 3, 3)
        for name in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"features.{4 * block + 1}.{name}"] = (outputs,)
        shapes[f"features.{4 * block + 1}.num_batches_tracked"] = ()
    return shapes


def _check_decision(parts: dict[str, Tensor], n_latents: int, n_scores: int) -> None:
    n_support = len(parts["support_latents"]) if "support_latents" in parts else 0
    whitening = parts.get("whitening")
    n_features = whitening.shape[1] if whitening is not None and whitening.ndim == 2 else n_latents
    expected = {
        "mean": (n_latents,),
        "std": (n_latents,),
        **({} if whitening is None else {"whitening": (n_latents, n_features)}),
        "support_latents": (n_support, n_features),
        "coefficients": (n_support, n_scores),
        "intercepts": (n_scores,),
    }
    if {name: tuple(part.shape) for name, part in parts.items()} != expected or 0 in (n_support, n_features):
        raise ValueError("the parts of its decision do not fit each other")
    if not all(part.dtype in (torch.float32, torch.float64) for part in parts.values()):
        raise ValueError("its decision has parts that are not floating point numbers of single or double precision")
    if bool((parts["std"] <= 0).any()):
        raise ValueError("its latents have a standard deviation that is not positive")


def _read_form(values: dict[str, Any]) -> ImageForm:
    frame = dict(values["frame"])
    if (frame["size"] is None) != (frame["fit"] == "keep"):
        raise ValueError("it asks for a size without a way to get there, or the reverse")
    if frame["size"] is not None:
        frame["size"] = tuple(_count("size", side, largest=_LARGEST_SIDE) for side in frame["size"])
        if len(frame["size"]) != 2:
            raise ValueError("it asks for a size that is not height and width")
    row_shape = values["row_shape"]
    if values["pixels"] not in ("uint8", "uint16", "float"):
        raise ValueError(f"it has pixels of an unknown kind, {values['pixels']!r:.20}")
    if frame["color"] not in ("keep", "grey", "rgb") or frame["fit"] not in get_args(Fit):
        raise ValueError("it asks for an unknown treatment of images")
    if {"grey": 1, "rgb": 3}.get(frame["color"], values["channels"]) != values["channels"]:
        raise ValueError(f"it asks for {frame['color']} images with {values['channels']!r:.20} channels")
    return ImageForm(
        channels=_count("channels", values["channels"]),
        pixels=values["pixels"],
        preprocessing=Preprocessing(**frame),
        row_shape=None if row_shape is None else check_row_shape(row_shape),
        smallest_side=_count("smallest_side", values.get("smallest_side", SMALLEST_SIDE), largest=_LARGEST_SIDE),
    )


def _describe_classes(classes: np.ndarray) -> dict[str, Any]:
    """Return labels as JSON can hold them, with the type that brings them back."""
    labels = classes.tolist()
    if classes.dtype == object and all(isinstance(label, str) for label in labels):
        return {"type": "object", "labels": labels}
    if classes.dtype.kind not in _LABEL_TYPES:
        raise ValueError(
            f"A model file can hold labels that are text or numbers, got {classes.dtype}; convert y before fit."
        )
    return {"type": classes.dtype.str, "labels": labels}


def _read_classes(described: dict[str, Any]) -> np.ndarray:
    kind, labels = described["type"], described["labels"]
    dtype = np.dtype(object if kind == "object" else kind)
    allowed = (str,) if kind == "object" else _LABEL_TYPES.get(dtype.kind, ())
    if not isinstance(labels, list) or len(labels) < 2 or not all(type(label) in allowed for label in labels):
        raise ValueError("its labels are not what they say they are")
    if dtype.kind == "U" and dtype.itemsize > 4 * max(1, *(len(label) for label in labels)):
        raise ValueError("its labels ask for more memory than they need")
    classes = np.array(labels, dtype=dtype)
    if classes.tolist() != labels or len(set(labels)) != len(labels):
        raise ValueError("its labels are not what they say they are")
    return classes


def _count(name: str, value: Any, largest: int = _LARGEST_COUNT) -> int:
    if type(value) is not int or not 1 <= value <= largest:
        raise ValueError(f"{name} must be a whole number from 1 to {largest}, but is {value!r:.40}")
    return value


def _finite(name: str, value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{name} must be a number, but is {value!r:.40}")
    return float(value)


def _number(name: str, value: Any, *, zero: bool = False) -> float:
    sound = type(value) in (int, float) and math.isfinite(value) and (value > 0 or (zero and value == 0))
    if not sound:
        raise ValueError(f"{name} must be a positive number, but is {value!r:.40}")
    return float(value)


_TOLD = (
    "data",
    "held_out",
    "test",
    "best_epochs",
    "interrupted",
    "threads",
    "image_sizes",
    "network_choice",
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
    frame = model.form.preprocessing
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
        "trunk": None if model.trunk is None else _describe_trunk(model.trunk, keep=model.networks.keep_trunk),
        "n_latents": len(model.mean),
        "n_features": model.n_features,
        "whitened": model.whitening is not None,
        "n_support": len(model.support_latents),
        "gamma": model.gamma,
        "calibration": {"error": model.calibration.error, "held_out": model.calibration.held_out},
        **{name: model.record[name] for name in _TOLD if name in model.record},
        "epoch_score": _epoch_score(model.record),
        "n_closing_epochs": max((len(history) - 1 for history in model.record.get("closing_histories", [])), default=0),
    }


def _epoch_score(record: dict[str, Any]) -> float | None:
    """Return the score by which validation images selected the epoch; None without them, or with several networks."""
    histories, selected = record.get("histories", []), record.get("best_epochs", [])
    if len(histories) != 1 or len(selected) != 1:
        return None
    scores = {entry["epoch"]: entry.get("validation_balanced_accuracy") for entry in histories[0]}
    return scores.get(selected[0])


def describe_images(form: ImageForm) -> str:
    """Say what images a model takes, and what it does to files."""
    frame, words = form.preprocessing, describe_channels(form.channels, form.pixels)
    color = "" if frame.color == "keep" else f", turned {frame.color}"
    if frame.size is None:
        return f"{words}{color}, of any size from {form.smallest_side}x{form.smallest_side}"
    ways = {"resize": "scaled to", "scale-crop": "scaled and cut to", "scale-pad": "scaled and padded to"}
    done = ways.get(frame.fit, "cut to the middle")
    return f"{words}{color}, {done} {frame.size[0]}x{frame.size[1]}"
