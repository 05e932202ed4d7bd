"""`lmfcn export`: write a model as ONNX or torch.export file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from lmfcn.cli.options import ModelFile, Threads

if TYPE_CHECKING:
    import numpy as np

    from lmfcn.export import Agreement
    from lmfcn.model import TextureModel


def export(
    model: ModelFile,
    output: Annotated[
        Path, Option("--output", "-o", metavar="FILE", help="File to write: .onnx, or .pt2 for torch.export.")
    ],
    images: Annotated[
        Path | None,
        Option("--images", "-i", metavar="DATA", help="Also compare on these images; by default those of the gallery."),
    ] = None,
    tolerance: Annotated[float, Option(min=0, help="Largest accepted difference of scores and probabilities.")] = 1e-4,
    threads: Threads = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress, no summary.")] = False,
) -> None:
    """Write a model for programs without lmfcn: ONNX, or torch.export.

    The file holds the whole model: pixels in; label, scores and probabilities out. Before it is written, its
    predictions are compared with those of the model on images of many sizes. If a label or score differs, nothing is
    written.
    """
    ending = output.suffix.lower()
    if ending not in (".onnx", ".pt2"):
        raise ValueError(f"The output must end in .onnx or .pt2, got {output.name!r}.")
    from lmfcn.compute.resources import free_threads, use_threads
    from lmfcn.export import export_onnx, export_torch
    from lmfcn.model_file import load

    write = export_onnx if ending == ".onnx" else export_torch
    loaded = load(model, "cpu")  # the export always runs there
    compared = _gallery_images(model, loaded) if images is None else images
    with use_threads(threads or free_threads()):
        agreement = write(loaded, output, images=compared, tolerance=tolerance, verbose=not quiet)
    if not quiet:
        typer.echo(_summary(loaded, agreement, output))


def _gallery_images(path: Path, model: "TextureModel") -> "np.ndarray | None":
    """Return the thumbnails in the gallery beside a model, if there is one."""
    from lmfcn.explain.gallery import gallery_path, load_gallery

    beside = gallery_path(path)
    return load_gallery(beside, model).images_for(model) if beside.is_file() else None


def _summary(model: "TextureModel", agreement: "Agreement", output: Path) -> str:
    from lmfcn.data.framing import describe_channels

    few = (
        "" if agreement.n_labels > 1 else "\nOnly one class was predicted; --images FOLDER compares on your images too."
    )
    return (
        f"{output}: {output.stat().st_size / 1e6:.1f} MB, {len(model.classes)} classes,"
        f" images of {describe_channels(model.form.channels, model.form.pixels)}.\n"
        f"Compared with the model on {agreement.n_images} images of {agreement.n_sizes} sizes"
        f" ({agreement.n_labels} of {len(model.classes)} classes predicted): all labels equal,"
        f" scores and probabilities within {max(agreement.largest_difference, 1e-12):.0e}.{few}"
    )
