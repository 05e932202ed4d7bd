import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import lmfcn
from lmfcn.util.files import write_text

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DISTRIBUTIONS = packages_distributions()
SYNTAX = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "src").rglob("*.py"))}


def test_public_names():
    assert sorted(lmfcn.__all__) == ["LMFCNClassifier", "TextureModel", "__version__", "load", "make_gaussians"]
    assert dir(lmfcn) == sorted(lmfcn.__all__)
    for name in lmfcn.__all__:
        assert getattr(lmfcn, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Classifier'"):
        lmfcn.Classifier  # noqa: B018


def test_import_stays_light():
    code = "import lmfcn, sys; print(sorted({'torch', 'sklearn', 'matplotlib'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "first")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\ud800")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def named(requirements):
    """The names of distributions in a list of requirements, in the one spelling that compares."""
    return {re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", text)[0]).lower() for text in requirements}


def is_declared(module, requirements):
    name = module.partition(".")[0]
    distributions = DISTRIBUTIONS.get(name, [name])
    return bool(named(distributions) & named(requirements))


def imported(syntax):
    """The modules of other packages that a file imports, wherever in it."""
    for node in ast.walk(syntax):
        if isinstance(node, ast.Import):
            yield from (entry.name for entry in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module


def wanted_extras(syntax):
    """The modules and extras that a file hands to `needs`."""
    for node in ast.walk(syntax):
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "needs"
        if is_call and all(isinstance(argument, ast.Constant) for argument in node.args):
            yield tuple(argument.value for argument in node.args)


def test_every_package_that_is_imported_is_declared():
    extras = PROJECT["optional-dependencies"]
    declared = [*PROJECT["dependencies"], *(text for name in extras if name != "dev" for text in extras[name])]
    own = {*sys.stdlib_module_names, "lmfcn"}
    found = {(path.name, name) for path, syntax in SYNTAX.items() for name in imported(syntax)}
    assert ("style.py", "jinja2") in found
    others = {(file, name) for file, name in found if name.partition(".")[0] not in own}
    assert [pair for pair in sorted(others) if not is_declared(pair[1], declared)] == []


@pytest.mark.parametrize("folder", ["report", "serve"])
def test_a_folder_imports_what_its_own_extra_brings(folder):
    declared = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"][folder]]
    inside = [syntax for path, syntax in SYNTAX.items() if path.parent.name == folder]
    names = {name for syntax in inside for name in imported(syntax)}
    others = {name for name in names if name.partition(".")[0] not in {*sys.stdlib_module_names, "lmfcn"}}
    assert len(others) > 3
    assert [name for name in sorted(others) if not is_declared(name, declared)] == []


def test_a_package_that_is_asked_for_comes_with_the_extra_that_is_named():
    asked = {pair for syntax in SYNTAX.values() for pair in wanted_extras(syntax)}
    assert len(asked) > 5
    extras = PROJECT["optional-dependencies"]
    assert [pair for pair in sorted(asked) if not is_declared(pair[0], extras[pair[1]])] == []
