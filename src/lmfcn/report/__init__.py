"""Showing what was measured. Needs the extra `report` (matplotlib and jinja2)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmfcn.data.collections import ImageCollection
    from lmfcn.experiments.comparing import Outcome
    from lmfcn.experiments.demo import DemoResult
    from lmfcn.explain.audit_table import Audited
    from lmfcn.report.overlay import Explained


def demo_report_writer() -> "Callable[[DemoResult, Path], None]":
    """Return the function that writes the demonstration's page, or say what must be installed for it."""
    try:
        from lmfcn.report.demo import write_demo_report
    except ImportError as error:
        raise _missing(error) from error
    return write_demo_report


def comparison_report_writer() -> "Callable[[Outcome, Path], None]":
    """Return the function that writes the page of a comparison, or say what must be installed for it."""
    try:
        from lmfcn.report.comparison import write_comparison_report
    except ImportError as error:
        raise _missing(error) from error
    return write_comparison_report


def explanation_report_writer() -> "Callable[[Sequence[Explained], Path], None]":
    """Return the function that writes the page of explanations, or say what must be installed for it."""
    try:
        from lmfcn.report.explanation import write_explanation_report
    except ImportError as error:
        raise _missing(error) from error
    return write_explanation_report


def audit_report_writer() -> "Callable[[Audited, ImageCollection, str, Path], None]":
    """Return the function that writes the page of an audit, or say what must be installed for it."""
    try:
        from lmfcn.report.audit import write_audit_report
    except ImportError as error:
        raise _missing(error) from error
    return write_audit_report


def _missing(error: ImportError) -> ImportError:
    return ImportError(f"Reports need matplotlib and jinja2 ({error}); install them with: pip install 'lmfcn[report]'.")
