"""The page of `lmfcn demo`: a self-contained HTML file."""

from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from lmfcn import __version__
from lmfcn.benchmark.demonstration import DemoResult, DemoRun, PhotographRun
from lmfcn.data.framing import make_thumbnail, to_data_url
from lmfcn.explain.explanation import explain
from lmfcn.explain.gallery import Gallery
from lmfcn.recipe import Recipe
from lmfcn.report.curves import comparison_curves, training_curves
from lmfcn.report.explanation_page import write_explanation_report
from lmfcn.report.latent_plots import anchor_figure, epoch_frame, illustrative_epoch, sample_images, shared_limits
from lmfcn.report.overlay import Explained
from lmfcn.report.style import as_png, as_svg, class_style, new_figure, write_page


def write_demo_report(result: DemoResult, path: Path) -> None:
    """Write the page of the demonstration and, beside it, that of one explained decision."""
    explained = _explain_hardest(result.photographs)
    write_explanation_report([explained], path.with_name("explanation.html"))
    write_page(path, "demo.html", {**_demo_content(result), **_photograph_content(result.photographs, explained)})


def _demo_content(result: DemoResult) -> dict[str, Any]:
    two_dimensional, *_ = result.runs
    shown = illustrative_epoch(result.spaces)
    limits = shared_limits(result.spaces)
    refit = result.runs[1].refit_history
    return {
        "settings": result.settings,
        "passes": Recipe().passes,
        "rows": [_row(run) for run in result.runs],
        "best": max(run.test_balanced_accuracy for run in result.runs),
        "samples": as_svg(sample_images(*result.samples)),
        "curves": [
            (run.name, as_svg(training_curves(run.history, run.selected_epoch, refit=run.refit_history)))
            for run in result.runs[:2]
        ],
        "n_refit_epochs": 0 if refit is None else len(refit) - 1,
        "comparison": as_svg(comparison_curves({run.name: run.history for run in result.runs})),
        "anchors": as_svg(anchor_figure(result.spaces[shown], result.train_labels, limits), adapts=False),
        "anchors_epoch": shown,
        "frames": [
            as_png(epoch_frame(space, result.train_labels, limits, _frame_title(two_dimensional, epoch)))
            for epoch, space in enumerate(result.spaces)
        ],
        "made": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
        "versions": {"lmfcn": __version__, **{name: version(name) for name in ("torch", "scikit-learn", "numpy")}},
    }


def _row(run: DemoRun) -> dict[str, Any]:
    selected, support = run.history[run.selected_epoch], getattr(run.history[0], "n_support", None)
    return {
        "name": run.name,
        "weights": run.n_weights,
        "selected_epoch": run.selected_epoch,
        "train": selected.train_balanced_accuracy,
        "validation": selected.validation_balanced_accuracy,
        "test": run.test_balanced_accuracy,
        "support": None if support is None else (support, getattr(selected, "n_support")),  # noqa: B009
        "images": sum(
            sum(phase.column("n_backpropagated")) for phase in (run.history, run.refit_history) if phase is not None
        ),
        "seconds": run.seconds,
    }


def _frame_title(run: DemoRun, epoch: int) -> str:
    record = run.history[epoch]
    mark = ", selected" if epoch == run.selected_epoch else ""
    return (
        f"epoch {epoch}{mark}: {getattr(record, 'n_support')} support vectors,"  # noqa: B009
        f" validation {record.validation_balanced_accuracy:.3f}"
    )


def _explain_hardest(run: PhotographRun) -> Explained:
    image, label = run.test[run.hardest], np.asarray(run.test.labels)[run.hardest]
    gallery = Gallery.of(run.classifier, run.train, validation=run.validation)
    found = explain(run.classifier.model_, image, gallery)
    return Explained.of(f"A tile of {label}", image, found)


def _photograph_content(run: PhotographRun, explained: Explained) -> dict[str, Any]:
    return {
        "photographs": run,
        "photograph_samples": as_svg(sample_images(run.train.to_array()[..., 0], np.asarray(run.train.labels))),
        "mosaic": as_png(_mosaic_figure(run)),
        "explained": explained,
        "tile": to_data_url(make_thumbnail(explained.image, 256)),
        "overlay": to_data_url(explained.overlay, "png"),
    }


def _mosaic_figure(run: PhotographRun) -> Figure:
    """Draw the mosaic beside its map."""
    classes = run.classifier.classes_
    colors = [class_style(number)[0] for number in range(len(classes))]
    figure = new_figure(9, 3.6)
    left, right = figure.subplots(1, 2)
    left.imshow(run.mosaic, cmap="gray", vmin=0, vmax=255)
    numbers = np.searchsorted(classes, run.mapped)
    right.imshow(numbers, cmap=ListedColormap(colors), vmin=0, vmax=len(classes) - 1, interpolation="nearest")
    for axes, title in ((left, "mosaic"), (right, f"map, {run.share_right:.0%} of all pixels right")):
        axes.set_title(title, fontsize=10)
        axes.set_axis_off()
    patches = [Patch(color=color, label=str(label)) for color, label in zip(colors, classes, strict=True)]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(classes), frameon=False, fontsize=9)
    return figure
