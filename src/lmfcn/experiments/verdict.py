"""Which method won, by how much, whether that is more than chance, and what it cost: in words for everybody."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from lmfcn.experiments.runs import Run
from lmfcn.experiments.statistics import (
    Difference,
    Summary,
    holm,
    paired_difference,
    paired_p_value,
    summarize,
)

CONFIDENCE = 0.95
FEWEST_REPEATS, ENOUGH_REPEATS = 3, 5
"""With fewer than the first nothing is said about chance; with fewer than the second, more are advised."""


@dataclass(frozen=True)
class Rival:
    """A method beside the winner.

    Attributes
    ----------
    method : str
    score : Summary
        Of its test accuracies.
    seconds : float
        Computing time of one fit, mean over the repeats.
    behind : Difference
        The winner's test accuracies minus its own, with the interval of the corrected resampled t-test.
    p_value : float
        Of the same test, after Holm's correction for all comparisons with the winner.
    """

    method: str
    score: Summary
    seconds: float
    behind: Difference
    p_value: float


@dataclass(frozen=True)
class Verdict:
    """The winner, and all others from the best to the worst.

    Attributes
    ----------
    winner : str
        The method with the best mean test balanced accuracy; the cheapest of several that are equally good.
    score : Summary
    seconds : float
    rivals : tuple of Rival
    """

    winner: str
    score: Summary
    seconds: float
    rivals: tuple[Rival, ...]

    @property
    def n_repeats(self) -> int:
        """The number of divisions that all methods were measured on."""
        return self.score.n

    @property
    def level_with(self) -> list[Rival]:
        """The methods that cannot be told apart from the winner."""
        few = self.n_repeats < FEWEST_REPEATS
        return [rival for rival in self.rivals if few or rival.p_value > 1 - CONFIDENCE]

    @property
    def sentences(self) -> list[str]:
        """The verdict in two to four sentences."""
        if not self.rivals:
            return [f"Only {self.winner} was measured: test balanced accuracy {_score(self.score)}."]
        return [_lead(self), _chance(self), *_cost(self), *_advice(self)]


def shared_runs(runs: Collection[Run]) -> list[Run]:
    """Return the runs of those seeds that every method has, so that no method is judged by easier divisions."""
    seeds = [{run.seed for run in runs if run.method == method} for method in {run.method for run in runs}]
    common = set.intersection(*seeds) if seeds else set()
    return [run for run in runs if run.seed in common]


def judge(runs: Collection[Run]) -> Verdict:
    """Compare all methods of one task with the best of them.

    Parameters
    ----------
    runs : collection of Run
        Of one task, every method with the same seeds; see `shared_runs`.

    Raises
    ------
    ValueError
        If there is nothing to judge, or the methods were not measured on the same divisions.
    """
    by_method = _by_method(runs)
    means = {method: _mean_test(mine) for method, mine in by_method.items()}
    best = max(means.values())
    tied = [method for method, mean in means.items() if mean == best]
    winner = min(tied, key=lambda method: _seconds(by_method[method]))
    others = sorted((method for method in by_method if method != winner), key=lambda method: -means[method])
    p_values = holm([_p_value(by_method[winner], by_method[method]) for method in others])
    rivals = [_rival(by_method[winner], by_method[method], p) for method, p in zip(others, p_values, strict=True)]
    return Verdict(winner, summarize(_tests(by_method[winner])), _seconds(by_method[winner]), tuple(rivals))


def _by_method(runs: Collection[Run]) -> dict[str, list[Run]]:
    by_method: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        by_method.setdefault(run.method, []).append(run)
    if not by_method:
        raise ValueError("There is no run to judge.")
    divisions = {tuple((run.seed, run.split) for run in mine) for mine in by_method.values()}
    if len(divisions) > 1:
        raise ValueError("The methods must have been measured on the same divisions of the same images.")
    return by_method


def _rival(winner: Sequence[Run], runs: Sequence[Run], p_value: float) -> Rival:
    behind = paired_difference(_tests(winner), _tests(runs), confidence=CONFIDENCE, test_to_train=_overlap(winner))
    return Rival(runs[0].method, summarize(_tests(runs)), _seconds(runs), behind, p_value)


def _p_value(winner: Sequence[Run], runs: Sequence[Run]) -> float:
    resolution = 1 / float(np.mean([run.n_test for run in winner]))
    return paired_p_value(_tests(winner), _tests(runs), test_to_train=_overlap(winner), resolution=resolution)


def _overlap(runs: Sequence[Run]) -> float:
    """Return test images per image that a method learns from, the mean over the divisions."""
    return float(np.mean([run.n_test / (run.n_train + (run.n_validation or 0)) for run in runs]))


def _tests(runs: Sequence[Run]) -> list[float]:
    return [run.test_balanced_accuracy for run in runs]


def _mean_test(runs: Sequence[Run]) -> float:
    return round(float(np.mean(_tests(runs))), 9)  # the order of a sum must not decide between equals


def _seconds(runs: Sequence[Run]) -> float:
    return float(np.mean([run.cpu_seconds for run in runs]))


def _lead(verdict: Verdict) -> str:
    following = verdict.rivals[0]
    start = f"{verdict.winner} has the best mean test balanced accuracy, {_score(verdict.score)}"
    if f"{verdict.score.mean:.3f}" == f"{following.score.mean:.3f}":
        return f"{start}, practically the same as {following.method}."
    return f"{start}, {following.behind.mean:.3f} ahead of {following.method} with {following.score.mean:.3f}."


def _chance(verdict: Verdict) -> str:
    n, level = verdict.n_repeats, [rival.method for rival in verdict.level_with]
    if n < FEWEST_REPEATS:
        return f"{_repeats(n)} cannot tell whether that is more than chance."
    if not level:
        rest = "the other method" if len(verdict.rivals) == 1 else f"each of the {len(verdict.rivals)} others"
        return f"Its lead over {rest} is more than chance explains."
    if len(level) == len(verdict.rivals) and verdict.rivals[0].behind.mean == 0:
        return f"It cannot be told apart from {_list(level, 'or')}."
    if len(level) == len(verdict.rivals):
        return f"Chance alone may explain its lead: it cannot be told apart from {_list(level, 'or')}."
    n_worse = len(verdict.rivals) - len(level)
    worse = "the other one" if n_worse == 1 else f"the other {n_worse}"
    return (
        f"It cannot be told apart from {_list(level, 'or')}, as chance alone may explain the difference;"
        f" its lead over {worse} is more than chance explains."
    )


def _cost(verdict: Verdict) -> list[str]:
    own = f"One fit of {verdict.winner} took {_duration(verdict.seconds)} of computing"
    cheaper = [rival for rival in verdict.level_with if rival.seconds < verdict.seconds]
    if not cheaper or verdict.n_repeats < FEWEST_REPEATS:
        return [f"{own}."]
    cheapest = min(cheaper, key=lambda rival: rival.seconds)
    factor = verdict.seconds / max(cheapest.seconds, 0.1)
    times = f"{factor:.1f}" if factor < 10 else f"{factor:.0f}"
    theirs = f"{_duration(cheapest.seconds)} of {cheapest.method}"
    return [f"{own}, {times} times the {theirs}, the cheapest that cannot be told apart from it."]


def _advice(verdict: Verdict) -> list[str]:
    if not verdict.level_with or verdict.n_repeats >= ENOUGH_REPEATS:
        return []
    return [f"More repeats (--repeats {2 * ENOUGH_REPEATS}) can show more; those that are done are kept."]


def _score(score: Summary) -> str:
    if score.deviation is None:
        return f"{score.mean:.3f} (1 repeat)"
    return f"{score.mean:.3f} (± {score.deviation:.3f} over {score.n} repeats)"


def _repeats(n: int) -> str:
    return "A single repeat" if n == 1 else f"{n} repeats"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"


def _list(names: Sequence[str], last: str) -> str:
    # Some names hold a comma themselves.
    separator = "; " if any("," in name for name in names) else ", "
    return names[0] if len(names) == 1 else f"{separator.join(names[:-1])} {last} {names[-1]}"
