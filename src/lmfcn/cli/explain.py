"""`lmfcn explain`: why a model says what it says about an image."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from lmfcn.cli.options import AsJson, Device, GalleryFile, ModelFile, Quiet

if TYPE_CHECKING:
    import numpy as np

    from lmfcn.explain.explanation import DecidingImage, Explanation
    from lmfcn.explain.gallery import Gallery
    from lmfcn.model import TextureModel
    from lmfcn.report.overlay import Explained


def explain(
    model: ModelFile,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Image files.")],
    output: Annotated[Path, Option("--output", "-o", metavar="DIR", help="Folder for overlays and page.")] = Path(
        "explanation"
    ),
    top: Annotated[int, Option(min=1, help="Deciding images to list for and against.")] = 5,
    label: Annotated[
        str | None, Option("--class", metavar="NAME", help="Class to explain; else the predicted.")
    ] = None,
    gallery: GalleryFile = None,
    format_: Annotated[str, Option("--format", metavar="KIND", help="html: a page; json: explanation.json.")] = "html",
    device: Device = "auto",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Explain predictions: the training images that decide, and where in the image.

    Weights of the deciding images sum to the decision value, exactly; so does the map that is laid over the image.
    """
    from lmfcn.explain.explanation import explain as explain_one
    from lmfcn.explain.score_map import class_number
    from lmfcn.model_file import load
    from lmfcn.util.checks import check_choice
    from lmfcn.util.files import made_folder

    check_choice("--format", format_, ("html", "json"))
    loaded = load(model, device)
    if label is not None:
        class_number(loaded.classes, label)
    shown, missing = _gallery(loaded, model, gallery)
    ask = partial(explain_one, loaded, gallery=shown, label=label, top=top)
    with made_folder(output):
        explained = _explain_all(loaded, images, ask, verbose=not quiet and len(images) > 1)
    written = _write(explained, output, format_)
    if as_json:
        typer.echo(json.dumps(_as_json(explained), indent=2))
        return
    for entry in explained:
        _tell(entry)
    for line in [*([missing] if missing else []), *written]:
        typer.echo(line)


def _gallery(model: "TextureModel", path: Path, given: Path | None) -> "tuple[Gallery | None, str | None]":
    """Return the gallery of a model, or None and a sentence that says so."""
    from lmfcn.explain.gallery import gallery_path, load_gallery

    beside = gallery_path(path) if given is None else given
    if given is None and not beside.exists():
        return None, f"There is no gallery beside the model ({beside}), so deciding images have no names or pictures."
    return load_gallery(beside, model), None


def _explain_all(
    model: "TextureModel", paths: list[Path], ask: "Callable[[np.ndarray], Explanation]", *, verbose: bool
) -> "list[Explained]":
    from lmfcn.report.overlay import Explained
    from lmfcn.util.progress import item_progress

    explained = []
    with item_progress("Explaining", len(paths), visible=verbose) as advance:
        for path in paths:
            image = model.form.load([path])[0]
            explained.append(Explained.of(str(path), image, ask(image)))
            advance()
    return explained


def _write(explained: "list[Explained]", output: Path, format_: str) -> list[str]:
    """Write overlays and the page or JSON; return what to say about them."""
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
    return f"{number:03d}-{Path(entry.name).stem}.png"  # files of two folders may have one name


def _as_json(explained: "list[Explained]") -> list[dict[str, Any]]:
    return [
        {"image": entry.name, **entry.found.as_dict(), "overlay": _overlay_name(number, entry)}
        for number, entry in enumerate(explained, start=1)
    ]


def _tell(entry: "Explained") -> None:
    found = entry.found
    chances = ", ".join(f"{label} {chance:.3f}" for label, chance in found.probabilities.items())
    lines = [f"{entry.name}: {found.label}", f"  probabilities: {chances}"]
    if found.prediction_set is not None:
        lines.append(f"  cannot be ruled out (90 %): {', '.join(found.prediction_set)}")
    lines += [f"  for {found.explained}:", *map(_line, found.supporting)]
    lines += [f"  against {found.explained}:", *map(_line, found.opposing)]
    lines += _sum_lines(found)
    typer.echo("\n".join(lines))


def _line(image: "DecidingImage") -> str:
    return (
        f"    {image.weight:+9.4f}  {image.label or 'unknown class'}{'' if image.name is None else f'  {image.name}'}"
    )


def _sum_lines(found: "Explanation") -> list[str]:
    return [
        "  and:",
        f"    {found.rest:+9.4f}  the other {found.n_rest} support vectors",
        f"    {found.intercept:+9.4f}  constant",
        f"  = {found.value:+9.4f}  decision value of {found.explained}",
    ]
