"""What `lmfcn compare my_images` does, as code: every method on the same splits, and a verdict.

python examples/compare_methods.py my_images

One folder per class (or a table with the columns path, label and group). LBP needs the extra `textures`, the page the
extra `report`.
"""

import sys
from pathlib import Path

from lmfcn.benchmark.comparison import Outcome, Request, prepare, write_results
from lmfcn.benchmark.measure import Changes
from lmfcn.report import comparison_report_writer

METHODS = ("LMFCN", "CNN + SVM", "LBP", "random-fcn")


def main(
    folder: str, output: str = "comparison", size: int = 64, repeats: int = 3, changes: Changes | None = None
) -> Outcome:
    """Compare some methods; `changes` are parameters that differ from the defaults, by method."""
    request = Request(Path(folder), Path(output), METHODS, repeats, size)
    comparison = prepare(request, changes)
    failures = comparison.run(print)  # a second call goes on where the first one ended
    outcome = Outcome(comparison, comparison.runs(), failures, request.command)
    write_results(outcome, request.output)
    comparison_report_writer()(outcome, request.output / "report.html")
    print("\n".join([*outcome.verdict.sentences, *outcome.remarks]))
    return outcome


if __name__ == "__main__":
    main(sys.argv[1])
