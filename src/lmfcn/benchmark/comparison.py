"""`lmfcn compare`: measure all methods that can run on repeated splits of the user's own images."""

import copy
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

from lmfcn.benchmark.measure import (
    CHANGES,
    DEFAULT_METHODS,
    ON_TOP_OF_CNN,
    QUICK_CHANGES,
    WEIGHT_OPTIONS,
    Changes,
    choose_methods,
    runnable_methods,
)
from lmfcn.benchmark.model_summary import ModelSummary, read_summary, summary_path
from lmfcn.benchmark.runs import Run, former_method, read_runs
from lmfcn.benchmark.scheduler import MayStart, OnEnd, Report, Study
from lmfcn.benchmark.tables import HEADINGS, NOTHING, interval, markdown_table, row_entries
from lmfcn.benchmark.tasks import DataSummary, SplitData, inspect_images, open_images, split_images
from lmfcn.benchmark.verdict import (
    FEWEST_REPEATS,
    OtherMethod,
    Verdict,
    complete_repeats,
    describe_tests,
    make_verdict,
    shared_runs,
)
from lmfcn.data.collection import ImageCollection
from lmfcn.data.framing import Color, SizeFit
from lmfcn.util.files import write_text
from lmfcn.util.tensor_files import FileError

REPEATS, QUICK_REPEATS, QUICK_SIZE = 5, 3, 64


@dataclass(frozen=True)
class Request:
    """The options of `lmfcn compare`.

    Attributes
    ----------
    data : Path
        Folder, table, list or arrays of images.
    output : Path
        Folder for all files.
    methods : sequence of str
        Names, names joined by commas, or "all".
    repeats : int or None
        Number of splits; None stands for 5, or 3 if quick.
    size : int or None
        Side in pixels of all images; None leaves them as they are.
    color : "keep", "grey" or "rgb"
    seed : int
        Seed of the first split; the others follow it.
    ignore_split : bool
        Whether to ignore a split that comes with the data.
    quick : bool
        Whether to use few epochs, few repeats and images of at most 64 pixels a side.
    jobs : int
        Runs at the same time on this machine.
    scheduler : str or None
        Address of a dask scheduler; its workers then do the runs.
    weights : mapping of paths
        Files for pretrained networks, by method; these methods run too.
    groups_from : str or None
        Pattern that finds the groups in the names of the files.
    split_duplicates : bool
        Whether a split may separate near-identical images.
    fit : "crop", "pad" or "stretch"
        How images of another shape get the size.
    threads : int
        Of every run; results depend on it in their last bits.
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
    groups_from: str | None = None
    split_duplicates: bool = False
    fit: SizeFit = "crop"
    threads: int = 1

    @property
    def seeds(self) -> range:
        """One seed for each repeat."""
        return range(self.seed, self.seed + (self.repeats or (QUICK_REPEATS if self.quick else REPEATS)))

    @property
    def command(self) -> str:
        """The command that repeats the comparison."""
        words = ["lmfcn", "compare", str(self.data), "--output", str(self.output), "--repeats", str(len(self.seeds))]
        if tuple(self.methods) != DEFAULT_METHODS:
            words += ["--methods", ",".join(self.methods)]
        for method, path in self.weights.items():
            words += [WEIGHT_OPTIONS[method], str(path)]
        words += [] if self.size is None else ["--size", str(self.size)]
        words += [] if self.fit == "crop" else ["--fit", self.fit]
        words += [] if self.threads == 1 else ["--threads", str(self.threads)]
        words += [] if self.color == "keep" else ["--color", self.color]
        words += [] if self.seed == 0 else ["--seed", str(self.seed)]
        words += ["--ignore-split"] if self.ignore_split else []
        words += [] if self.groups_from is None else ["--groups-from", self.groups_from]
        words += ["--split-duplicates"] if self.split_duplicates else []
        words += ["--quick"] if self.quick else []
        words += [] if self.jobs == 1 else ["--jobs", str(self.jobs)]
        return shlex.join([*words, *([] if self.scheduler is None else ["--scheduler", self.scheduler])])


def prepare(request: Request, changes: Changes | None = None, *, verbose: bool = False) -> "Comparison":
    """Check images, methods and weights before the first training; return the comparison to run.

    Parameters
    ----------
    request : Request
    changes : mapping of mappings, optional
        Parameters that differ from the defaults, by method, instead of `CHANGES` or `QUICK_CHANGES`.
    verbose : bool, default=False
        Show a progress bar while the images are read.
    """
    methods = choose_methods([*request.methods, *request.weights])
    weights = _weights(request)
    images = _images(request)
    data = inspect_images(images, request.seeds, split_duplicates=request.split_duplicates, verbose=verbose)
    images = copy.copy(images)
    images.groups = data.groups
    if changes is None:
        changes = QUICK_CHANGES if request.quick else CHANGES
    changes = {**changes, **{method: {**changes.get(method, {}), "weights": path} for method, path in weights.items()}}
    runnable, left_out = runnable_methods(methods, images, changes)
    name = _name(request.data.resolve()) + (", quick" if request.quick else "")
    output = request.output / "runs.jsonl"
    options = (request.quick, request.jobs, request.scheduler, request.threads)
    return Comparison(name, images, data, runnable, left_out, request.seeds, output, changes, *options)


def _weights(request: Request) -> dict[str, str]:
    """Return the absolute paths of the weights, by method."""
    for path in request.weights.values():
        if not path.is_file():
            raise ValueError(f"{path} must be a file of weights, but there is none of that name.")
    return {method: str(path.resolve()) for method, path in request.weights.items()}


def _name(data: Path) -> str:
    return data.name if data.is_dir() else data.stem


def _images(request: Request) -> ImageCollection:
    images = open_images(
        request.data,
        size=request.size,
        fit=request.fit,
        color=request.color,
        ignore_split=request.ignore_split,
        group_pattern=request.groups_from,
    )
    if request.quick and request.size is None and images.sizes().max() > QUICK_SIZE:
        return images.resized(QUICK_SIZE, request.fit)
    return images


@dataclass(frozen=True)
class Comparison:
    """A comparison of methods on repeated splits of one collection.

    Attributes
    ----------
    name : str
        Name of the collection in runs and tables.
    images : ImageCollection
        With labels, and the groups that every split keeps together.
    data : DataSummary
    methods : sequence of str
        Methods that can run; `left_out` has the reasons why others cannot.
    seeds : sequence of int
        One for each repeat; parameters are tuned in the first.
    output : Path
        File of runs, one line of JSON each.
    changes : mapping of mappings
        Parameters that differ from the defaults, by method.
    quick : bool
        Whether these are the changes of --quick; tables and report then say so.
    jobs : int
        Runs at the same time on this machine.
    scheduler : str or None
        Address of a dask scheduler; its workers then do the runs.
    threads : int
        Of every run.
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
    threads: int = 1

    def run(
        self,
        report: Report,
        may_start: MayStart = lambda _: True,
        on_end: OnEnd = lambda _: None,
        report_failure: Report | None = None,
    ) -> list[str]:
        """Measure the runs that are not in the file, repeat by repeat; return a sentence for each failure.

        The arguments are those of `Study.run`.
        """
        self._check_same_data()
        return self._study.run(report, may_start, on_end, report_failure)

    def runs(self) -> list[Run]:
        """Return the runs of these methods and repeats that are in the file with the same requested parameters."""
        found = self._study.finished().values()
        return [run for run in found if run.method in self.methods and run.seed in self.seeds]

    @cached_property
    def _study(self) -> Study:
        return Study(
            {self.name: partial(_split_data, self.images, self.seeds[0])},
            self.methods,
            self.seeds,
            self.output,
            self.changes,
            on_top_of_cnn=[method for method in ON_TOP_OF_CNN if method in self.methods],
            tuning_seed=self.seeds[0],
            by_repeat=True,
            jobs=self.jobs,
            threads=self.threads,
            scheduler=self.scheduler,
        )

    def _check_same_data(self) -> None:
        runs = list(read_runs(self.output).values())
        others = sorted({run.task for run in runs} - {self.name})
        if others:
            raise ValueError(f"{self.output} holds runs of {others[0]!r}, not of {self.name!r}; give another --output.")
        # Every image is in every split, so one split shows whether all images and labels are the same.
        if runs and runs[0].split != split_images(self.images, runs[0].seed).fingerprint():
            raise ValueError(
                f"{self.output} holds runs of other images, labels, groups or sizes than {self.name!r} has now; give"
                " another --output, or the data as they were. Near-identical images stay together now; runs of earlier"
                " versions go on with --split-duplicates."
            )


@dataclass(frozen=True)
class Outcome:
    """The result of a comparison.

    Attributes
    ----------
    comparison : Comparison
    runs : list of Run
        All runs; `shared` are those that the verdict is about.
    failures : list of str
        A sentence for each training that failed.
    command : str
        The command that repeats or continues the comparison.
    """

    comparison: Comparison
    runs: list[Run]
    failures: Sequence[str]
    command: str

    @cached_property
    def shared(self) -> list[Run]:
        """The runs that the verdict is about: every method in it has the same repeats. Empty if no two share one."""
        return shared_runs(self.runs, self.comparison.methods)

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict on the shared runs, preliminary if some methods have none."""
        return make_verdict(self.shared, waiting=self.waiting, n_asked=len(self.comparison.seeds))

    @property
    def model_summary(self) -> tuple[Run, ModelSummary] | None:
        """The model summary of the best method that has one, with its run."""
        for method in (self.verdict.winner, *(other.method for other in self.verdict.others)):
            for run in self.runs:
                if run.key[1:] == (method, self.comparison.seeds[0]):
                    found = self._summary_of(run)
                    if found is not None:
                        return run, found
        return None

    def _summary_of(self, run: Run) -> ModelSummary | None:
        try:
            return read_summary(summary_path(self.comparison.output, former_method(run.method)), run.origin)
        except (FileError, OSError) as error:
            # The report is written without it.
            warnings.warn(f"Left out of the report: {error}", UserWarning, stacklevel=2)
            return None

    @property
    def waiting(self) -> list[str]:
        """Methods that could run but lack repeats that those in the verdict have."""
        compared = {run.method for run in self.shared}
        return [method for method in self.comparison.methods if method not in compared]

    @property
    def remarks(self) -> list[str]:
        """Remarks for readers of the verdict."""
        remarks = [describe_tests(self.shared)]
        remarks += [f"{method} is left out: {reason}" for method, reason in self.comparison.left_out.items()]
        if self.comparison.quick:
            remarks.append(
                "This was a quick look: few epochs, small images. Without --quick the methods can do better."
            )
        remarks += [f"A training failed: {failure}" for failure in self.failures]
        remarks += self._unfinished
        if self.comparison.data.found.groups_per_class is None:
            remarks.append(
                "The images have no groups. If several come from one patient, slide or sheet, a column 'group' in a"
                " table, or --groups-from, keeps them on one side; without it all test accuracies are too good."
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


def _split_data(images: ImageCollection, summary_seed: int, seed: int) -> SplitData:
    """Return the split of a seed; runs with `summary_seed` also make a model summary."""
    return replace(split_images(images, seed), with_summary=seed == summary_seed)


_COLUMNS = (
    *("task", "method", "seed", "test_balanced_accuracy", "validation_balanced_accuracy", "train_balanced_accuracy"),
    *("n_train", "n_validation", "n_test", "cpu_seconds", "cpu_seconds_with_tuning", "n_weights", "epochs"),
    *("best_epoch", "n_backpropagated", "n_support_first", "n_support_kept", "n_support_final", "split"),
)

GAP_HEADINGS = ("by", "95 % interval", "p, Holm's correction", "more than chance")


def write_results(outcome: Outcome, folder: Path) -> None:
    """Write results.md and results.csv."""
    write_text(folder / "results.md", as_markdown(outcome))
    write_text(folder / "results.csv", as_csv(outcome.runs))


def as_markdown(outcome: Outcome) -> str:
    """Return verdict, tables, remarks and a sentence about the data."""
    verdict, found = outcome.verdict, outcome.comparison.data.found
    classes = ", ".join(f"{label} ({count})" for label, count in found.classes.items())
    paragraphs = [
        f"# Methods compared on {outcome.comparison.name}",
        " ".join(verdict.sentences),
        results_table(outcome),
        *([gaps_table(verdict)] if verdict.others else []),
        "\n".join(f"- {remark}" for remark in outcome.remarks),
        f"{found.n_images} images; classes: {classes}. {outcome.comparison.data.leak_sentence}",
        f"Run again with:\n\n```\n{outcome.command}\n```",
    ]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph) + "\n"


def results_table(outcome: Outcome) -> str:
    """Return a row for each method from the best to the worst, the winner in bold if chance does not explain it."""
    verdict = outcome.verdict
    first = f"**{verdict.winner}**" if verdict.is_clear else verdict.winner
    rows = [[first, *row_entries(runs_of(outcome.shared, verdict.winner))]]
    rows += [[other.method, *row_entries(runs_of(outcome.shared, other.method))] for other in verdict.others]
    return markdown_table(["method", *(heading.replace("seeds", "repeats") for heading in HEADINGS)], rows)


def gaps_table(verdict: Verdict) -> str:
    """Return a table of the gaps between the winner and each other method, and whether they are significant."""
    return markdown_table([f"behind {verdict.winner}", *GAP_HEADINGS], gap_rows(verdict))


def gap_rows(verdict: Verdict) -> list[list[str]]:
    """Return for each method other than the winner its name and its entries under `GAP_HEADINGS`."""
    return [[other.method, f"{other.behind.mean:.3f}", *_significance(verdict, other)] for other in verdict.others]


def _significance(verdict: Verdict, other: OtherMethod) -> list[str]:
    if verdict.n_repeats < FEWEST_REPEATS:
        return [NOTHING] * 3
    p_value = "< 0.001" if other.p_value < 0.001 else f"{other.p_value:.3f}"
    return [interval(other.behind), p_value, "no" if other in verdict.indistinguishable else "yes"]


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
