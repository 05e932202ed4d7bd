"""`lmfcn explain`: show why a model predicts a class."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from lmfcn.cli.console import CommandConsole
from lmfcn.cli.options import AsJson, Device, GalleryFile, ModelFile, Quiet, Threads, compute_with

if TYPE_CHECKING:
    import numpy as np

    from lmfcn.explain.explanation import DecidingImage, Explanation
    from lmfcn.explain.gallery import Gallery
    from lmfcn.model import TextureModel
    from lmfcn.report.overlay import Explained


def explain(
    context: typer.Context,
    model: ModelFile,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Image files.")],
    output: Annotated[Path, Option("--output", "-o", metavar="DIR", help="Folder for overlays and the page.")] = Path(
        "explanation"
    ),
    top: Annotated[int, Option(min=1, help="Number of deciding images to list for and against.")] = 5,
    label: Annotated[
        str | None, Option("--class", metavar="NAME", help="Class to explain; by default the predicted one.")
    ] = None,
    gallery: GalleryFile = None,
    format_: Annotated[str, Option("--format", metavar="KIND", help="html: a page; json: explanation.json.")] = "html",
    threads: Threads = None,
    device: Device = "auto",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Explain predictions by training images and by regions of the image.

    The weights of the support vectors and a constant sum to the decision value. So does the map over the image.
    """
    CommandConsole(quiet).load_libraries()
    from lmfcn.explain.explanation import explain as explain_one
    from lmfcn.explain.score_map import class_number
    from lmfcn.model_file import load
    from lmfcn.util.checks import check_choice
    from lmfcn.util.files import create_folder

    check_choice("--format", format_, ("html", "json"))
    compute_with(context, threads)
    loaded = load(model, device)
    if label is not None:
        class_number(loaded.classes, label)
    training_images, missing = _load_gallery(loaded, model, gallery)
    explain_image = partial(explain_one, loaded, gallery=training_images, label=label, top=top)
    with create_folder(output):
        explained = _explain_all(loaded, images, explain_image, verbose=not quiet and len(images) > 1)
    written = _write(explained, output, format_)
    if as_json:
        typer.echo(json.dumps(_as_json(explained), indent=2))
        return
    for entry in explained:
        _print_result(entry)
    for line in [*([missing] if missing else []), *written]:
        typer.echo(line)


def _load_gallery(model: "TextureModel", path: Path, given: Path | None) -> "tuple[Gallery | None, str | None]":
    """Return the gallery of a model, or None and a sentence about its absence."""
    from lmfcn.explain.gallery import gallery_path, load_gallery

    beside = gallery_path(path) if given is None else given
    if given is None and not beside.exists():
        return None, f"There is no gallery beside the model ({beside}), so deciding images have no names or pictures."
    return load_gallery(beside, model), None


def _explain_all(
    model: "TextureModel", paths: list[Path], explain_image: "Callable[[np.ndarray], Explanation]", *, verbose: bool
) -> "list[Explained]":
    from lmfcn.data.image_files import probe_image
    from lmfcn.report.overlay import Explained
    from lmfcn.util.progress import item_progress

    explained = []
    with item_progress("Explaining", len(paths), visible=verbose) as advance:
        for path in paths:
            image = model.form.load([path])[0]
            header = probe_image(path) if model.form.preprocessing.fit == "resize" else None
            shape = None if header is None else (header.height, header.width)
            explained.append(Explained.of(str(path), image, explain_image(image), shape))
            advance()
    return explained


def _write(explained: "list[Explained]", output: Path, format_: str) -> list[str]:
    """Write overlays and the page or JSON; return lines about them."""
    from lmfcn.report import explanation_report_writer
    from lmfcn.util.files import write_bytes, write_text

    for number, entry in enumerate(explained, start=1):
        write_bytes(output / _overlay_name(number, entry), entry.overlay)
    lines = [f"Overlay: {output / _overlay_name(1, explained[0])}"]
    if len(explained) > 1:
        lines = [f"Overlays: {len(explained)} files in {output}"]
    if format_ == "json":
        write_text(output / "explanation.json", json.dumps(_as_json(explained), indent=2) + "\n")
        return [*lines, f"JSON: {output / 'explanation.json'}"]
    try:
        write_explanation_report = explanation_report_writer()
    except ImportError as error:
        return [*lines, str(error)]
    write_explanation_report(explained, output / "explanation.html")
    return [*lines, f"Page: {output / 'explanation.html'}"]


def _overlay_name(number: int, entry: "Explained") -> str:
    return f"{number:03d}-{Path(entry.name).stem}.png"  # files in two folders may have the same name


def _as_json(explained: "list[Explained]") -> list[dict[str, Any]]:
    return [
        {"image": entry.name, **entry.found.as_dict(), "overlay": _overlay_name(number, entry)}
        for number, entry in enumerate(explained, start=1)
    ]


def _print_result(entry: "Explained") -> None:
    found = entry.found
    probabilities = ", ".join(f"{label} {value:.3f}" for label, value in found.probabilities.items())
    lines = [f"{entry.name}: {found.label}", f"  probabilities: {probabilities}"]
    if found.prediction_set is not None:
        lines.append(f"  cannot be ruled out (90 %): {', '.join(found.prediction_set)}")
    lines += [f"  for {found.explained}:", *map(_weight_line, found.supporting)]
    lines += [f"  against {found.explained}:", *map(_weight_line, found.opposing)]
    lines += _sum_lines(found)
    typer.echo("\n".join(lines))


def _weight_line(image: "DecidingImage") -> str:
    return (
        f"    {image.weight:+9.4f}  {image.label or 'unknown class'}{'' if image.name is None else f'  {image.name}'}"
    )


def _sum_lines(found: "Explanation") -> list[str]:
    return [
        "  and:",
        f"    {found.rest:+9.4f}  the other {found.n_rest} support vectors",
        f"    {found.intercept:+9.4f}  constant",
        f"  = {found.value:+9.4f}  decision value of {found.explained}",
        f"    {found.standing}",
    ]
