"""Measure every method on the same splits of the same images, with the same tuning.

python benchmarks/study.py DATA --tasks lung neu-20 gaussians --seeds 0 1 2 --output study.jsonl

DATA holds `neu` and `usptex` (a folder per class) and `lung` (a table groups.csv with path, label and group);
Gaussians are drawn, and the textures come with scikit-image. LMFCN runs with its defaults. Every baseline that trains
is tuned: the validation images of seed 0 choose among four candidates of learning rate, weight decay, first filters
and augmentation. The other seeds, and the other tasks of the same images, use that choice. (Some of those validation
images are test images of other seeds, which can only help the baselines.) Test images are predicted once per run.
Every run is a line of JSON in the output file, and finished runs are not repeated, so a study can be continued at any
time. --jobs uses several cores, --scheduler the machines of a dask cluster; the numbers are the same.
With --table the runs of the file are printed as tables and nothing is run.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from lmfcn.benchmark.measure import CHANGES, METHODS, NEED_WEIGHTS
from lmfcn.benchmark.runs import read_runs
from lmfcn.benchmark.scheduler import Study
from lmfcn.benchmark.tables import all_tables, difference_table
from lmfcn.benchmark.tasks import TASKS, TUNED_ON
from lmfcn.util.checks import check_choice, check_integer
from lmfcn.util.memory import reuse_freed_memory


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a study or print its tables; return 2 after a user error, 1 if a training failed."""
    try:
        options = _parser().parse_args(arguments)
        _check(options)
        if options.table:
            _print(_tables(options))
            return 0
        reuse_freed_memory()
        failures = _run(options)
    except (ValueError, OSError, ImportError) as error:
        sys.stderr.write(f"Error: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("Stopped; the same command goes on from here.\n")
        return 130
    return 1 if failures else 0


def _run(options: argparse.Namespace) -> list[str]:
    changes = dict(CHANGES)
    if options.weights:
        changes |= {method: {"weights": options.weights.absolute()} for method in NEED_WEIGHTS}
    # Absolute paths, as other processes may have other working folders.
    tasks = {task: partial(TASKS[task], options.data.absolute()) for task in options.tasks}
    workers = {"jobs": options.jobs, "scheduler": options.scheduler, "threads": options.threads}
    study = Study(tasks, options.methods, options.seeds, options.output, changes, tuned_on=TUNED_ON, **workers)
    return study.run(_print)


def _tables(options: argparse.Namespace) -> str:
    if not options.output.is_file():
        raise ValueError(f"{options.output} does not exist; without --table the runs are measured.")
    runs = list(read_runs(options.output).values())
    if not any(run.task in options.tasks and run.method in options.methods for run in runs):
        raise ValueError(f"{options.output} holds no run of these methods on these tasks.")
    text = all_tables(runs, options.tasks, options.methods)
    if options.against is None:
        return text
    paired = difference_table(runs, options.tasks, options.method, options.against, corrected=options.corrected)
    return f"{text}\n\n{paired}"


def _check(options: argparse.Namespace) -> None:
    for task in options.tasks:
        check_choice("--tasks", task, TASKS)
    for method in [*options.methods, options.method, *([options.against] if options.against else [])]:
        check_choice("A method", method, METHODS)
    for seed in options.seeds:
        check_integer("--seeds", seed, smallest=0)
    check_integer("--jobs", options.jobs, smallest=1)
    check_integer("--threads", options.threads, smallest=1)
    if options.table:
        return
    if options.data is None:
        raise ValueError("DATA is missing: the folder that holds lung, neu and usptex.")
    if not options.data.is_dir():
        raise ValueError(f"DATA must be a folder that holds lung, neu and usptex, but {options.data} is none.")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (--help lists the options).")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python benchmarks/study.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    runnable = [method for method in METHODS if method not in NEED_WEIGHTS]
    parser.add_argument("data", type=Path, nargs="?", metavar="DATA")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), help=f"all by default: {', '.join(TASKS)}")
    parser.add_argument("--methods", nargs="+", default=runnable, help="all by default but those that need weights")
    parser.add_argument("--weights", type=Path, help="file for ResNet18 or InceptionV3, if one of them is asked for")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time on this machine")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of a dask cluster that does the runs instead")
    parser.add_argument("--threads", type=int, default=1, help="of every run, 1 by default; results depend on it")
    parser.add_argument("--output", type=Path, default=Path("study.jsonl"), help="file of runs to add to")
    parser.add_argument("--table", action="store_true", help="print the runs of the file as Markdown")
    parser.add_argument("--against", metavar="METHOD", help="with --table: paired differences to this method")
    parser.add_argument("--method", default="LMFCN", help="the one that --against compares, LMFCN by default")
    parser.add_argument("--corrected", action="store_true", help="intervals of the corrected resampled t-test")
    return parser


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
