"""One look for all figures; colours that colour-blind readers can tell apart (Okabe and Ito)."""

import base64
import io

from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
CLASS_COLORS = ("#0072B2", "#D55E00")
REGION_COLORS = ("#cfe3f1", "#f8dcc8")
CLASS_MARKERS = ("o", "X")
TRAIN, VALIDATION, SUPPORT, KEPT = "#0072B2", "#D55E00", "#009E73", "#555555"
INK = "#333333"


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of that many inches."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def tidy(axes: Axes) -> None:
    """Leave only what helps to read the values."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=9)


def as_svg(figure: Figure) -> str:
    """Return the figure as the address of an inline SVG image; the same figure gives the same text."""
    return svg_address(svg_bytes(figure))


def svg_address(content: bytes) -> str:
    """Return the content of an SVG file as the address of an inline image."""
    return "data:image/svg+xml;base64," + base64.b64encode(content).decode()


def svg_bytes(figure: Figure) -> bytes:
    """Return the figure as the content of an SVG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def png_bytes(figure: Figure, dpi: int = 110) -> bytes:
    """Return the figure as the content of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def as_png(figure: Figure, dpi: int = 110) -> str:
    """Return the figure as the address of an inline PNG image."""
    return "data:image/png;base64," + base64.b64encode(png_bytes(figure, dpi)).decode()
