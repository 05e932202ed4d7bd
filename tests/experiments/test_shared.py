import pytest
from test_verdict import BEST, NEAR, WORST

from lmfcn.experiments.shared import complete_repeats, shared_runs

ALL = ("CNN-CE", "GLCM", "LBP")


def block(runs, methods=ALL):
    """Return the methods of a verdict and their seeds, which must be the same for all of them."""
    shared = shared_runs(runs, methods)
    seeds = {name: [run.seed for run in shared if run.method == name] for name in {run.method for run in shared}}
    (common,) = {tuple(mine) for mine in seeds.values()} or {()}
    return sorted(seeds), list(common)


def test_complete_repeats_count():
    assert block([*BEST, *NEAR, *WORST]) == (list(ALL), [0, 1, 2, 3, 4])
    assert block([*BEST[:4], *NEAR, *WORST[1:]]) == (list(ALL), [1, 2, 3])
    assert complete_repeats([*BEST[:4], *NEAR, *WORST[1:]], ALL) == {1, 2, 3}
    # Two repeats say nothing about chance, but neither do those that fewer methods share.
    assert block([*BEST[:1], *NEAR[:2], *WORST[:2]]) == (list(ALL), [0])


def test_a_method_that_comes_later_takes_nothing_from_the_others():
    for n in (0, 1, 2):
        assert block([*BEST[:n], *NEAR, *WORST]) == (["GLCM", "LBP"], [0, 1, 2, 3, 4])
    assert block([*BEST[:3], *NEAR, *WORST]) == (list(ALL), [0, 1, 2])


def test_before_the_first_repeat_is_complete():
    assert block([*NEAR[:1], *WORST[:1]]) == (["GLCM", "LBP"], [0])
    assert block(WORST[:1]) == (["LBP"], [0])
    assert complete_repeats([*NEAR, *WORST], ALL) == set()
    assert block([*NEAR[:2], *WORST[1:3]]) == (
        ["GLCM", "LBP"],
        [1],
    )  # what both have, though none has all of the other's


@pytest.mark.parametrize("runs", [[], [*NEAR[:1], *WORST[1:]]], ids=["nothing", "nothing in common"])
def test_nothing_to_compare(runs):
    assert shared_runs(runs, ALL) == []


def test_runs_of_methods_that_cannot_run_here_are_left_out():
    assert block([*BEST, *NEAR, *WORST], ["GLCM", "LBP"]) == (["GLCM", "LBP"], [0, 1, 2, 3, 4])
