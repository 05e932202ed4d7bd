"""`lmfcn compare`: all methods that can run, on repeated splits of the user's own images."""

import csv
import io
import json
import shlex
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from lmfcn.benchmark.exhibit import Exhibit, exhibit_path, read_exhibit
from lmfcn.benchmark.measure import (
    CHANGES,
    DEFAULT_METHODS,
    ON_TOP_OF_CNN,
    QUICK_CHANGES,
    WEIGHT_OPTIONS,
    Changes,
    able_methods,
    choose_methods,
)
from lmfcn.benchmark.runs import Run, read_runs
from lmfcn.benchmark.scheduler import Ended, GoOn, Report, Study
from lmfcn.benchmark.tables import HEADINGS, NOTHING, interval, markdown_table, row
from lmfcn.benchmark.tasks import DataSummary, Parts, look_at, open_images, parts_of
from lmfcn.benchmark.verdict import FEWEST_REPEATS, Rival, Verdict, complete_repeats, judge, shared_runs
from lmfcn.data.collection import ImageCollection
from lmfcn.data.framing import Color
from lmfcn.util.files import write_text
from lmfcn.util.tensor_files import FileError


@dataclass(frozen=True)
class Comparison:
    """Methods on repeated divisions of one collection.

    Attributes
    ----------
    name : str
        Of the collection, as runs and tables call it.
    images : ImageCollection
        With labels, and groups if there are any.
    data : DataSummary
    methods : sequence of str
        Those that can run, and in `left_out` why others cannot, by their names.
    seeds : sequence of int
        One for each repeat; the first one chooses the parameters.
    output : Path
        File of runs, one line of JSON each.
    changes : mapping of mappings
        What differs from the defaults of each method.
    quick : bool
        Whether these changes are for a first look, which tables and report then say.
    jobs : int
        Runs at the same time on this machine.
    scheduler : str or None
        Address of a dask scheduler whose workers do the runs.
    """

    name: str
    images: ImageCollection
    data: DataSummary
    methods: Sequence[str]
    left_out: Mapping[str, str]
    seeds: Sequence[int]
    output: Path
    changes: Changes
    quick: bool = False
    jobs: int = 1
    scheduler: str | None = None

    def run(
        self,
        report: Report,
        go_on: GoOn = lambda _: True,
        ended: Ended = lambda _: None,
        failed: Report | None = None,
    ) -> list[str]:
        """Measure what is not in the file yet, repeat by repeat; return a sentence for each training that failed.

        The arguments are those of `Study.run`.
        """
        self._check_same_data()
        return self._study.run(report, go_on, ended, failed)

    def runs(self) -> list[Run]:
        """Return the runs of these methods and repeats that are in the file and were asked for as they are now."""
        found = self._study.finished().values()
        return [run for run in found if run.method in self.methods and run.seed in self.seeds]

    @cached_property
    def _study(self) -> Study:
        return Study(
            {self.name: partial(_exhibited_parts, self.images, self.seeds[0])},
            self.methods,
            self.seeds,
            self.output,
            self.changes,
            beside=[method for method in ON_TOP_OF_CNN if method in self.methods],
            tuning_seed=self.seeds[0],
            by_repeat=True,
            jobs=self.jobs,
            scheduler=self.scheduler,
        )

    def _check_same_data(self) -> None:
        runs = list(read_runs(self.output).values())
        others = sorted({run.task for run in runs} - {self.name})
        if others:
            raise ValueError(f"{self.output} holds runs of {others[0]!r}, not of {self.name!r}; give another --output.")
        # Every image is in every division, so one of them tells whether all images and labels are the same.
        if runs and runs[0].split != parts_of(self.images, runs[0].seed).fingerprint():
            raise ValueError(
                f"{self.output} holds runs of other images, labels, groups or sizes than {self.name!r} has now; give"
                " another --output, or the data as they were."
            )


@dataclass(frozen=True)
class Outcome:
    """What a comparison brought, for those who write it down.

    Attributes
    ----------
    comparison : Comparison
    runs : list of Run
        All of them; `shared` are those that the verdict is about.
    failures : list of str
        A sentence for each training that failed.
    command : str
        What to type to run it again, or to go on.
    """

    comparison: Comparison
    runs: list[Run]
    failures: Sequence[str]
    command: str

    @cached_property
    def shared(self) -> list[Run]:
        """The runs that the verdict is about, every method in it with the same repeats; none if no two share one."""
        return shared_runs(self.runs, self.comparison.methods)

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict on the shared runs, preliminary if some methods are not among them."""
        return judge(self.shared, waiting=self.waiting, n_asked=len(self.comparison.seeds))

    @property
    def exhibit(self) -> tuple[Run, Exhibit] | None:
        """What there is to show of LMFCN at work, and the run it is of: that of the best method which has one."""
        for method in (self.verdict.winner, *(rival.method for rival in self.verdict.rivals)):
            for run in self.runs:
                if run.cell[1:] == (method, self.comparison.seeds[0]):
                    found = self._exhibit_of(run)
                    if found is not None:
                        return run, found
        return None

    def _exhibit_of(self, run: Run) -> Exhibit | None:
        try:
            return read_exhibit(exhibit_path(self.comparison.output, run.method), run.origin)
        except (FileError, OSError) as error:
            # Pictures are not worth a report that is not written.
            warnings.warn(f"Left out of the report: {error}", UserWarning, stacklevel=2)
            return None

    @property
    def waiting(self) -> list[str]:
        """Methods that could run but lack repeats that those in the verdict have."""
        judged = {run.method for run in self.shared}
        return [method for method in self.comparison.methods if method not in judged]

    @property
    def remarks(self) -> list[str]:
        """What a reader of the verdict should know beside it."""
        remarks = [f"{method} is left out: {reason}" for method, reason in self.comparison.left_out.items()]
        if self.comparison.quick:
            remarks.append(
                "This was a quick look: few epochs, small images. Without --quick the methods can do better."
            )
        remarks += [f"A training failed: {failure}" for failure in self.failures]
        remarks += self._unfinished
        if self.comparison.data.found.groups_per_class is None:
            remarks.append(
                "The images have no groups. If several come from one patient, slide or sheet, a column 'group' in a"
                " table keeps them on one side; without it all test accuracies are too good."
            )
        return remarks

    @property
    def _unfinished(self) -> list[str]:
        n_asked, n_complete = len(self.comparison.seeds), len(complete_repeats(self.runs, self.comparison.methods))
        if n_complete == n_asked:
            return []
        complete = f"Complete repeats: {n_complete} of {n_asked}"
        if not self.waiting:
            return [f"{complete}, and only those count here. The same command goes on."]
        counts = Counter(run.method for run in self.runs)
        lacking = "; ".join(f"{method} has {counts[method]}" for method in self.waiting)
        return [f"{complete}. Not in the verdict: {lacking}. The same command goes on."]


def _exhibited_parts(images: ImageCollection, exhibited: int, seed: int) -> Parts:
    """Return the parts of a seed; of one seed the fitted model shall be exhibited."""
    return replace(parts_of(images, seed), exhibited=seed == exhibited)


REPEATS, QUICK_REPEATS, QUICK_SIZE = 5, 3, 64


@dataclass(frozen=True)
class Request:
    """The options of `lmfcn compare`.

    Attributes
    ----------
    data : Path
        Folder, table, list or arrays of images.
    output : Path
        Folder for everything that is written.
    methods : sequence of str
        Names, "all", or names joined by commas.
    repeats : int or None
        Number of divisions; None leaves it to `quick`.
    size : int or None
        Side in pixels to bring all images to.
    color : "keep", "grey" or "rgb"
    seed : int
        Of the first division; the others count on from it.
    ignore_split : bool
        Whether to give up a division that the data bring.
    quick : bool
        Whether a first look is enough: few epochs, few repeats, images of at most 64 pixels a side.
    jobs : int
        Runs at the same time on this machine.
    scheduler : str or None
        Address of a dask scheduler whose workers do the runs.
    weights : mapping of paths
        Files for pretrained networks, by method; these methods run too.
    """

    data: Path
    output: Path = Path("comparison")
    methods: Sequence[str] = DEFAULT_METHODS
    repeats: int | None = None
    size: int | None = None
    color: Color = "keep"
    seed: int = 0
    ignore_split: bool = False
    quick: bool = False
    jobs: int = 1
    scheduler: str | None = None
    weights: Mapping[str, Path] = field(default_factory=dict)

    @property
    def seeds(self) -> range:
        """One seed for each repeat."""
        return range(self.seed, self.seed + (self.repeats or (QUICK_REPEATS if self.quick else REPEATS)))

    @property
    def command(self) -> str:
        """What to type to run it again."""
        words = ["lmfcn", "compare", str(self.data), "--output", str(self.output), "--repeats", str(len(self.seeds))]
        if tuple(self.methods) != DEFAULT_METHODS:
            words += ["--methods", ",".join(self.methods)]
        for method, path in self.weights.items():
            words += [WEIGHT_OPTIONS[method], str(path)]
        words += [] if self.size is None else ["--size", str(self.size)]
        words += [] if self.color == "keep" else ["--color", self.color]
        words += [] if self.seed == 0 else ["--seed", str(self.seed)]
        words += ["--ignore-split"] if self.ignore_split else []
        words += ["--quick"] if self.quick else []
        words += [] if self.jobs == 1 else ["--jobs", str(self.jobs)]
        return shlex.join([*words, *([] if self.scheduler is None else ["--scheduler", self.scheduler])])


def prepare(request: Request, changes: Changes | None = None, *, verbose: bool = False) -> Comparison:
    """Check everything that can be checked before the first training, and return what is to run.

    Parameters
    ----------
    request : Request
    changes : mapping of mappings, optional
        What differs from the defaults of each method, instead of what `quick` or a whole comparison changes.
    verbose : bool, default=False
        Show a progress bar while the images are read.
    """
    methods = choose_methods([*request.methods, *request.weights])
    weights = _weights(request)
    images = _images(request)
    data = look_at(images, request.seeds, verbose=verbose)
    if changes is None:
        changes = QUICK_CHANGES if request.quick else CHANGES
    changes = {**changes, **{method: {**changes.get(method, {}), "weights": path} for method, path in weights.items()}}
    able, left_out = able_methods(methods, images, changes)
    name = _name(request.data.resolve()) + (", quick" if request.quick else "")
    output = request.output / "runs.jsonl"
    options = (request.quick, request.jobs, request.scheduler)
    return Comparison(name, images, data, able, left_out, request.seeds, output, changes, *options)


def _weights(request: Request) -> dict[str, str]:
    """Return the files of weights as any process finds them."""
    for path in request.weights.values():
        if not path.is_file():
            raise ValueError(f"{path} must be a file of weights, but there is none of that name.")
    return {method: str(path.resolve()) for method, path in request.weights.items()}


def _name(data: Path) -> str:
    return data.name if data.is_dir() else data.stem


def _images(request: Request) -> ImageCollection:
    images = open_images(request.data, size=request.size, color=request.color, ignore_split=request.ignore_split)
    if request.quick and request.size is None and images.sizes().max() > QUICK_SIZE:
        return images.resized(QUICK_SIZE)
    return images


_COLUMNS = (
    *("task", "method", "seed", "test_balanced_accuracy", "validation_balanced_accuracy", "train_balanced_accuracy"),
    *("n_train", "n_validation", "n_test", "cpu_seconds", "cpu_seconds_with_tuning", "n_weights", "epochs"),
    *("best_epoch", "n_backpropagated", "n_support_first", "n_support_kept", "n_support_final", "split"),
)

RIVAL_HEADINGS = ("by", "95 % interval", "p, Holm's correction", "more than chance")


def write_results(outcome: Outcome, folder: Path) -> None:
    """Write results.md and results.csv."""
    write_text(folder / "results.md", as_markdown(outcome))
    write_text(folder / "results.csv", as_csv(outcome.runs))


def as_markdown(outcome: Outcome) -> str:
    """Return verdict, tables, remarks and the data in a few words."""
    verdict, found = outcome.verdict, outcome.comparison.data.found
    classes = ", ".join(f"{label} ({count})" for label, count in found.classes.items())
    parts = [
        f"# Methods compared on {outcome.comparison.name}",
        " ".join(verdict.sentences),
        results_table(outcome),
        *([rivals_table(verdict)] if verdict.rivals else []),
        "\n".join(f"- {remark}" for remark in outcome.remarks),
        f"{found.n_images} images; classes: {classes}. {outcome.comparison.data.leak_sentence}",
        f"Run again with:\n\n```\n{outcome.command}\n```",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def results_table(outcome: Outcome) -> str:
    """Return a row for each method from the best to the worst, the winner in bold."""
    verdict = outcome.verdict
    rows = [[f"**{verdict.winner}**", *row(runs_of(outcome.shared, verdict.winner))]]
    rows += [[rival.method, *row(runs_of(outcome.shared, rival.method))] for rival in verdict.rivals]
    return markdown_table(["method", *(heading.replace("seeds", "repeats") for heading in HEADINGS)], rows)


def rivals_table(verdict: Verdict) -> str:
    """Return what each method is behind the winner, and whether that is more than chance."""
    return markdown_table([f"behind {verdict.winner}", *RIVAL_HEADINGS], rival_rows(verdict))


def rival_rows(verdict: Verdict) -> list[list[str]]:
    """Return the name of each method behind the winner and its entries under `RIVAL_HEADINGS`."""
    return [[rival.method, f"{rival.behind.mean:.3f}", *_certainty(verdict, rival)] for rival in verdict.rivals]


def _certainty(verdict: Verdict, rival: Rival) -> list[str]:
    if verdict.n_repeats < FEWEST_REPEATS:
        return [NOTHING] * 3
    p_value = "< 0.001" if rival.p_value < 0.001 else f"{rival.p_value:.3f}"
    return [interval(rival.behind), p_value, "no" if rival in verdict.level_with else "yes"]


def as_csv(runs: Collection[Run]) -> str:
    """Return one row for each run, the parameters that tuning chose as JSON in the last column."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_COLUMNS, "chosen"])
    for run in sorted(runs, key=lambda run: (run.method, run.seed)):
        writer.writerow([*(getattr(run, name) for name in _COLUMNS), json.dumps(run.chosen)])
    return text.getvalue()


def runs_of(runs: Collection[Run], method: str) -> list[Run]:
    """Return the runs of one method, by seed."""
    return sorted((run for run in runs if run.method == method), key=lambda run: run.seed)
