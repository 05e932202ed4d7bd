import io
import sys

import pytest
from rich.console import Console

from lmfcn import __main__ as commands
from lmfcn.benchmark import scheduler as studies
from lmfcn.benchmark.runs import Run, read_runs
from lmfcn.cli import reproduce as command
from lmfcn.cli.console import RunBar
from lmfcn.method.history import TrainingError
from published_trees import make_trees


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    return make_trees(tmp_path_factory.mktemp("trees"), side=20)


@pytest.fixture
def lmfcn(monkeypatch, capsys, tmp_path):
    """Run the command in this process, with made-up results; return its exit code and what it printed."""

    def measure(key, *_):
        yield Run(*key, 1.0, 0.8, 0.9, 10, 10, 1.0, settings={}, versions={"lmfcn": "0"}, machine={"cores": 2})

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["lmfcn", "reproduce", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            commands.main()
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err

    monkeypatch.setattr(studies, "measure", measure)
    return run


QUICK = ("--profile", "quick", "--size", "16", "--quiet")


def test_a_table_is_measured_printed_and_written(lmfcn, tmp_path):
    code, stdout, _ = lmfcn("table3", *QUICK)
    assert code == 0
    assert stdout.startswith("- This is the quick profile: ")
    assert "- CRC is missing: the images were not given (--crc DIR)." in stdout
    assert "Gaussian, quick PFTAS" in stdout
    assert "Table 3: LMFCN and handcrafted features, quick profile" in stdout
    row = next(line for line in stdout.splitlines() if line.startswith("│ Gaussian") and "GLCM" in line)
    assert [part.strip() for part in row.strip("│").split("│")] == [
        *("Gaussian", "GLCM", "0.9527 ± 0.0191", "0.9000 ± 0.0000", "-0.0527", "-", "-")
    ]
    assert "4 of the paper's 22 rows are measured, and 1 of our LMFCN." in stdout
    assert stdout.endswith("Report: reproduction/report.html\n")
    names = sorted(path.name for path in (tmp_path / "reproduction").iterdir())
    assert names == ["report.html", "runs.jsonl", "table3.csv", "table3.md", "table3.tex"]
    before = (tmp_path / "reproduction" / "runs.jsonl").read_text()
    code, stdout, _ = lmfcn("table3", *QUICK)
    assert code == 0
    assert "seed 0" not in stdout
    assert (tmp_path / "reproduction" / "runs.jsonl").read_text() == before


def test_all_sets_and_all_tables(lmfcn, trees, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "_draw", lambda figures, *_, **__: figures == [])
    roots = [word for name, root in trees.items() for word in (f"--{name}", root)]
    code, stdout, _ = lmfcn("all", *QUICK, *roots, "--repeats", "1", "--only", "LBP,GLCM")
    assert code == 0
    assert "missing" not in stdout
    assert "has fewer images than BreaKHis" in stdout
    assert {key.task for key in read_runs(tmp_path / "reproduction" / "runs.jsonl")} == {
        *("BACH, quick", "BreaKHis, quick", "CRC, quick", "Salzburg, quick", "Gaussian, quick"),
        "Gaussian (ours), quick",
        *("BACH, 4 classes, quick", "BreaKHis, 8 classes, quick", "CRC, 8 classes, quick"),
    }


def test_figures_are_drawn(lmfcn, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("lmfcn.report.paper_figures.draw_figures", lambda *a, **_: drawn.append(a))
    code, stdout, _ = lmfcn("figure3", "figure1", *QUICK)
    assert code == 0
    ((names, profile, folder),) = drawn
    assert (names, profile.name, str(folder)) == (["figure1", "figure3"], "quick", "reproduction")
    assert "Table" not in stdout
    assert (tmp_path / "reproduction" / "report.html").exists()


def test_a_terminal_gets_a_bar(lmfcn, monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(command, "Console", lambda **_: Console(file=screen, force_terminal=True, width=120))
    begin, begun = RunBar.begin, []
    monkeypatch.setattr(RunBar, "begin", lambda bar, key: begun.append(key.method) or begin(bar, key))
    code, stdout, _ = lmfcn("table2", "--profile", "quick", "--size", "16", "--only", "LMFCN")
    assert code == 0
    assert "seed 0" not in stdout
    shown = screen.getvalue()
    assert "seed 1" in shown
    assert "4/4" in shown
    assert begun == ["LMFCN"] * 4


def test_an_interrupt_leaves_tables_and_code_130(lmfcn, monkeypatch, tmp_path):
    whole = studies.measure

    def interrupted(key, *others):
        if key.seed == 1:
            raise KeyboardInterrupt
        yield from whole(key, *others)

    monkeypatch.setattr(studies, "measure", interrupted)
    code, stdout, _ = lmfcn("table2", *QUICK)
    assert code == 130
    assert "- Finished runs: 1 of 16. The same command goes on." in stdout
    assert "1 of 2 repetitions so far" in (tmp_path / "reproduction" / "table2.md").read_text()
    monkeypatch.setattr(studies, "measure", whole)
    assert lmfcn("table2", *QUICK)[0] == 0
    monkeypatch.setattr(
        "lmfcn.report.paper_figures.draw_figures", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    assert lmfcn("figure1", *QUICK)[0] == 130


def test_a_failed_training_ends_with_code_1(lmfcn, monkeypatch):
    def fail(*_):
        raise TrainingError("The latents collapsed.")
        yield

    monkeypatch.setattr(studies, "measure", fail)
    code, stdout, _ = lmfcn("table3", *QUICK, "--only", "LBP", "--repeats", "1")
    assert code == 1
    assert "- A training failed: Gaussian, quick, LBP, seed 0: The latents collapsed." in stdout


def test_without_the_extra_the_tables_are_there(lmfcn, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "lmfcn.report.paper_page", None)
    code, stdout, _ = lmfcn("table2", *QUICK, "--only", "CNN-H")
    assert code == 0
    assert "pip install 'lmfcn[report]'" in stdout
    assert (tmp_path / "reproduction" / "table2.tex").exists()


def test_figures_that_cannot_be_drawn_are_refused_before_anything_is_measured(lmfcn, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "lmfcn.report.paper_figures", None)
    code, stdout, stderr = lmfcn("table3", "figure1", *QUICK)
    assert (code, stdout) == (2, "")
    assert "pip install 'lmfcn[report]'" in stderr
    assert not (tmp_path / "reproduction").exists()


def test_tables_are_written_before_figures_are_drawn(lmfcn, monkeypatch, tmp_path):
    def fail(*_, **__):
        raise TrainingError("The latents collapsed.")

    monkeypatch.setattr("lmfcn.report.paper_figures.draw_figures", fail)
    code, stdout, stderr = lmfcn("table3", "figure1", *QUICK)
    assert code == 2
    assert "The latents collapsed." in stderr
    assert "4 of the paper's 22 rows are measured" in stdout
    assert (tmp_path / "reproduction" / "table3.md").exists()


def test_rows_are_known_by_the_names_of_the_tables(lmfcn, tmp_path):
    code, stdout, _ = lmfcn("table2", "table3", *QUICK, "--repeats", "1", "--only", "lmfcn (paper)")
    assert code == 0
    assert {(run.task, run.method) for run in read_runs(tmp_path / "reproduction" / "runs.jsonl").values()} == {
        (f"{images}{more}, quick", "LMFCN (paper)")
        for images in ("Gaussian", "Gaussian (ours)")
        for more in ("", ", 59 dimensions")
    }
    assert "Gaussian, quick LMFCN (paper)  " in stdout
    assert "Gaussian, 59 dimensions, quick LMFCN-59  " in stdout
    assert "- LMFCN is not run: left out by --only." in stdout
    assert "preset" not in stdout


def test_another_size_or_number_of_repetitions_is_said_everywhere(lmfcn, tmp_path):
    warning = (
        "This is not the full profile: images of 16 pixels instead of 128, 1 repetition instead of 5. Accuracies depend"
        " on the size of images, so these say little about the paper's."
    )
    code, stdout, _ = lmfcn("table3", "--size", "16", "--repeats", "1", "--quiet", "--only", "LBP")
    assert code == 0
    assert stdout.startswith(f"- {warning}\n")
    title = "Table 3: LMFCN and handcrafted features, images of 16 pixels, 1 repetition"
    assert title in stdout
    written = {ending: (tmp_path / "reproduction" / f"table3.{ending}").read_text() for ending in ("md", "tex", "csv")}
    assert written["md"].startswith(f"# {title}\n\n**{warning}**")
    assert warning in written["tex"]
    assert '\n"full, images of 16 pixels, 1 repetition",BACH' in written["csv"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["table1"], "What to reproduce must be one of 'table2', 'table3', 'table4', 'figure1', 'figure3', 'all', got"),
        (["table2", "--profile", "fast"], "--profile must be one of 'full', 'quick', got 'fast'."),
        (["table2", "--bach", "nowhere"], "nowhere is not a folder. BACH (ICIAR 2018): Aresta"),
        (["table2", "--crc", "."], "is not a complete copy of CRC textures (Kather 2016): no images of tumor"),
        (["table2", "--resnet18-weights", "none.pth"], "none.pth must be a file of weights, but there is none of"),
        (
            ["table2", "--only", "SVM"],
            "--only must name rows of the tables, got 'svm'; there are LMFCN (paper); LMFCN; CNN",
        ),
        (["table2", "--only", "FV-CNN"], "LMFCN-59; LMFCN-162; GLCM; LBP; PFTAS; CNN."),
        (["table2", "--only", ""], "--only names no row; there are LMFCN (paper); LMFCN; CNN-CE; "),
        (
            ["table2", "--only", "LBP"],
            "--only leaves no row of table 2; there are LMFCN (paper); LMFCN; CNN-CE; ",
        ),
        (
            ["table2", "table4", "figure1", "--only", "LMFCN-59"],
            "--only leaves no row of table 2 and table 4; there are ",
        ),
        (["table2", "--output", "taken"], "taken"),
    ],
)
def test_mistakes_end_with_one_sentence_and_code_2(lmfcn, tmp_path, arguments, sentence):
    (tmp_path / "taken").write_text("")
    code, _, stderr = lmfcn(*arguments)
    assert code == 2
    assert stderr.startswith("Error: ")
    assert stderr.count("\n") == 1
    assert sentence in stderr
    assert not (tmp_path / "reproduction").exists()
