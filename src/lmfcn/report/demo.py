"""The demonstration's page: one self-contained HTML file."""

from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lmfcn import __version__
from lmfcn.algorithm.settings import Settings
from lmfcn.experiments.demo import DemoResult, DemoRun
from lmfcn.report.curves import comparison_curves, training_curves
from lmfcn.report.page import write_page
from lmfcn.report.samples import sample_images
from lmfcn.report.space import anchor_figure, epoch_frame, shared_limits, telling_epoch
from lmfcn.report.style import as_png, as_svg


def write_demo_report(result: DemoResult, path: Path) -> None:
    """Write the page; a file of that name is replaced whole or not at all."""
    write_page(path, "demo.html", _content(result))


def _content(result: DemoResult) -> dict[str, Any]:
    flat, *_ = result.runs
    shown = telling_epoch(result.spaces)
    limits = shared_limits(result.spaces)
    return {
        "settings": result.settings,
        "passes": Settings().passes,
        "rows": [_row(run) for run in result.runs],
        "best": max(run.test_balanced_accuracy for run in result.runs),
        "samples": as_svg(sample_images(*result.samples)),
        "curves": [
            (run.name, as_svg(training_curves(run.history, run.kept_epoch, closing=run.closing)))
            for run in result.runs[:2]
        ],
        "n_closing": 0 if result.runs[1].closing is None else len(result.runs[1].closing) - 1,
        "comparison": as_svg(comparison_curves({run.name: run.history for run in result.runs})),
        "anchors": as_svg(anchor_figure(result.spaces[shown], result.train_labels, limits), adapts=False),
        "anchors_epoch": shown,
        "frames": [
            as_png(epoch_frame(space, result.train_labels, limits, _frame_title(flat, epoch)))
            for epoch, space in enumerate(result.spaces)
        ],
        "flat": _row(flat),
        "made": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
        "versions": {"lmfcn": __version__, **{name: version(name) for name in ("torch", "scikit-learn", "numpy")}},
    }


def _row(run: DemoRun) -> dict[str, Any]:
    kept, support = run.history[run.kept_epoch], getattr(run.history[0], "n_support", None)
    return {
        "name": run.name,
        "weights": run.n_weights,
        "kept_epoch": run.kept_epoch,
        "train": kept.train_balanced_accuracy,
        "validation": kept.validation_balanced_accuracy,
        "test": run.test_balanced_accuracy,
        "support": None if support is None else (support, getattr(kept, "n_support")),  # noqa: B009
        "images": sum(
            sum(phase.column("n_backpropagated")) for phase in (run.history, run.closing) if phase is not None
        ),
        "seconds": run.seconds,
    }


def _frame_title(run: DemoRun, epoch: int) -> str:
    record = run.history[epoch]
    kept = ", kept" if epoch == run.kept_epoch else ""
    return (
        f"epoch {epoch}{kept}: {getattr(record, 'n_support')} support vectors,"  # noqa: B009
        f" validation {record.validation_balanced_accuracy:.3f}"
    )
