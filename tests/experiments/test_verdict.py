import pytest

from lmfcn.experiments.runs import Run
from lmfcn.experiments.verdict import judge, shared_runs


def runs_of(method, scores, seconds=1.0, seeds=None, n_test=1000):
    return [
        Run("steel", method, seed, 1.0, 0.9, score, 3000, n_test, seconds, n_validation=1000, split=f"division {seed}")
        for seed, score in zip(seeds or range(len(scores)), scores, strict=True)
    ]


NEAR = runs_of("GLCM", [0.89, 0.92, 0.90, 0.93, 0.91], seconds=2.0)
BEST = runs_of("CNN-CE", [0.91, 0.92, 0.93, 0.92, 0.92], seconds=120.0)
WORST = runs_of("LBP", [0.71, 0.73, 0.72, 0.72, 0.72])


def test_the_differences_and_p_values_by_hand():
    verdict = judge([*WORST, *NEAR, *BEST])
    assert verdict.winner == "CNN-CE"
    assert [rival.method for rival in verdict.rivals] == ["GLCM", "LBP"]
    near, worst = verdict.rivals
    # Differences 0.02, 0, 0.03, -0.01, 0.01: mean 0.01, deviation 0.0158114; t = 0.01 / (0.0158114 sqrt(1/5 + 1/4))
    # = 0.942809, whose two-sided p with 4 degrees of freedom is 0.399.
    assert near.behind.mean == pytest.approx(0.01)
    assert near.p_value == pytest.approx(0.399, abs=0.001)
    # Differences 0.20, 0.19, 0.21, 0.20, 0.20: t = 0.2 / (0.00707107 sqrt(0.45)) = 42.16, p = 1.9e-6, doubled by Holm.
    assert worst.p_value == pytest.approx(2 * 1.89e-6, rel=0.02)
    assert verdict.level_with == [near]
    assert verdict.n_repeats == 5


def test_the_sentences_say_who_by_how_much_whether_by_chance_and_at_what_cost():
    assert judge([*WORST, *NEAR, *BEST]).sentences == [
        "CNN-CE has the best mean test balanced accuracy, 0.920 (± 0.007 over 5 repeats),"
        " 0.010 ahead of GLCM with 0.910.",
        "It cannot be told apart from GLCM, as chance alone may explain the difference;"
        " its lead over the other one is more than chance explains.",
        "One fit of CNN-CE took 2 min of computing, 60 times the 2.0 s of GLCM,"
        " the cheapest that cannot be told apart from it.",
    ]


def test_a_clear_winner():
    assert judge([*BEST, *WORST]).sentences[1:] == [
        "Its lead over the other method is more than chance explains.",
        "One fit of CNN-CE took 2 min of computing.",
    ]
    assert "each of the 2 others" in judge([*BEST, *WORST, *runs_of("PFTAS", [0.5, 0.5, 0.5, 0.5, 0.51])]).sentences[1]


def test_all_level_and_few_repeats_advise_more():
    few = [*BEST[:3], *NEAR[:3], *runs_of("LMFCN, untrained", [0.90, 0.93, 0.89])]
    sentences = judge(few).sentences
    assert sentences[1] == ("Chance alone may explain its lead: it cannot be told apart from LMFCN, untrained or GLCM.")
    assert sentences[3] == "More repeats (--repeats 10) can show more; those that are done are kept."
    assert len(sentences) == 4


@pytest.mark.parametrize(("n", "start"), [(1, "A single repeat"), (2, "2 repeats")])
def test_one_or_two_repeats_say_nothing_about_chance(n, start):
    verdict = judge([*BEST[:n], *WORST[:n]])
    assert verdict.sentences[1] == f"{start} cannot tell whether that is more than chance."
    assert [rival.method for rival in verdict.level_with] == ["LBP"]
    assert verdict.sentences[2] == "One fit of CNN-CE took 2 min of computing."
    assert "--repeats 10" in verdict.sentences[3]


def test_of_two_that_are_equally_good_the_cheaper_one_wins():
    verdict = judge([*runs_of("dear", [0.1 + 0.2, 0.9, 0.8], 9.0), *runs_of("cheap", [0.8, 0.9, 0.3], 4.0)])
    assert verdict.winner == "cheap"
    assert verdict.rivals[0].p_value == 1.0
    assert verdict.sentences[0].endswith("practically the same as dear.")


def test_the_same_small_difference_three_times_is_no_certainty():
    # One test image of twenty each time: taken to vary by one image, t = 1 / sqrt(1/3 + 20/4000).
    level = judge([*runs_of("a", [0.95, 0.90, 1.0], n_test=20), *runs_of("b", [0.90, 0.85, 0.95], n_test=20)])
    assert level.rivals[0].p_value == pytest.approx(0.228, abs=0.001)
    sure = judge([*runs_of("a", [0.95, 0.90, 1.0]), *runs_of("b", [0.90, 0.85, 0.95])])
    assert sure.rivals[0].p_value < 0.001


def test_a_single_method_is_no_contest():
    assert judge(WORST).sentences == ["Only LBP was measured: test balanced accuracy 0.720 (± 0.007 over 5 repeats)."]


def test_only_seeds_that_all_methods_have_are_shared():
    runs = [*BEST[:2], *NEAR, *WORST[1:]]
    assert {run.cell for run in shared_runs(runs)} == {("steel", name, 1) for name in ("CNN-CE", "GLCM", "LBP")}
    assert shared_runs([]) == []


def test_other_divisions_and_nothing_are_refused():
    with pytest.raises(ValueError, match="measured on the same divisions"):
        judge([*BEST, *NEAR[:4]])
    with pytest.raises(ValueError, match="no run to judge"):
        judge([])


def test_equals_have_no_lead():
    scores = [0.9, 0.95, 1.0]
    sentences = judge([*runs_of("GLCM", scores, seconds=3.0), *runs_of("LBP", scores)]).sentences
    assert sentences[0].startswith("LBP has the best")
    assert sentences[0].endswith("practically the same as GLCM.")
    assert sentences[1] == "It cannot be told apart from GLCM."
