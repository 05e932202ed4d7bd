from collections import Counter
from dataclasses import replace

import pytest

from lmfcn.experiments.measuring import METHODS
from lmfcn.experiments.paper.profiles import OURS, PRESET, PROFILES, changes_of
from lmfcn.experiments.paper.rows import rows_of


def test_our_defaults_stand_beside_the_first_lmfcn_of_every_set():
    rows = rows_of([2, 3, 4], quick=False)
    assert Counter(row.printed.table for row in rows) == {2: 30, 3: 27, 4: 24}
    assert {row.method for row in rows} <= set(METHODS)
    bach = [(row.label, row.method, row.task.name) for row in rows if row.printed.images == "BACH"]
    assert bach[:3] == [
        ("LMFCN", PRESET, "BACH"),
        ("LMFCN, our defaults", OURS, "BACH"),
        ("CNN-CE", "CNN-CE", "BACH"),
    ]
    assert bach[6:10] == [
        ("LMFCN-59", PRESET, "BACH, 59 dimensions"),
        ("LMFCN, our defaults", OURS, "BACH"),  # the same runs as in table 2
        ("LMFCN-162", PRESET, "BACH, 162 dimensions"),
        ("GLCM", "GLCM", "BACH"),
    ]
    assert bach[12:15] == [
        ("LMFCN", PRESET, "BACH, 4 classes"),
        ("LMFCN, our defaults", OURS, "BACH, 4 classes"),
        ("CNN", "CNN multiclass", "BACH, 4 classes"),
    ]


def test_quick_runs_have_names_of_their_own():
    assert {row.cell(1).task for row in rows_of([4], quick=True)} == {
        *("BACH, 4 classes, quick", "BreaKHis, 8 classes, quick", "CRC, 8 classes, quick")
    }


def test_the_full_profile_is_the_papers_setting():
    full = PROFILES["full"]
    two = changes_of(full, 16, {}, many=False)
    assert two[PRESET] == {"latent_dim": 16, "epochs": 15}
    assert two["CNN-CE"] == two["CNN-H"] == {"latent_dim": 16, "epochs": 100}
    assert two[OURS] == {}
    many = changes_of(full, 16, {"ResNet18": "weights.pth"}, many=True)
    assert many[PRESET]["epochs"] == 10
    assert many["CNN multiclass"]["epochs"] == 400
    assert many["ResNet18"] == {"weights": "weights.pth"}
    assert METHODS["ResNet18"]().n_components == 16
    assert METHODS[PRESET]().preset == "paper"
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
