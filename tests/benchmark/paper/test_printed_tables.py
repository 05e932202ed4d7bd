from collections import Counter
from dataclasses import replace

import pytest

from lmfcn.benchmark.measure import METHODS
from lmfcn.benchmark.paper.printed_tables import (
    METHODS_BY_LABEL,
    TITLES,
    check_rows_left,
    chosen_labels,
    printed_rows,
    rows_of,
)
from lmfcn.benchmark.paper.profiles import OURS, PAPER, PROFILES, changes_of


def test_every_row_of_the_three_tables_is_there():
    rows = printed_rows()
    assert Counter(row.table for row in rows) == {2: 25, 3: 22, 4: 21}
    assert set(TITLES) == {2, 3, 4}
    assert len({(row.table, row.images, row.method) for row in rows}) == len(rows)
    assert list(dict.fromkeys(row.images for row in rows if row.table == 3)) == [
        *("BACH", "BreaKHis", "CRC", "Salzburg", "Gaussian")
    ]
    assert [row.method for row in rows if row.table == 4 and row.images == "CRC"] == [
        *("LMFCN", "CNN", "GLCM", "LBP", "PFTAS", "ResNet18", "InceptionV3")
    ]
    wide = [row.images for row in rows if row.method == "LMFCN-162"]
    assert wide == ["BACH", "BreaKHis"]


@pytest.mark.parametrize(  # copied by eye from the paper's source
    ("table", "images", "method", "figures", "epoch"),
    [
        (2, "BACH", "LMFCN", (0.8811, 0.0426, 0.7857, 0.0221, 0.8056, 0.0203), 6),
        (2, "BreaKHis", "CNN-CE", (0.8926, 0.0092, 0.9122, 0.0226, 0.8926, 0.0140), 91),
        (2, "CRC", "CNN-H", (0.9928, 0.0038, 0.9924, 0.0027, 0.9928, 0.0070), 30),
        (2, "Salzburg", "ResNet18", (0.9946, 0.0033, 0.9046, 0.0221, 0.8932, 0.0088), None),
        (2, "Gaussian", "LMFCN", (1.0, 0.0, 1.0, 0.0, 0.9990, 0.0022), 2),
        (2, "Gaussian", "CNN-CE", (0.9950, 0.0061, 1.0, 0.0, 1.0, 0.0), 72),
        (2, "Gaussian", "InceptionV3", (0.5102, 0.0235, 0.5311, 0.0185, 0.5021, 0.0258), None),
        (3, "BACH", "LMFCN-162", (1.0, 0.0, 0.8068, 0.0600, 0.7934, 0.0536), None),
        (3, "CRC", "GLCM", (0.9864, 0.0036, 0.9828, 0.0055, 0.9853, 0.0101), None),
        (3, "Salzburg", "LBP", (0.9987, 0.0012, 0.9282, 0.0209, 0.9116, 0.0208), None),
        (3, "Gaussian", "LMFCN-59", (1.0, 0.0, 0.9354, 0.1254, 0.9880, 0.0121), None),
        (3, "Gaussian", "PFTAS", (0.5578, 0.0080, 0.5953, 0.0077, 0.5608, 0.0076), None),
        (4, "BACH", "PFTAS", (0.6229, 0.0146, 0.5690, 0.0464, 0.6043, 0.0235), None),
        (4, "BreaKHis", "InceptionV3", (0.1848, 0.0182, 0.1745, 0.0194, 0.1767, 0.0123), None),
        (4, "CRC", "CNN", (0.7209, 0.2614, 0.3946, 0.0453, 0.3901, 0.0402), None),
    ],
)
def test_figures_are_the_papers(table, images, method, figures, epoch):
    (row,) = (row for row in printed_rows() if (row.table, row.images, row.method) == (table, images, method))
    found = [
        number for summary in (row.train, row.validation, row.test) for number in (summary.mean, summary.deviation)
    ]
    assert tuple(found) == figures
    assert row.epoch == epoch
    assert row.test.n == 5


def test_our_lmfcn_follows_the_papers_first_lmfcn_of_every_set():
    rows = rows_of([2, 3, 4], quick=False)
    assert Counter(row.printed.table for row in rows) == {2: 36, 3: 32, 4: 24}
    assert {row.method for row in rows} <= set(METHODS)
    bach = [(row.label, row.method, row.task.name) for row in rows if row.printed.images == "BACH"]
    assert bach[:3] == [
        ("LMFCN (paper)", PAPER, "BACH"),
        ("LMFCN", OURS, "BACH"),
        ("CNN-CE", "CNN-CE", "BACH"),
    ]
    assert bach[6:10] == [
        ("LMFCN-59", PAPER, "BACH, 59 dimensions"),
        ("LMFCN", OURS, "BACH"),  # the same runs as in table 2
        ("LMFCN-162", PAPER, "BACH, 162 dimensions"),
        ("GLCM", "GLCM", "BACH"),
    ]
    assert bach[12:15] == [
        ("LMFCN (paper)", PAPER, "BACH, 4 classes"),
        ("LMFCN", OURS, "BACH, 4 classes"),
        ("CNN", "CNN multiclass", "BACH, 4 classes"),
    ]


def test_our_gaussian_images_are_a_second_block_that_is_not_compared():
    rows = rows_of([3], quick=False)
    assert [(row.task.name, row.label, row.is_compared) for row in rows[-10:]] == [
        *[(f"Gaussian{more}", label, True) for label, more in TABLE3_OF_GAUSSIANS.items()],
        *[(f"Gaussian (ours){more}", label, False) for label, more in TABLE3_OF_GAUSSIANS.items()],
    ]


TABLE3_OF_GAUSSIANS = {"LMFCN-59": ", 59 dimensions", "LMFCN": "", "GLCM": "", "LBP": "", "PFTAS": ""}


def test_quick_runs_have_names_of_their_own():
    assert {row.key(1).task for row in rows_of([4], quick=True)} == {
        *("BACH, 4 classes, quick", "BreaKHis, 8 classes, quick", "CRC, 8 classes, quick")
    }


def test_the_full_profile_is_the_papers_setting():
    full = PROFILES["full"]
    two = changes_of(full, 16, {}, multiclass=False)
    assert two[PAPER] == {"latent_dim": 16, "epochs": 15}
    assert two["CNN-CE"] == two["CNN-H"] == {"latent_dim": 16, "epochs": 100}
    assert two[OURS] == {}
    more = changes_of(full, 16, {"ResNet18": "weights.pth"}, multiclass=True)
    assert more[PAPER]["epochs"] == 10
    assert more["CNN multiclass"]["epochs"] == 400
    assert more["ResNet18"] == {"weights": "weights.pth"}
    assert METHODS["ResNet18"]().n_components == 16
    assert METHODS[PAPER]().recipe == "paper"
    assert (full.repeats, full.figure_epochs, full.is_quick) == (5, 20, False)
    assert PROFILES["quick"].is_quick
    assert (full.tag, full.warning) == ("", "")


@pytest.mark.parametrize(
    ("profile", "changes", "tag", "words"),
    [
        (
            "full",
            {"repeats": 3},
            "3 repetitions",
            ": 3 repetitions instead of 5. Means and deviations are less certain",
        ),
        (
            "full",
            {"repeats": 9},
            "9 repetitions",
            ": 9 repetitions instead of 5. Means and deviations are more certain",
        ),
        ("full", {"size": 256}, "images of 256 pixels", ": images of 256 pixels instead of 128. Accuracies depend"),
        (
            "quick",
            {"size": 128, "repeats": 5},
            "quick profile",
            "This is the quick profile: few images, few epochs. It",
        ),
    ],
)
def test_every_other_setting_is_named(profile, changes, tag, words):
    found = replace(PROFILES[profile], **changes)
    assert found.tag == tag
    assert words in found.warning


def test_every_label_of_the_tables_can_be_chosen():
    assert list(METHODS_BY_LABEL) == [
        *("LMFCN (paper)", "LMFCN", "CNN-CE", "CNN-H", "ResNet18", "InceptionV3"),
        *("LMFCN-59", "LMFCN-162", "GLCM", "LBP", "PFTAS", "CNN"),
    ]
    assert set(METHODS_BY_LABEL.values()) <= set(METHODS)
    for label in (label for label in METHODS_BY_LABEL if label != PAPER):
        assert chosen_labels([label]) == [label]
    assert chosen_labels([",".join(METHODS_BY_LABEL)]) == chosen_labels([]) == list(METHODS_BY_LABEL)


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("LMFCN (paper)", ["LMFCN (paper)", "LMFCN-59", "LMFCN-162"]),
        ("CNN multiclass", ["CNN"]),
        ("lmfcn", ["LMFCN"]),
        ("CNN-CE,LMFCN (paper)", ["LMFCN (paper)", "CNN-CE", "LMFCN-59", "LMFCN-162"]),
    ],
)
def test_the_name_of_a_method_chooses_all_its_rows(name, labels):
    assert chosen_labels([name]) == labels


@pytest.mark.parametrize("only", [[""], [" , "], ["", ""]])
def test_no_name_is_refused(only):
    with pytest.raises(ValueError, match=r"^--only names no row; there are LMFCN \(paper\); LMFCN; "):
        chosen_labels(only)


def test_only_rows_of_the_tables_asked_for_count():
    rows = rows_of([4], quick=False)
    check_rows_left(rows, ["CNN"])
    check_rows_left([], ["CNN"])
    with pytest.raises(
        ValueError, match=r"^--only leaves no row of table 4; there are LMFCN \(paper\); LMFCN; .*CNN; GLCM; LBP; PFT"
    ):
        check_rows_left(rows, ["CNN-CE"])
