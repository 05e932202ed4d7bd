"""The files around the package: pages made from the commands, links of the site, doors of the repository."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

from commands import COMMANDS, check_command, parameters_of
from lmfcn import __version__

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PAPER = "Large-Margin Representation Learning for Texture Classification"


@pytest.fixture
def extension():
    def run(name):
        return runpy.run_path(str(ROOT / "docs" / name))

    return run


def test_every_command_has_a_page_with_all_options(tmp_path, extension):
    extension("extensions/command_pages.py")["write_pages"](tmp_path)
    assert {path.stem for path in tmp_path.iterdir()} == {"index", *COMMANDS}
    for name in COMMANDS:
        page = (tmp_path / f"{name}.md").read_text()
        assert page.startswith(f"# lmfcn {name}\n")
        for option in parameters_of(name):
            assert option in page or not option.startswith("-"), (name, option)
    assert "Default: `0.2`." in (tmp_path / "train.md").read_text()


def test_text_of_the_help_means_nothing_to_markdown(extension):
    escape = extension("extensions/command_pages.py")["escape"]
    assert escape(r"'exp\d+_num_(\d+)' *") == r"'exp\\d+\_num\_(\\d+)' \*"


def test_links_to_files_outside_of_the_site_lead_to_its_pages(extension):
    relink = extension("extensions/local_links.py")["relink"]
    docs = ROOT / "docs"
    assert relink("[a](../CHANGELOG.md#b), [c](tour.md)", docs, docs) == "[a](changelog.md#b), [c](tour.md)"
    assert relink("[a](docs/tour.md)", ROOT, docs) == "[a](tour.md)"
    untouched = "[a](https://example.org/b.md), [c](#d)"
    assert relink(untouched, docs / "howto", docs / "howto") == untouched


def test_a_link_that_leads_nowhere_is_found(tmp_path, extension):
    (tmp_path / "a.html").write_text(
        "<a id='here'></a><a href='b.html#there'></a><a href='#here'></a><img src='c.png'>"
    )
    (tmp_path / "b.html").write_text("<a href='a.html#here'></a><a href='https://example.org'></a>")
    few, *errors = extension("check_links.py")["find_errors"](tmp_path)
    assert few.endswith("has 2 pages, expected 30")
    assert errors == ["a.html: b.html#there", "a.html: c.png"]


def test_the_licence_of_every_dependency_is_listed():
    page = (ROOT / "docs/licences.md").read_text()
    project = PROJECT["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(text for extra in extras for text in extra)]
    names = {re.match(r"[\w.-]+", text)[0].lower() for text in wanted}
    assert {name for name in names if f"| {name} |" not in page} == set()
    assert "not declared" not in page


def test_a_package_index_gets_a_readme_without_relative_links():
    text = (ROOT / "README.md").read_text()
    hook = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    for substitution in hook["substitutions"]:
        text = re.sub(substitution["pattern"], substitution["replacement"], text)
    assert re.findall(r"\]\((?!https?://)", text) == []
    assert "Read more" in text


def test_the_citation_names_the_version_and_the_paper():
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    assert citation["preferred-citation"]["title"] == PAPER
    assert len(citation["preferred-citation"]["authors"]) == 4


def test_the_container_is_started_with_options_that_exist():
    yaml = pytest.importorskip("yaml")
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["lmfcn"]
    check_command(" ".join(["serve", *service["command"]]))
    assert service["read_only"]
    assert service["volumes"] == ["./models:/models:ro"]
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert re.search(r'^CMD \["/models/model.lmfcn", "--host", "0.0.0.0"\]$', dockerfile, flags=re.MULTILINE)
    assert dockerfile.index("USER 10001") < dockerfile.index("ENTRYPOINT")


def test_workflows_and_forms_can_be_read():
    yaml = pytest.importorskip("yaml")
    files = [*ROOT.glob(".github/**/*.yml"), ROOT / ".pre-commit-config.yaml"]
    assert len(files) == 8
    read = {file.name: yaml.safe_load(file.read_text()) for file in files}
    assert read["tests.yml"]["jobs"]["tests"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
