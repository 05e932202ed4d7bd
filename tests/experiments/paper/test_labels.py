import pytest

from lmfcn.experiments.measuring import METHODS
from lmfcn.experiments.paper.labels import METHOD_OF, check_rows_left, chosen_labels
from lmfcn.experiments.paper.rows import rows_of


def test_every_label_of_the_tables_is_taken_and_stands_for_itself():
    assert list(METHOD_OF) == [
        *("LMFCN", "LMFCN, our defaults", "CNN-CE", "CNN-H", "ResNet18", "InceptionV3"),
        *("LMFCN-59", "LMFCN-162", "GLCM", "LBP", "PFTAS", "CNN"),
    ]
    assert set(METHOD_OF.values()) <= set(METHODS)
    for label in METHOD_OF:
        assert chosen_labels([label]) == [label]
    assert chosen_labels([",".join(METHOD_OF)]) == chosen_labels([]) == list(METHOD_OF)


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("LMFCN, paper's preset", ["LMFCN", "LMFCN-59", "LMFCN-162"]),
        ("CNN multiclass", ["CNN"]),
        ("lmfcn", ["LMFCN"]),
        ("CNN-CE,LMFCN, paper's preset", ["LMFCN", "CNN-CE", "LMFCN-59", "LMFCN-162"]),
    ],
)
def test_names_of_methods_are_taken_where_no_label_means_another(name, labels):
    assert chosen_labels([name]) == labels


@pytest.mark.parametrize("only", [[""], [" , "], ["", ""]])
def test_no_name_is_refused(only):
    with pytest.raises(ValueError, match=r"^--only names no row; there are LMFCN; LMFCN, our defaults; "):
        chosen_labels(only)


def test_only_rows_of_the_tables_asked_for_count():
    rows = rows_of([4], quick=False)
    check_rows_left(rows, ["CNN"])
    check_rows_left([], ["CNN"])
    with pytest.raises(ValueError, match=r"^--only leaves no row of table 4; there are LMFCN; .*; CNN; GLCM; LBP; PFT"):
        check_rows_left(rows, ["CNN-CE"])
