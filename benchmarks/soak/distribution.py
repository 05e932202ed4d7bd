"""What is published: built twice, installed in clean environments and with the lowest versions, and audited.

    python benchmarks/soak/distribution.py [builds plain extras lowest pythons audit licences]

Every environment is a folder below --work, which needs some gigabytes. pip is used as it is configured here. The name
of this file is not packaging.py, which would hide the package of that name.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":  # the folder of this file holds names that other packages have, too
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from soak.rows import Row, row, table

COMMAND = "python benchmarks/soak/distribution.py"
ROOT = Path(__file__).resolve().parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NOT_INSTALLED = ("docs", "dev")
"""Extras for people who change lmfcn; `make docs` and `make test` install them."""

PERMISSIVE = re.compile(
    r"MIT|BSD|Apache|ISC|PSF|Python|HPND|MPL|LGPL|Unlicense|Zlib|CC0|0BSD|Public Domain|BlueOak|CMU", re.IGNORECASE
)
"""Licences of packages that a program under BSD-3-Clause may use without any change."""

_USE = """
import lmfcn, tempfile
from lmfcn import LMFCNClassifier, make_gaussians
images, labels = make_gaussians(8, 16, random_state=0)
fitted = LMFCNClassifier(epochs=1, latent_dim=4, widths=(4, 4), random_state=0, device="cpu").fit(images, labels)
with tempfile.TemporaryDirectory() as folder:
    fitted.save(folder + "/m.lmfcn")
    same = (lmfcn.load(folder + "/m.lmfcn", "cpu").predict(images) == fitted.predict(images)).all()
assert same and "site-packages" in lmfcn.__file__, lmfcn.__file__
"""


def run_program(*arguments: object, folder: Path = ROOT, **variables: str) -> subprocess.CompletedProcess:
    """Run a program without our own path of modules."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    return subprocess.run(
        [str(argument) for argument in arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def outcome(what: str, promise: str, done: subprocess.CompletedProcess) -> Row:
    """Return the row of a program that should end with 0."""
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    found = "as promised" if done.returncode == 0 else f"code {done.returncode}: {' '.join(lines[-2:])[-300:]}"
    return row(what, promise, found, done.returncode == 0, COMMAND)


def make_environment(work: Path, name: str, python: str = sys.executable, base: Path | None = None) -> Path:
    """Make an empty environment, or one that also sees the packages of another one; return its Python."""
    folder = work / name
    run_program(python, "-m", "venv", "--clear", folder)
    if base is not None:
        (site,) = folder.glob("lib/python*/site-packages")
        (seen,) = base.parent.parent.glob("lib/python*/site-packages")
        (site / "base.pth").write_text(f"{seen}\n", encoding="utf-8")
    return folder / "bin" / "python"


def install(python: Path, *what: object, constraints: Path | None = ROOT / "constraints.txt") -> Row | None:
    """Install packages, torch first as in the Makefile; return a row if that fails."""
    bound = () if constraints is None else ("--constraint", constraints)
    for packages in (("torch",), what):
        done = run_program(python, "-m", "pip", "install", "--quiet", *bound, *packages)
        if done.returncode != 0:
            return outcome(f"installing {', '.join(Path(str(name)).name for name in packages)}", "possible", done)
    return None


def build(work: Path, name: str) -> Path:
    """Build wheel and sdist from the committed files; return their folder."""
    sources, target = work / f"sources-{name}", work / f"dist-{name}"
    for folder in (sources, target):
        shutil.rmtree(folder, ignore_errors=True)
    sources.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x"], cwd=sources, input=archive, check=True)
    python = work / "builder" / "bin" / "python"
    if not python.exists():
        run_program(make_environment(work, "builder"), "-m", "pip", "install", "--quiet", "build")
    done = run_program(python, "-m", "build", "--outdir", target, folder=sources, SOURCE_DATE_EPOCH="1700000000")
    if done.returncode != 0:
        raise RuntimeError(done.stdout[-500:] + done.stderr[-500:])
    return target


def builds(work: Path) -> list[Row]:
    digests = [_digests(build(work, name)) for name in ("first", "second")]
    same = digests[0] == digests[1] and len(digests[0]) == 2
    found = f"{'the same' if same else 'other'} bytes of {', '.join(digests[0])}"
    return [row("wheel and sdist, built twice", "the same bytes", found, same, COMMAND)]


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def wheel(work: Path) -> Path:
    """Return the wheel, built if it is not there."""
    folder = work / "dist-first"
    found = list(folder.glob("*.whl")) or list(build(work, "first").glob("*.whl"))
    return found[0]


def plain(work: Path) -> list[Row]:
    return [_plain(work, sys.executable, "the wheel without extras")]


def _plain(work: Path, interpreter: str, what: str, constraints: Path | None = ROOT / "constraints.txt") -> Row:
    python = make_environment(work, re.sub(r"\W+", "-", what), interpreter)
    failed = install(python, wheel(work), constraints=constraints)
    if failed is not None:
        return {**failed, "what": f"{what}, {failed['what']}"}
    return outcome(what, "trains, saves, loads and predicts", run_program(python, "-c", _USE, folder=work))


def extras(work: Path) -> list[Row]:
    base = work / "the-wheel-without-extras" / "bin" / "python"
    if not base.exists():
        plain(work)
    names = [name for name in PROJECT["optional-dependencies"] if name not in NOT_INSTALLED]
    return [_extra(work, name, base) for name in names]


def _extra(work: Path, name: str, base: Path) -> Row:
    python = make_environment(work, f"extra-{name}", base=base)
    failed = install(python, f"{wheel(work)}[{name}]")
    shutil.rmtree(work / f"extra-{name}" / "cache", ignore_errors=True)
    if failed is not None:
        return failed
    distributions = [re.split(r"[<>=\[]", text)[0] for text in PROJECT["optional-dependencies"][name]]
    code = f"from importlib.metadata import version\nfor name in {distributions}: version(name)\n{_USE}"
    promise = "installed beside the wheel, which still works"
    return outcome(f"the extra {name}", promise, run_program(python, "-W", "ignore", "-c", code, folder=work))


def lowest(work: Path) -> list[Row]:
    """Install the lowest versions that are declared."""
    path = work / "constraints-lowest.txt"
    path.write_text("\n".join(lowest_versions(PROJECT["dependencies"])) + "\n", encoding="utf-8")
    return [_plain(work, sys.executable, "the wheel with the lowest versions", path)]


def lowest_versions(requirements: list[str]) -> list[str]:
    """Return requirements of exactly the lowest version.

    Examples
    --------
    >>> lowest_versions(["numpy>=2.0", "torch>=2.7"])
    ['numpy==2.0', 'torch==2.7']
    """
    return [text.replace(">=", "==") for text in requirements]


def pythons(work: Path) -> list[Row]:
    """Use the wheel with every other Python that is here."""
    rows = []
    for version in ("3.11", "3.12", "3.13"):
        found = interpreter(version)
        if found is None:
            rows.append(row(f"Python {version}", "works", "not here: not tried", True, COMMAND))
        else:
            rows.append(_plain(work, found, f"the wheel with Python {version}"))
    return rows


def interpreter(version: str) -> str | None:
    """Return a Python of a version: one that answers on the path, or one that pyenv has installed."""
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [shutil.which(f"python{version}"), *map(str, installed.glob(f"{version}.*/bin/python{version}"))]
    return next((place for place in places if place and run_program(place, "--version").returncode == 0), None)


def audit(work: Path) -> list[Row]:
    """Look for known weaknesses of the pinned versions, which needs the network."""
    python = make_environment(work, "audit")
    installed = run_program(python, "-m", "pip", "install", "--quiet", "pip-audit")
    done = run_program(
        *(python, "-m", "pip_audit", "--requirement", ROOT / "constraints.txt", "--no-deps", "--disable-pip")
    )
    unreached = any(sign in done.stdout + done.stderr for sign in ("onnection", "resolve", "could not be audited"))
    if installed.returncode != 0 or unreached:
        found = "not tried: the database cannot be reached; .github/workflows/audit.yml does it every week"
        return [row("known weaknesses of pinned versions", "none", found, True, COMMAND)]
    return [outcome("known weaknesses of pinned versions", "none", done)]


def licences(work: Path) -> list[Row]:
    """Read the table that docs/make_licences.py makes."""
    del work
    lines = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8").splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ") and " | " in line]
    packages = [entry for entry in cells if entry[0] not in ("package", "---")]
    strange = [f"{entry[0]} ({entry[-1]})" for entry in packages if not PERMISSIVE.search(entry[-1])]
    found = f"{len(packages) - len(strange)} of {len(packages)}" + (f"; not {', '.join(strange)}" if strange else "")
    return [row("licences of all dependencies", "compatible with BSD-3-Clause", found, not strange, COMMAND)]


STEPS: dict[str, Callable[[Path], list[Row]]] = {
    function.__name__: function for function in (builds, licences, audit, plain, extras, pythons, lowest)
}


def main() -> int:
    """Take the steps that were asked for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", help=f"of {', '.join(STEPS)}; all by default")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "lmfcn-distribution")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    rows = [found for name in options.steps or STEPS for found in STEPS[name](options.work)]
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0 if all(found["ok"] for found in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
