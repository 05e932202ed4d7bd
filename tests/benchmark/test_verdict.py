import math

import numpy as np
import pytest

from lmfcn.benchmark.runs import Run
from lmfcn.benchmark.statistics import holm, paired_p_value
from lmfcn.benchmark.verdict import complete_repeats, make_verdict, shared_runs


def runs_of(method, scores, seconds=1.0, n_test=1000, **more):
    more = {"n_validation": 1000, **more}
    return [
        Run("steel", method, seed, 1.0, 0.9, score, 3000, n_test, seconds, split=f"split {seed}", **more)
        for seed, score in enumerate(scores)
    ]


NEAR = runs_of("GLCM", [0.89, 0.92, 0.90, 0.93, 0.91], seconds=2.0)
BEST = runs_of("CNN-CE", [0.91, 0.92, 0.93, 0.92, 0.92], seconds=120.0)
WORST = runs_of("LBP", [0.71, 0.73, 0.72, 0.72, 0.72])


def test_the_differences_and_p_values_by_hand():
    verdict = make_verdict([*WORST, *NEAR, *BEST])
    assert verdict.winner == "CNN-CE"
    assert [other.method for other in verdict.others] == ["GLCM", "LBP"]
    near, worst = verdict.others
    # Differences 0.02, 0, 0.03, -0.01, 0.01: mean 0.01, deviation 0.0158114; t = 0.01 / (0.0158114 sqrt(1/5 + 1/4))
    # = 0.942809, whose two-sided p with 4 degrees of freedom is 0.399; of three pairs it is the last.
    assert near.behind.mean == pytest.approx(0.01)
    assert near.p_value == pytest.approx(0.399, abs=0.001)
    # Differences 0.20, 0.19, 0.21, 0.20, 0.20: t = 0.2 / (0.00707107 sqrt(0.45)) = 42.16, p = 1.9e-6, times three.
    assert worst.p_value == pytest.approx(3 * 1.89e-6, rel=0.02)
    assert verdict.indistinguishable == [near]
    assert verdict.n_repeats == 5


def test_the_sentences_say_who_by_how_much_whether_by_chance_and_at_what_cost():
    assert make_verdict([*WORST, *NEAR, *BEST]).sentences == [
        "CNN-CE has the best mean test balanced accuracy, 0.920 (± 0.007 over 5 repeats),"
        " 0.010 ahead of GLCM with 0.910.",
        "It cannot be told apart from GLCM, as chance alone may explain the difference;"
        " its lead over the other one is more than chance explains.",
        "One fit of CNN-CE took 2.0 min of computing, 60 times as long as GLCM (2.0 s),"
        " the cheapest that cannot be told apart from it.",
    ]


def test_a_clear_winner():
    assert make_verdict([*BEST, *WORST]).sentences[1:] == [
        "Its lead over the other method is more than chance explains.",
        "One fit of CNN-CE took 2.0 min of computing.",
    ]
    assert (
        "each of the 2 others"
        in make_verdict([*BEST, *WORST, *runs_of("PFTAS", [0.5, 0.5, 0.5, 0.5, 0.51])]).sentences[1]
    )


def test_all_level_and_few_repeats_advise_more():
    few = [*BEST[:3], *NEAR[:3], *runs_of("LMFCN, untrained", [0.90, 0.93, 0.89])]
    sentences = make_verdict(few).sentences
    assert sentences[1] == ("Chance alone may explain its lead: it cannot be told apart from LMFCN, untrained or GLCM.")
    assert sentences[3] == "More repeats (--repeats 10) can show more; those that are done are kept."
    assert len(sentences) == 4


@pytest.mark.parametrize(("n", "start"), [(1, "A single repeat is too little"), (2, "2 repeats are too few")])
def test_one_or_two_repeats_say_nothing_about_chance(n, start):
    verdict = make_verdict([*BEST[:n], *WORST[:n]])
    assert verdict.sentences[1] == f"{start} to tell whether that is more than chance."
    assert [other.method for other in verdict.indistinguishable] == ["LBP"]
    assert verdict.sentences[2] == "One fit of CNN-CE took 2.0 min of computing."
    assert "--repeats 10" in verdict.sentences[3]
    tied = make_verdict([*runs_of("GLCM", [0.9] * n), *runs_of("LBP", [0.9] * n)])
    assert tied.sentences[1] == f"{start} to tell them apart."


def test_of_two_that_are_equally_good_the_cheaper_one_wins():
    verdict = make_verdict([*runs_of("dear", [0.1 + 0.2, 0.9, 0.8], 9.0), *runs_of("cheap", [0.8, 0.9, 0.3], 4.0)])
    assert verdict.winner == "cheap"
    assert verdict.others[0].p_value == 1.0
    assert verdict.sentences[0].endswith("practically the same as dear.")


def test_the_same_small_difference_three_times_is_no_certainty():
    # One test image of twenty each time: taken to vary by one image, t = 1 / sqrt(1/3 + 20/4000).
    level = make_verdict([*runs_of("a", [0.95, 0.90, 1.0], n_test=20), *runs_of("b", [0.90, 0.85, 0.95], n_test=20)])
    assert level.others[0].p_value == pytest.approx(0.228, abs=0.001)
    sure = make_verdict([*runs_of("a", [0.95, 0.90, 1.0]), *runs_of("b", [0.90, 0.85, 0.95])])
    assert sure.others[0].p_value < 0.001


def test_a_single_method_is_no_contest():
    measured = "LBP was measured, with test balanced accuracy 0.720 (± 0.007 over 5 repeats)."
    assert make_verdict(WORST).sentences == [f"Only {measured}"]
    assert make_verdict(WORST, waiting=["GLCM"]).sentences == [f"Preliminary: only {measured}"]


def test_a_verdict_that_methods_are_missing_in_is_preliminary():
    sentences = make_verdict([*WORST, *NEAR], waiting=["LMFCN, untrained", "CNN-CE"]).sentences
    assert sentences[0] == "This is preliminary, about GLCM and LBP alone; not in it: LMFCN, untrained; CNN-CE."
    assert sentences[1].startswith("GLCM has the best")


def test_more_repeats_are_not_advised_while_some_are_missing():
    few = [*BEST[:3], *NEAR[:3]]
    assert "--repeats 10" in make_verdict(few, n_asked=3).sentences[-1]
    for unfinished in (make_verdict(few, n_asked=4), make_verdict(few, waiting=["LMFCN"])):
        assert "--repeats" not in unfinished.sentences[-1]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.02, "less than 0.1 s"), (0.5, "0.5 s"), (89, "89 s"), (90, "1.5 min"), (100, "1.7 min"), (900, "15 min")],
)
def test_times_that_differ_look_different(seconds, words):
    assert make_verdict([*runs_of("a", [0.9] * 5, seconds), *runs_of("b", [0.1] * 5)]).sentences[2] == (
        f"One fit of a took {words} of computing."
    )


def test_times_that_are_about_the_same_are_not_compared():
    near = [0.91, 0.92, 0.93, 0.92, 0.91]
    for ours, theirs in ((0.0, 0.0), (0.1, 0.0), (14.0, 10.0)):
        *_, cost = make_verdict(
            [*runs_of("a", near, theirs), *runs_of("b", [one + 0.001 for one in near], ours)]
        ).sentences
        assert " times " not in cost
    *_, cost = make_verdict([*runs_of("a", near, 0.0), *runs_of("b", [one + 0.001 for one in near], 0.3)]).sentences
    assert "0.3 s of computing, 3.0 times as long as a (less than 0.1 s), the cheapest" in cost


def test_the_interval_is_of_the_same_test_as_the_p_value():
    # The difference of one of twelve test images each time: its interval holds zero, and the p-value is above 0.05.
    scores = [10 / 12, 11 / 12, 9 / 12]
    (other,) = make_verdict(
        [*runs_of("a", [one + 1 / 12 for one in scores], n_test=12), *runs_of("b", scores, n_test=12)]
    ).others
    assert other.behind.low < 0 < other.behind.mean < other.behind.high
    # Taken to vary by 1/12: the interval is 4.302653 * sqrt(1/3 + 12/4000) / 12 to both sides.
    assert other.behind.high - other.behind.mean == pytest.approx(4.302653 * math.sqrt(1 / 3 + 12 / 4000) / 12)
    assert other.p_value > 0.2


def test_one_image_of_a_rare_class_makes_a_large_step():
    # 18 images of one class, 2 of the other: an image of the latter moves the mean of both by 1 / (2 * 2).
    rare = {"n_test": 20, "test_classes": [0] * 18 + [1] * 2}
    ours, theirs = [0.95, 0.90, 1.0], [0.70, 0.65, 0.75]
    (other,) = make_verdict([*runs_of("a", ours, **rare), *runs_of("b", theirs, **rare)]).others
    assert other.p_value == pytest.approx(paired_p_value(ours, theirs, test_to_train=20 / 4000, resolution=1 / 4))
    assert other.p_value > 0.2
    (sure,) = make_verdict([*runs_of("a", ours, n_test=20), *runs_of("b", theirs, n_test=20)]).others
    assert sure.p_value < 0.02


def equally_good(random, n_methods=8, n_repeats=5, n_test=200, n_learnt=800):
    """Return runs whose accuracies differ by chance only, with what overlapping splits have in common."""
    share = n_test / (n_test + n_learnt)
    of_images, of_split = random.normal(size=(n_methods, 1)), random.normal(size=(n_methods, n_repeats))
    scores = 0.8 + 0.05 * (math.sqrt(share) * of_images + math.sqrt(1 - share) * of_split)
    return [
        Run("steel", str(method), seed, 1.0, 0.9, score, n_learnt, n_test, 1.0)
        for method, mine in enumerate(scores.tolist())
        for seed, score in enumerate(mine)
    ]


def test_among_equals_the_best_by_chance_is_seldom_called_better():
    random, judged, naive = np.random.default_rng(0), [], []
    for _ in range(200):
        runs = equally_good(random)
        verdict = make_verdict(runs)
        judged.append(len(verdict.indistinguishable) < 7)
        scores = {
            name: [run.test_balanced_accuracy for run in runs if run.method == name] for name in map(str, range(8))
        }
        best = scores.pop(verdict.winner)
        naive.append(min(holm([paired_p_value(best, other, test_to_train=0.25) for other in scores.values()])) < 0.05)
    assert np.mean(judged) <= 0.05
    assert np.mean(naive) > 0.05  # what corrects only for the comparisons with the winner forgets that it was chosen


def test_other_splits_and_nothing_are_refused():
    with pytest.raises(ValueError, match="measured on the same splits"):
        make_verdict([*BEST, *NEAR[:4]])
    with pytest.raises(ValueError, match="no run to judge"):
        make_verdict([])


@pytest.mark.parametrize("others", [[0.9, 0.95, 1.0], [1.0, 0.9, 0.95], [0.9003, 0.95, 0.9997 - 0.0003]])
def test_equals_have_no_lead(others):
    verdict = make_verdict([*runs_of("GLCM", others, seconds=3.0), *runs_of("LBP", [0.9, 0.95, 1.0])])
    sentences = verdict.sentences
    assert f"{verdict.others[0].behind.mean:.3f}" == "0.000"
    assert sentences[0].startswith("LBP has the best")
    assert sentences[0].endswith("practically the same as GLCM.")
    assert sentences[1] == "It cannot be told apart from GLCM."


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
