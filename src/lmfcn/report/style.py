"""The style of all figures and pages; colours that colour-blind readers can distinguish (Okabe and Ito)."""

import base64
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font

from lmfcn.util.class_style import class_color, class_mark
from lmfcn.util.files import write_text

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
REGION_COLORS = ("#cfe3f1", "#f8dcc8")
_MARKERS = {"circle": "o", "square": "s", "triangle": "^", "diamond": "D", "triangle-down": "v", "plus": "P"}
TRAIN, VALIDATION, SUPPORT, SELECTED = "#0072B2", "#D55E00", "#009E73", "#555555"
INK = "#333333"
WINNER, OTHERS = "#D55E00", "#56B4E9"
_WHITE, _GRID = "#ffffff", "#e6e6e6"
_DARK_COLORS = {
    _WHITE: "#1f2429",
    _GRID: "#3a424b",
    INK: "#d5dae0",
    "#000000": "#d5dae0",
    "#0072b2": "#2f8fd0",
    "#56b4e9": "#8fd0f5",
}
"""Replacements of white, black, grey and the blues on dark screens; all other colours stay."""


def class_style(number: int) -> tuple[str, str]:
    """Return the colour of a class and its marker in Matplotlib."""
    return class_color(number), _MARKERS[class_mark(number)]


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure; width and height are in inches."""
    return Figure(figsize=(width, height), layout="constrained", facecolor=_WHITE)


def tidy(axes: Axes) -> None:
    """Remove the frame at the top and the right, and add a light grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=9)


def as_svg(figure: Figure, *, adapts: bool = True) -> str:
    """Return the figure as the data URL of an SVG image; the same figure gives the same text.

    With `adapts`, background, axes and text change colour on dark screens.
    """
    return svg_address(svg_bytes(figure, adapts=adapts))


def svg_address(content: bytes) -> str:
    """Return the content of an SVG file as a data URL."""
    return "data:image/svg+xml;base64," + base64.b64encode(content).decode()


def svg_bytes(figure: Figure, *, adapts: bool = True) -> bytes:
    """Return the figure as the content of an SVG file; see `as_svg`."""
    buffer = io.StringIO()
    # The salt makes names of clip paths and markers repeatable; text as outlines would be most of a small file.
    with rc_context({"svg.hashsalt": "lmfcn", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = _with_short_paths(buffer.getvalue())
    if adapts:
        text = text.replace("<defs>", f"<style>{_dark_style()}</style>\n <defs>", 1)
    return text.encode()


def png_bytes(figure: Figure, dpi: int = 110) -> bytes:
    """Return the figure as the content of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def _with_short_paths(text: str) -> str:
    """Cut coordinates after two decimal places: the difference is invisible, and long curves need half the bytes."""
    return re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path.group()), text)


def _dark_style() -> str:
    rules = [f"svg {{fill: {_DARK_COLORS['#000000']}}}"]  # black text has no colour attribute
    for light, dark in _DARK_COLORS.items():
        for kind in ("fill", "stroke"):
            rules.append(f'[style*="{kind}: {light}"] {{{kind}: {dark} !important}}')
    return f"@media screen and (prefers-color-scheme: dark) {{{' '.join(rules)}}}"


def drawable(names: Sequence[str], longest: int = 18) -> list[str]:
    """Return class names for figures: shortened, or replaced by numbers where the font lacks their letters.

    Examples
    --------
    >>> drawable(["bark", "a very long name of a class", "树"])
    ['bark', 'a very long name …', 'class 3']
    """
    font = get_font(findfont("DejaVu Sans"))
    labels = []
    for number, name in enumerate(names, start=1):
        short = name if len(name) <= longest else name[: longest - 1] + "…"
        known = all(font.get_char_index(ord(letter)) for letter in short)
        labels.append(short.replace("$", r"\$") if known else f"class {number}")
    return labels


def as_png(figure: Figure, dpi: int = 110) -> str:
    """Return the figure as the data URL of a PNG image."""
    return "data:image/png;base64," + base64.b64encode(png_bytes(figure, dpi)).decode()


def write_page(path: Path, template: str, content: Mapping[str, Any]) -> None:
    """Render a template and write the page; an existing file is replaced whole or not at all."""
    environment = Environment(
        loader=PackageLoader("lmfcn.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    write_text(path, environment.get_template(template).render(content))
