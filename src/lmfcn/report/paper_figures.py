"""The paper's figures 1 and 3 drawn from our own trainings, and our accuracies beside the paper's."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lmfcn.benchmark.paper.image_sets import GAUSSIAN
from lmfcn.benchmark.paper.profiles import (
    OURS,
    PAPER,
    PROFILES,
    SV_CLOSE,
    FigureTraining,
    Profile,
    figure_parameters,
    train_for_figure,
)
from lmfcn.benchmark.paper.reproduced_tables import Line
from lmfcn.data.training_data import fingerprint
from lmfcn.recipe import Recipe
from lmfcn.report.curves import training_curves
from lmfcn.report.latent_plots import anchor_figure, illustrative_epoch, shared_limits
from lmfcn.report.style import INK, new_figure, png_bytes, svg_bytes, tidy
from lmfcn.util.files import write_bytes, write_text
from lmfcn.util.packages import machine, versions


@dataclass(frozen=True)
class Picture:
    """One picture of one of the paper's figures.

    Attributes
    ----------
    figure : str
        "figure1" or "figure3".
    file : str
        Name of its files without their endings.
    training : str
        Method of the training that it shows.
    """

    figure: str
    file: str
    training: str

    @property
    def sv_close(self) -> int:
        """Anchors of each support vector, in the training and in the picture."""
        return SV_CLOSE[self.figure]

    def parameters(self, profile: Profile) -> dict[str, Any]:
        """Return the parameters of its training, as JSON can hold them."""
        values = figure_parameters(profile, self.training, self.sv_close)
        recipe = values["recipe"]
        return {**values, "recipe": asdict(recipe) if isinstance(recipe, Recipe) else recipe}

    def digest(self, profile: Profile) -> str:
        """Return a digest of everything that the picture depends on."""
        values = [self.file, GAUSSIAN, asdict(profile), self.parameters(profile)]
        return fingerprint(None, json.dumps(values, sort_keys=True, default=str))


PICTURES = (
    Picture("figure1", "figure1", PAPER),
    Picture("figure1", "figure1-our-defaults", OURS),
    Picture("figure3", "figure3", PAPER),
    Picture("figure3", "figure3-our-defaults", OURS),
)


def draw_figures(wanted: Iterable[str], profile: Profile, folder: Path, *, verbose: bool = False) -> None:
    """Draw the missing pictures of some figures, each as SVG and PNG, with a JSON record of its training.

    Parameters
    ----------
    wanted : iterable of str
        Of "figure1" and "figure3".
    profile : Profile
    folder : Path
    verbose : bool, default=False
        Show progress bars.
    """
    names = list(wanted)
    for picture in (picture for picture in PICTURES if picture.figure in names):
        if read_record(picture, profile, folder) is None:
            _draw(picture, profile, folder, verbose=verbose)


def existing_pictures(
    wanted: Sequence[str], profile: Profile, folder: Path
) -> Iterator[tuple[Picture, dict[str, Any]]]:
    """Yield the pictures that have been drawn, with their records."""
    for picture in PICTURES:
        record = read_record(picture, profile, folder)
        if picture.figure in wanted and record is not None:
            yield picture, record


def read_record(picture: Picture, profile: Profile, folder: Path) -> dict[str, Any] | None:
    """Return the record of a picture, or None if it is missing or was drawn with other parameters."""
    paths = [folder / f"{picture.file}{ending}" for ending in (".json", ".svg", ".png")]
    if not all(path.is_file() for path in paths):
        return None
    try:
        record = json.loads(paths[0].read_text(encoding="utf-8"))
    except ValueError:
        return None
    valid = isinstance(record, dict) and record.get("digest") == picture.digest(profile)
    return record if valid else None


def _draw(picture: Picture, profile: Profile, folder: Path, *, verbose: bool) -> None:
    training = train_for_figure(profile, picture.training, picture.sv_close, verbose=verbose)
    figure, epoch = _figure(picture, training)
    if title := setting_title(profile):
        figure.suptitle(title, fontsize=9, color="#A04000")
    write_bytes(folder / f"{picture.file}.svg", svg_bytes(figure))
    write_bytes(folder / f"{picture.file}.png", png_bytes(figure, dpi=150))
    record = {
        "digest": picture.digest(profile),
        "profile": profile.name,
        "epoch_shown": epoch,
        "kept_epoch": training.selected_epoch,
        "test_balanced_accuracy": training.test_balanced_accuracy,
        "seconds": round(training.seconds, 1),
        "parameters": picture.parameters(profile),
        "history": [asdict(entry) for entry in training.history],
        "versions": versions(),
        "machine": machine(),
    }
    write_text(
        folder / f"{picture.file}.json", json.dumps(record, indent=1) + "\n"
    )  # last: it shows that the others are complete


def setting_title(profile: Profile) -> str:
    """Return a title for settings that differ from the paper's; empty if they do not."""
    tag = replace(profile, repeats=PROFILES["full"].repeats).tag  # a picture shows one training
    return f"{tag.capitalize()}: not the paper's setting" if tag else ""


def _figure(picture: Picture, training: FigureTraining) -> tuple[Figure, int | None]:
    """Return the picture, and the epoch if it shows a single one."""
    if picture.figure == "figure3":
        return training_curves(training.history, training.selected_epoch, training.test_balanced_accuracy), None
    epoch = illustrative_epoch(training.spaces)
    space = training.spaces[epoch]
    any_class = picture.training == PAPER  # equation 6
    return anchor_figure(space, training.labels, shared_limits([space]), picture.sv_close, any_class=any_class), epoch


_OURS, _PAPER = "#56B4E9", "#D55E00"
_SHIFT = 0.14


def paper_accuracy_plot(lines: Sequence[Line]) -> Figure:
    """Draw our test accuracies as dots, and the paper's mean ± standard deviation as a diamond with a bar.

    Parameters
    ----------
    lines : sequence of Line
        Lines with runs, from top to bottom.
    """
    figure = new_figure(7.5, 1.2 + 0.34 * len(lines))
    axes = figure.subplots()
    for number, line in enumerate(lines):
        scores, printed = [run.test_balanced_accuracy for run in line.runs], line.paper("test")
        heights = number - _SHIFT + np.linspace(-0.08, 0.08, len(scores)) if len(scores) > 1 else [number - _SHIFT]
        axes.scatter(scores, heights, s=26, color=_OURS, edgecolors=INK, linewidths=0.6, zorder=3)
        if printed is not None:
            axes.errorbar(
                printed.mean, number + _SHIFT, xerr=printed.deviation, fmt="D", color=_PAPER, markersize=5, capsize=2
            )
    names = [f"{line.row.task.images}: {line.row.label}" for line in lines]
    axes.set_yticks(range(len(lines)), labels=names)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xlabel("test balanced accuracy")
    tidy(axes)
    axes.grid(visible=False, axis="y")
    figure.legend(handles=_legend(), frameon=False, ncols=2, loc="outside upper center", fontsize=9)
    return figure


def _legend() -> list[Line2D]:
    return [
        Line2D([], [], color=_OURS, marker="o", linestyle="none", markeredgecolor=INK, label="ours, each repetition"),
        Line2D([], [], color=_PAPER, marker="D", linestyle="-", label="the paper, mean ± standard deviation"),
    ]
