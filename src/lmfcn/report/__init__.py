"""Figures and HTML pages of results. Needs the extra `report` (matplotlib and jinja2)."""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmfcn.benchmark.comparison import Outcome
    from lmfcn.benchmark.demonstration import DemoResult
    from lmfcn.benchmark.paper.reproduced_tables import Outcome as PaperOutcome
    from lmfcn.data.collection import ImageCollection
    from lmfcn.explain.audit import NamedAudit
    from lmfcn.report.overlay import Explained


def demo_report_writer() -> "Callable[[DemoResult, Path], None]":
    """Return the function that writes the demonstration's page; raise ImportError if a package is missing."""
    return _function("demo_page", "write_demo_report")


def comparison_report_writer() -> "Callable[[Outcome, Path], None]":
    """Return the function that writes the page of a comparison; raise ImportError if a package is missing."""
    return _function("comparison_page", "write_comparison_report")


def reproduction_report_writer() -> "Callable[[PaperOutcome, Path], None]":
    """Return the function that writes the page of a reproduction; raise ImportError if a package is missing."""
    return _function("paper_page", "write_reproduction_report")


def paper_figures_drawer() -> Callable[..., None]:
    """Return the function that draws the paper's figures; raise ImportError if a package is missing."""
    return _function("paper_figures", "draw_figures")


def training_report_writer() -> "Callable[..., None]":
    """Return the function that writes the page of a training; raise ImportError if a package is missing."""
    return _function("training_page", "write_training_report")


def explanation_report_writer() -> "Callable[[Sequence[Explained], Path], None]":
    """Return the function that writes the page of explanations; raise ImportError if a package is missing."""
    return _function("explanation_page", "write_explanation_report")


def audit_report_writer() -> "Callable[[NamedAudit, ImageCollection, str, Path], None]":
    """Return the function that writes the page of an audit; raise ImportError if a package is missing."""
    return _function("explanation_page", "write_audit_report")


def _function(module: str, name: str) -> Callable[..., None]:
    try:
        return getattr(import_module(f"lmfcn.report.{module}"), name)
    except ImportError as error:
        raise ImportError(
            f"Reports need matplotlib and jinja2 ({error}); install them with: pip install 'lmfcn[report]'."
        ) from error
