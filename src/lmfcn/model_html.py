"""What a notebook shows of a model: a small table and the held-out confusions, without any package for pictures."""

from collections.abc import Sequence
from html import escape
from typing import Any

from lmfcn.model import TextureModel
from lmfcn.model_file import describe_images, describe_model
from lmfcn.util.progress import format_seconds

_MOST_NAMES, _MOST_DRAWN, _MOST_NUMBERS = 12, 30, 10
_LONGEST_NAME, _LETTER = 14, 6.5
_LARGE_CELL, _SMALL_CELL = 26, 10  # pixels, with and without numbers
_BLUE, _ON_BLUE = "#0072B2", "#ffffff"
_BOX = "font-family:sans-serif;font-size:13px;display:inline-block;border:1px solid #8888;border-radius:6px;padding:8px"
_TABLE = "border-collapse:collapse;align-self:flex-start;font-size:inherit"
_NAME_CELL, _TEXT_CELL = "text-align:left;vertical-align:top;padding:1px 12px 1px 0", "text-align:left;padding:1px 0"


def model_html(model: TextureModel, title: str = "TextureModel", seconds: float | None = None, more: str = "") -> str:
    """Return a model as HTML: classes, held-out accuracy, network, size, time of the fit, and a confusion matrix.

    Parameters
    ----------
    model : TextureModel
    title : str
    seconds : float, optional
        Time of the fit.
    more : str
        HTML that is folded away under "Parameters".
    """
    told = describe_model(model)
    lines = {**_lines(model, told), **({} if seconds is None else {"fit": format_seconds(seconds)})}
    rows = "".join(
        f'<tr><th scope="row" style="{_NAME_CELL}">{name}</th><td style="{_TEXT_CELL}">{escape(text)}</td></tr>'
        for name, text in lines.items()
    )
    counts = (told.get("held_out") or {}).get("confusion")
    picture = "" if counts is None else confusion_svg(counts, [str(label) for label in told["classes"]])
    folded = f"<details><summary>Parameters</summary>{more}</details>" if more else ""
    return (
        f'<div style="{_BOX}"><b>{escape(title)}</b><div style="display:flex;gap:24px;flex-wrap:wrap">'
        f'<table style="{_TABLE}">{rows}</table>{picture}</div>{folded}</div>'
    )


def _lines(model: TextureModel, told: dict[str, Any]) -> dict[str, str]:
    """Return names and texts of the table; a model that was put together by hand has fewer."""
    classes = [str(label) for label in told["classes"]]
    more = f" and {len(classes) - _MOST_NAMES} more" if len(classes) > _MOST_NAMES else ""
    names = ", ".join(classes[:_MOST_NAMES]) + more
    lines = {"classes": f"{len(classes)}: {names}", "images": describe_images(model.form)}
    if data := told.get("data"):
        lines["trained on"] = f"{data['n_train']} images, {data['n_validation']} others held out for validation"
    held_out = told.get("held_out") or {}
    if held_out.get("balanced_accuracy") is not None:
        kind = "cross-validated training" if held_out["seen_in_training"] else "held-out"
        lines["accuracy"] = f"{held_out['balanced_accuracy']:.3f} balanced, on {held_out['n_images']} {kind} images"
    if test := told.get("test"):
        lines["test"] = f"{test['balanced_accuracy']['value']:.3f} balanced, on {test['n_images']} test images"
    network = "from scratch" if told["trunk"] is None else f"{told['trunk']['name']}, frozen"
    lines["network"] = f"{network}; {told['networks']['n_weights']:,} weights in all"
    lines["decision"] = f"SVM with {told['n_support']} support vectors in {told['n_features']} dimensions"
    n_bytes = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    lines["size"] = f"{n_bytes / 1e6:.1f} MB in memory"
    return lines


def confusion_svg(counts: Sequence[Sequence[int]], classes: Sequence[str]) -> str:
    """Return a confusion matrix as an SVG picture; darker cells are larger shares of their row.

    More than thirty classes give no picture.

    Examples
    --------
    >>> picture = confusion_svg([[8, 2], [0, 10]], ["bark", "wood"])
    >>> picture.count("<rect"), "bark predicted as wood: 2 of 10" in picture
    (4, True)
    """
    n_classes = len(classes)
    if n_classes > _MOST_DRAWN:
        return ""
    cell = _LARGE_CELL if n_classes <= _MOST_NUMBERS else _SMALL_CELL
    names = [name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…" for name in classes]
    margin = round(_LETTER * max(map(len, names))) + 6
    parts = [
        _cell(counts, classes, (row, column), cell, margin) for row in range(n_classes) for column in range(n_classes)
    ]
    parts += [_names(number, name, cell, margin) for number, name in enumerate(names)]
    side = margin + n_classes * cell + 2
    return (
        f'<svg width="{side}" height="{side}" role="img" font-size="{min(11, cell)}" font-family="sans-serif"'
        f' fill="currentColor"><title>Held-out images by true class (rows) and predicted class (columns)</title>'
        f"{''.join(parts)}</svg>"
    )


def _cell(
    counts: Sequence[Sequence[int]], classes: Sequence[str], place: tuple[int, int], cell: int, margin: int
) -> str:
    """Return one cell with its number, if there is room, and a text that appears under the mouse."""
    row, column = place
    count, total = counts[row][column], sum(counts[row])
    share = count / max(total, 1)
    x, y = margin + column * cell, margin + row * cell
    text = escape(f"{classes[row]} predicted as {classes[column]}: {count} of {total}")
    drawn = (
        f'<rect x="{x}" y="{y}" width="{cell}" height="{cell}" fill="{_BLUE}" fill-opacity="{share:.2f}"'
        f' stroke="#8886"><title>{text}</title></rect>'
    )
    if not count or cell == _SMALL_CELL:
        return drawn
    color = f' fill="{_ON_BLUE}"' if share > 0.5 else ""
    half = cell / 2
    return drawn + f'<text x="{x + half}" y="{y + half + 4}" text-anchor="middle"{color}>{count}</text>'


def _names(number: int, name: str, cell: int, margin: int) -> str:
    """Return the name of a class beside its row and, turned, above its column."""
    middle = margin + (number + 0.5) * cell
    name = escape(name)
    return (
        f'<text x="{margin - 4}" y="{middle + 4}" text-anchor="end">{name}</text>'
        f'<text transform="translate({middle + 4} {margin - 4}) rotate(-90)">{name}</text>'
    )
