from test_verdict import BEST, NEAR, WORST

from lmfcn.experiments.results import as_csv, rivals_table
from lmfcn.experiments.verdict import judge


def test_what_each_method_is_behind():
    assert rivals_table(judge([*WORST, *NEAR, *BEST])).splitlines() == [
        "| behind CNN-CE | by | 95 % interval | p, Holm's correction | more than chance |",
        "|---|---|---|---|---|",
        "| GLCM | 0.010 | -0.019 to +0.039 | 0.399 | no |",
        "| LBP | 0.200 | +0.187 to +0.213 | < 0.001 | yes |",
    ]


def test_two_repeats_are_not_tested():
    assert rivals_table(judge([*BEST[:2], *WORST[:2]])).endswith("| LBP | 0.195 | - | - | - |")


def test_a_row_of_text_for_each_run():
    heading, first, *rest = as_csv([*NEAR, *BEST]).splitlines()
    assert heading.startswith("task,method,seed,test_balanced_accuracy,")
    assert first.startswith("steel,CNN-CE,0,0.91,0.9,1.0,3000,1000,1000,120.0,,")
    assert first.endswith(",division 0,{}")
    assert len(rest) == 9
