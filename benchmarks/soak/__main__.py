"""Measure every promise: `python benchmarks/soak` prints one table, and ends with 1 if a promise was not kept.

Each part runs in a process of its own, so that one that crashes or eats the memory is a row of the table and no end of
the others.
"""

import argparse
import importlib.util
import os
import sys
import time
from pathlib import Path

# Before the first import of torch: the children of a process with several threads could not compute.
os.environ["OMP_NUM_THREADS"] = "1"
HERE = Path(__file__).resolve().parent
sys.path[:] = [str(HERE.parent), *(path for path in sys.path if Path(path).resolve() != HERE)]

from soak.apart import run_apart  # noqa: E402
from soak.rows import Row, table  # noqa: E402

SHARES = {"images": 0.15, "files": 0.15, "kills": 0.3, "disks": 0.1, "drift": 0.1, "coverage": 0.1, "service": 0.1}
"""Parts, and which share of the time each of them gets."""
SECONDS = {"short": 30, "minutes": 15 * 60, "hours": 4 * 3600}
RELIABILITY = HERE.parent.parent / "docs" / "reliability.md"
BEGIN, END = "<!-- table of make soak -->", "<!-- end of the table -->"


def main() -> int:
    """Run the parts that were asked for; return the exit code."""
    options = _options()
    if options.faults:
        from soak.faults import find_faults

        rows = find_faults(options.seed)
    else:
        names = options.parts or [name for name in SHARES if _exists(name)]
        rows = run_parts(names, options.seconds or SECONDS[options.time], options.seed)
    print(table(rows))
    if options.write and not options.parts and not options.faults:
        write_table(rows, options.time)
    return 0 if all(found["ok"] for found in rows) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python benchmarks/soak", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="all of them by default")
    parser.add_argument("--time", choices=list(SECONDS), default="short")
    parser.add_argument("--seconds", type=float, help="instead of --time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", action="store_true", help="plant faults, and show that they are found")
    parser.add_argument("--write", action="store_true", help="keep the table in docs/reliability.md")
    options = parser.parse_args()
    unknown = [name for name in options.parts if name not in SHARES]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(SHARES)}")
    return options


def _exists(name: str) -> bool:
    return importlib.util.find_spec(f"soak.{name}") is not None


def run_parts(names: list[str], seconds: float, seed: int) -> list[Row]:
    """Run parts one after the other, each with its share of the time."""
    rows = []
    for name in names:
        begin = time.monotonic()
        found = run_apart(name, SHARES[name] * seconds, seed)
        rows += found
        n_bad = sum(not line["ok"] for line in found)
        print(f"{name}: {len(found)} promises, {n_bad} not kept, {time.monotonic() - begin:.0f} s", file=sys.stderr)
    return rows


def write_table(rows: list[Row], how_long: str) -> None:
    """Put the table between the two markers of the page."""
    before, rest = RELIABILITY.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    note = f"Made by `make soak SOAK={how_long}`; a part of it alone by the command of its row.\n"
    RELIABILITY.write_text(f"{before}{BEGIN}\n\n{note}\n{table(rows)}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
