"""One look for all figures and pages; colours that colour-blind readers can tell apart (Okabe and Ito)."""

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

from lmfcn.util.files import write_text

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
CLASS_COLORS = ("#0072B2", "#D55E00")
REGION_COLORS = ("#cfe3f1", "#f8dcc8")
CLASS_MARKERS = ("o", "X")
TRAIN, VALIDATION, SUPPORT, KEPT = "#0072B2", "#D55E00", "#009E73", "#555555"
INK = "#333333"
WINNER, OTHERS = "#D55E00", "#56B4E9"
_WHITE, _GRID = "#ffffff", "#e6e6e6"
_IN_THE_DARK = {
    _WHITE: "#1f2429",
    _GRID: "#3a424b",
    INK: "#d5dae0",
    "#000000": "#d5dae0",
    "#0072b2": "#2f8fd0",
    "#56b4e9": "#8fd0f5",
}
"""What stands for white, black, grey and the blues where the reader's screen is dark; all other colours stay."""


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of that many inches."""
    return Figure(figsize=(width, height), layout="constrained", facecolor=_WHITE)


def tidy(axes: Axes) -> None:
    """Leave only what helps to read the values."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=9)


def as_svg(figure: Figure, *, adapts: bool = True) -> str:
    """Return the figure as the address of an inline SVG image; the same figure gives the same text.

    Unless `adapts` is off, its background, axes and text follow a dark screen.
    """
    return svg_address(svg_bytes(figure, adapts=adapts))


def svg_address(content: bytes) -> str:
    """Return the content of an SVG file as the address of an inline image."""
    return "data:image/svg+xml;base64," + base64.b64encode(content).decode()


def svg_bytes(figure: Figure, *, adapts: bool = True) -> bytes:
    """Return the figure as the content of an SVG file; see `as_svg`."""
    buffer = io.StringIO()
    # Names of clip paths and markers are random otherwise; letters as outlines make most of a small figure.
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
    """Cut coordinates after a hundredth of a point: nobody sees more, and long curves are half as large."""
    return re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path.group()), text)


def _dark_style() -> str:
    rules = [f"svg {{fill: {_IN_THE_DARK['#000000']}}}"]  # text in black has no colour of its own
    for light, dark in _IN_THE_DARK.items():
        for kind in ("fill", "stroke"):
            rules.append(f'[style*="{kind}: {light}"] {{{kind}: {dark} !important}}')
    return f"@media screen and (prefers-color-scheme: dark) {{{' '.join(rules)}}}"


def drawable(names: Sequence[str], longest: int = 18) -> list[str]:
    """Return names of classes as figures can show them: shortened, or numbered where the font lacks their letters.

    Examples
    --------
    >>> drawable(["bark", "a very long name of a class", "树"])
    ['bark', 'a very long name …', 'class 3']
    """
    font = get_font(findfont("DejaVu Sans"))
    shown = []
    for number, name in enumerate(names, start=1):
        short = name if len(name) <= longest else name[: longest - 1] + "…"
        known = all(font.get_char_index(ord(letter)) for letter in short)
        shown.append(short.replace("$", r"\$") if known else f"class {number}")
    return shown


def as_png(figure: Figure, dpi: int = 110) -> str:
    """Return the figure as the address of an inline PNG image."""
    return "data:image/png;base64," + base64.b64encode(png_bytes(figure, dpi)).decode()


def write_page(path: Path, template: str, content: Mapping[str, Any]) -> None:
    """Write the page; a file of that name is replaced whole or not at all."""
    environment = Environment(
        loader=PackageLoader("lmfcn.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    write_text(path, environment.get_template(template).render(content))
