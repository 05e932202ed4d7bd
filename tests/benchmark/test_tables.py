from dataclasses import replace

import pytest

from lmfcn.benchmark.runs import Run
from lmfcn.benchmark.tables import all_tables, difference_table, matched_pairs, overview_table, task_table


def run(task, method, seed, score, **more):
    return Run(task, method, seed, 1.0, 0.9, score, n_train=100, n_test=300, cpu_seconds=2.0, **more)


LEARNT = {
    "epochs": 3,
    "best_epoch": [1, 2],
    "n_backpropagated": 1200,
    "n_support_first": 40,
    "n_support_kept": 30,
    "n_support_final": 55,
    "n_weights": 148544,
    "chosen": {"learning_rate": 0.001},
    "validation_by_epoch": [0.5, 0.8, 0.9],
    "seconds_by_epoch": [1.0, 2.0, 3.0],
    "seconds_to_best": 3.0,
}
RUNS = [
    run("lung", "LMFCN", 1, 0.8, **LEARNT),
    run("lung", "LMFCN", 0, 0.9, **LEARNT),
    run("lung", "LBP", 0, 0.7),
    run("lung", "LBP", 1, 0.7),
    run("neu-10", "LBP", 0, 0.6),
    run("neu-10", "GLCM", 0, 0.5),
    run("neu-10", "GLCM", 1, 0.5),
]
METHODS = ["LMFCN", "GLCM", "LBP"]


def entries(table):
    return [[entry.strip() for entry in line.strip("|").split("|")] for line in table.splitlines()]


def test_the_table_of_a_task():
    heading, line, ours, theirs = entries(task_table(RUNS, "lung", METHODS))
    assert heading[0] == "lung"
    assert set(line) == {"---"}
    assert ours[:6] == ["LMFCN", "1.000", "0.900", "0.850 ± 0.071", "2", "2 of 3"]
    assert heading[8:10] == ["support vectors, first → selected epoch", "support vectors, final SVM"]
    assert ours[6:] == ["2", "1,200", "40 → 30", "55", "148,544", "learning_rate 0.001"]
    assert theirs == ["LBP", "1.000", "0.900", "0.700 ± 0.000", "2", "-", "2", "-", "-", "-", "-", "-"]
    assert len(heading) == len(ours) == len(theirs)


def test_the_overview_marks_the_best_and_counts_what_is_missing():
    assert entries(overview_table(RUNS, ["neu-10", "lung", "textures"], METHODS)) == [
        ["test", "neu-10", "lung"],
        ["---", "---", "---"],
        ["LMFCN", "-", "**0.850 ± 0.071**"],
        ["GLCM", "0.500 ± 0.000", "-"],
        ["LBP", "**0.600** (1 of 2 seeds)", "0.700 ± 0.000"],
    ]


def test_all_tables_show_what_was_asked_for():
    text = all_tables(RUNS, ["neu-10", "lung"], ["LBP"])
    assert text.count("\n\n") == 2
    assert "GLCM" not in text
    assert text.index("| neu-10 |") < text.index("| lung |") < text.index("| test | neu-10 | lung |")
    assert all_tables([], ["lung"], ["LBP"]) == "| test |\n|---|"


def test_paired_differences_by_hand():
    # Differences 0.2 and 0.1: deviation 0.0707, standard error 0.05, and 12.706 is Student's point for one degree.
    heading, _, row = entries(difference_table(RUNS, ["lung", "neu-10"], "LMFCN", "LBP"))
    assert heading[0] == "LMFCN minus LBP"
    assert row == ["lung", "+0.150", "-0.485 to +0.785", "2", "-"]
    # With the correction: 0.0707 * sqrt(1/2 + 300/100) = 0.132.
    *_, corrected = entries(difference_table(RUNS, ["lung"], "LMFCN", "LBP", corrected=True))
    assert corrected[2] == "-1.531 to +1.831"


def test_a_difference_beyond_chance_is_marked():
    theirs = [replace(one, method="GLCM", test_balanced_accuracy=one.test_balanced_accuracy - 0.1) for one in RUNS[:2]]
    *_, row = entries(difference_table([*RUNS, *theirs], ["lung"], "LMFCN", "GLCM"))
    assert row[1:3] == ["**+0.100**", "+0.100 to +0.100"]


def test_one_seed_has_no_interval():
    *_, row = entries(difference_table(RUNS[1:], ["lung"], "LMFCN", "LBP"))
    assert row[:4] == ["lung", "+0.200", "-", "1"]


def test_divisions_that_differ_are_not_paired():
    ours, theirs = replace(RUNS[1], split="a"), RUNS[2]
    assert matched_pairs([ours, theirs], "lung", "LMFCN", "LBP") == [(ours, theirs)]
    assert matched_pairs([ours, replace(theirs, split="b")], "lung", "LMFCN", "LBP") == []
    same = replace(theirs, split="a")
    assert matched_pairs([ours, same], "lung", "LMFCN", "LBP") == [(ours, same)]
    assert len(entries(difference_table([ours, replace(theirs, split="b")], ["lung"], "LMFCN", "LBP"))) == 2


@pytest.mark.parametrize(
    ("best", "expected"), [(0.8, "0.20, reached 2 of 2 times"), (0.95, "reached 0 of 2 times")], ids=["faster", "never"]
)
def test_who_learns_faster(best, expected):
    slow = {"validation_by_epoch": [0.5, best], "seconds_by_epoch": [5.0, 10.0], "seconds_to_best": 10.0}
    theirs = [run("lung", "CNN-CE", seed, 0.8, **slow) for seed in (0, 1)]
    *_, row = entries(difference_table([*RUNS, *theirs], ["lung"], "LMFCN", "CNN-CE"))
    assert row[-1] == expected
