"""Export a fitted model to ONNX or torch.export; a file is written only if it predicts the same as the model."""

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lmfcn import __version__
from lmfcn.export.agreement import TOLERANCE, Agreement, Predictions, compare, comparison_batches
from lmfcn.export.graph import OUTPUTS, check_output_path, check_tolerance, silence_translator, to_exportable, trace
from lmfcn.model import TextureModel, least_probability
from lmfcn.util.files import write_bytes
from lmfcn.util.packages import needs
from lmfcn.util.progress import item_progress

FORMAT_VERSION = 1
COVERAGES = (0.8, 0.9, 0.95, 0.99)
OPSET = 18
INPUT = "images"
_AXES = ("batch", "height", "width", "channels")
DESCRIPTION = "lmfcn.json"


def export_onnx(
    model: Any, path: str | Path, *, images: Any = None, tolerance: float = TOLERANCE, verbose: bool = False
) -> Agreement:
    """Write a fitted model as an ONNX file that onnxruntime runs without lmfcn, and return the agreement.

    The graph takes `images` (batch, height, width, channels) like the model, and returns `label`, `number` (of the
    class), `scores` and `probabilities`. docs/export.md describes its metadata.

    Parameters
    ----------
    model : TextureModel or fitted LMFCNClassifier
    path : path that ends in .onnx
    images : images, a collection, a folder or paths, optional
        Images to compare on, besides generated textures and noise; up to 64 are used.
    tolerance : float, default=1e-4
        Largest accepted difference of scores and probabilities; stored in the file.
    verbose : bool, default=False
        Whether to show progress.

    Returns
    -------
    Agreement

    Raises
    ------
    DisagreementError
        If a label or a score differs; then nothing is written.
    ImportError
        Without the packages of the extra `onnx`.
    """
    model, path, tolerance = to_exportable(model), check_output_path(path, ".onnx"), check_tolerance(tolerance)
    for package in ("onnx", "onnxruntime", "onnxscript"):
        needs(package, "onnx")
    with item_progress("Translating", 2, visible=verbose) as advance:
        batches = comparison_batches(model, images)
        advance()
        proto = _translate(model)
        advance()
    agreement = compare(model, load_onnx_file(proto.SerializeToString()), batches, tolerance, verbose=verbose)
    for name, value in make_metadata(model, agreement, tolerance).items():
        proto.metadata_props.add(key=name, value=json.dumps(value))
    write_bytes(path, proto.SerializeToString())
    return agreement


def load_onnx_file(content: bytes) -> Callable[[np.ndarray], Predictions]:
    """Return a function that predicts images (b, h, w, c) with an ONNX file on the CPU."""
    onnxruntime = needs("onnxruntime", "onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # only errors; warnings are about the graph
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def run(images: np.ndarray) -> Predictions:
        found = session.run(["label", "scores", "probabilities"], {INPUT: images})
        return found[0], found[1], found[2]

    return run


def _translate(model: TextureModel) -> Any:
    """Return the model as an ONNX protocol buffer."""
    try:
        with silence_translator():
            program: Any = torch.onnx.export(
                trace(model),
                dynamo=True,
                opset_version=OPSET,
                input_names=[INPUT],
                output_names=OUTPUTS,
                external_data=False,
                verbose=False,
            )
    except Exception as error:  # torch.onnx raises almost any exception, with long messages
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise RuntimeError(f"torch.onnx cannot translate the model: {reason}. Try other versions of torch.") from error
    proto = program.model_proto
    _clean(proto)
    _add_labels(proto, model.classes)
    return proto


def _clean(proto: Any) -> None:
    """Name the axes, and remove metadata about the exporting machine, such as paths."""
    graph = proto.graph
    axes = dict(zip((axis.dim_param for axis in graph.input[0].type.tensor_type.shape.dim), _AXES, strict=True))
    for value in (*graph.input, *graph.output):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param:
                axis.dim_param = axes[axis.dim_param]
    del graph.value_info[:]
    for part in (proto, graph, *graph.input, *graph.output, *graph.node, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""
    graph.name = "lmfcn"
    proto.producer_name, proto.producer_version = "lmfcn", __version__


def _add_labels(proto: Any, classes: np.ndarray) -> None:
    """Add an output with the label (b,) of each class number to the graph."""
    onnx = needs("onnx", "onnx")
    if classes.dtype.kind in "iu" and classes.dtype != np.uint64:
        classes = classes.astype(np.int64)
    table = onnx.numpy_helper.from_array(classes.astype(object) if classes.dtype.kind == "U" else classes, "classes")
    proto.graph.initializer.append(table)
    proto.graph.node.append(onnx.helper.make_node("Gather", ["classes", "number"], ["label"], name="label"))
    label = onnx.helper.make_tensor_value_info("label", table.data_type, ["batch"])
    proto.graph.output.insert(0, label)


def export_torch(
    model: Any, path: str | Path, *, images: Any = None, tolerance: float = TOLERANCE, verbose: bool = False
) -> Agreement:
    """Write a fitted model as a program of torch.export, and return the agreement.

    `torch.export.load(path).module()` takes images (batch, height, width, channels) and returns class numbers,
    scores and probabilities. The extra file "lmfcn.json" holds the classes and other metadata: docs/export.md.

    Parameters
    ----------
    model : TextureModel or fitted LMFCNClassifier
    path : path that ends in .pt2
    images : images, a collection, a folder or paths, optional
        Images to compare on, besides generated textures and noise; up to 64 are used.
    tolerance : float, default=1e-4
        Largest accepted difference of scores and probabilities; stored in the file.
    verbose : bool, default=False
        Whether to show progress.

    Returns
    -------
    Agreement

    Raises
    ------
    DisagreementError
        If a label or a score differs; then nothing is written.
    """
    model, path, tolerance = to_exportable(model), check_output_path(path, ".pt2"), check_tolerance(tolerance)
    with item_progress("Translating", 2, visible=verbose) as advance:
        batches = comparison_batches(model, images)
        advance()
        program = trace(model)
        run = load_torch_file(_content(program), model.classes)
        advance()
    agreement = compare(model, run, batches, tolerance, verbose=verbose)
    write_bytes(path, _content(program, {DESCRIPTION: json.dumps(make_metadata(model, agreement, tolerance))}))
    return agreement


def load_torch_file(content: bytes, classes: np.ndarray) -> Callable[[np.ndarray], Predictions]:
    """Return a function that predicts images (b, h, w, c) with a torch.export file."""
    with silence_translator():
        graph = torch.export.load(io.BytesIO(content)).module()

    def run(images: np.ndarray) -> Predictions:
        with torch.no_grad():
            numbers, scores, probabilities = (found.numpy() for found in graph(torch.from_numpy(images)))
        return classes[numbers], scores, probabilities

    return run


def _content(program: torch.export.ExportedProgram, extra_files: dict[str, str] | None = None) -> bytes:
    file = io.BytesIO()
    with silence_translator():
        torch.export.save(program, file, extra_files=extra_files)
    return file.getvalue()


def make_metadata(model: TextureModel, agreement: Agreement, tolerance: float) -> dict[str, Any]:
    """Return the metadata of an exported file, as JSON can hold it."""
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
    """Return 32 hexadecimal digits that identify everything on which predictions depend."""
    constants = (model.gamma, model.calibration.inverse_temperature, model.classes.tolist(), model.form)
    digest = hashlib.blake2b(repr(constants).encode(), digest_size=16)
    if model.trunk is not None:
        trunk = model.trunk
        sides: tuple[object, ...] = (trunk.input_size, trunk.step, trunk.trained_stage, model.networks.keep_trunk)
        if trunk.correlations:
            sides = (*sides, "correlations")
        scale = (trunk.low, trunk.high, trunk.pixel_mean.flatten().tolist(), trunk.pixel_std.flatten().tolist())
        digest.update(repr((trunk.name, sides, scale)).encode())
    kinds = [(network.pooling, network.deviations, network.reduction) for network in model.members]
    if any(kind[1:] != (False, 1) for kind in kinds):  # others keep the fingerprints that they always had
        digest.update(repr(kinds).encode())
    if any(network.correlations for network in model.members):
        digest.update(repr([network.correlations for network in model.members]).encode())
    for name, tensor in model.state_dict().items():
        digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _preprocessing(model: TextureModel) -> dict[str, Any]:
    """Describe how to prepare an image for the graph; the graph scales the pixels itself."""
    form = model.form
    return {
        "pixels": form.pixels,
        "channels": form.channels,
        "smallest_side": form.smallest_side if form.row_shape is None or model.trunk is not None else 1,
        **asdict(form.preprocessing),
        "row_shape": form.row_shape,
    }


def _prediction_sets(model: TextureModel) -> dict[str, float] | None:
    """Return the smallest probability of a class in prediction sets, for some coverages."""
    if not model.calibration.held_out:
        return None
    return {str(coverage): least_probability(model.calibration.true_probabilities, coverage) for coverage in COVERAGES}
