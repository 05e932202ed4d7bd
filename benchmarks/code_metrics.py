"""Sizes and names of the source: files, lines, function bodies, modules of one name.

Run `python benchmarks/code_metrics.py`. It prints one line per figure and fails if a module is very small or shares its
name with another one.
"""

import ast
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

SOURCE = Path(__file__).parent.parent / "src" / "lmfcn"
SMALLEST = 25
"""Lines; only an `__init__.py` may have fewer."""


def main() -> int:
    """Print the figures; return 1 if a name or a size is not as it should be."""
    files = sorted(SOURCE.rglob("*.py"))
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    modules = {path: count for path, count in lines.items() if path.name != "__init__.py"}
    bodies = [size for path in files for size in body_sizes(path)]
    print(f"files                 {len(files)} ({len(modules)} without __init__.py)")
    print(f"lines                 {sum(lines.values())}")
    print(f"lines per module      median {median(modules.values()):.0f}, largest {max(modules.values())}")
    print(
        f"lines per body        median {median(bodies):.0f}, p90 {quantiles(bodies, n=10)[-1]:.0f}, max {max(bodies)}"
    )
    print(f"classifier parameters {len(classifier_parameters())}")
    small, shared = small_modules(modules), shared_names(list(modules))
    print(f"modules under {SMALLEST} lines {', '.join(small) or 'none'}")
    print(f"modules of one name   {'; '.join(shared) or 'none'}")
    return 1 if small or shared else 0


def body_sizes(path: Path) -> Iterator[int]:
    """Yield the number of lines of every function body, without its docstring."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            yield 0 if not body else (body[-1].end_lineno or 0) - body[0].lineno + 1


def small_modules(modules: dict[Path, int]) -> list[str]:
    """Return the modules that are too small to be a file of their own."""
    return [str(path.relative_to(SOURCE)) for path, count in modules.items() if count < SMALLEST]


def shared_names(modules: list[Path]) -> list[str]:
    """Return the names that several modules have; files of commands are named after their command and do not count."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for path in modules:
        if path.parent.name != "cli":
            by_name[path.stem].append(str(path.relative_to(SOURCE)))
    return [" = ".join(paths) for paths in by_name.values() if len(paths) > 1]


def classifier_parameters() -> list[str]:
    """Return the names of the constructor parameters of `LMFCNClassifier`."""
    from lmfcn import LMFCNClassifier

    return list(inspect.signature(LMFCNClassifier).parameters)


if __name__ == "__main__":
    sys.exit(main())
