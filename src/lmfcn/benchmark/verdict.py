"""The verdict of a comparison: which method is best, by how much, and whether chance explains it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from lmfcn.benchmark.runs import Run
from lmfcn.benchmark.statistics import Difference, Summary, holm, paired_difference, paired_p_value, summarize

CONFIDENCE = 0.95
FEWEST_REPEATS, ENOUGH_REPEATS = 3, 5
"""Below the first number nothing is said about chance; below the second, more repeats are advised."""

_NOTABLE_FACTOR = 1.5
"""Computing times that differ by less than this factor are practically the same."""

_SHORTEST = 0.1
"""Seconds: the resolution of recorded times."""


@dataclass(frozen=True)
class OtherMethod:
    """A method other than the winner.

    Attributes
    ----------
    method : str
    score : Summary
        Mean and deviation of its test accuracies.
    seconds : float
        Computing time of one fit, mean over the repeats.
    behind : Difference
        The winner's test accuracies minus its own, with the interval of the corrected resampled t-test.
    p_value : float
        Of the same test, after Holm's correction for all pairs of methods. The winner is known only from these
        results, so every pair could have been the one that is tested.
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
    others : tuple of OtherMethod
    waiting : tuple of str
        Methods that are not part of it, because they lack repeats that the others have.
    n_asked : int
        Repeats that were asked for; 0 if that is not known.
    """

    winner: str
    score: Summary
    seconds: float
    others: tuple[OtherMethod, ...]
    waiting: tuple[str, ...] = ()
    n_asked: int = 0

    @property
    def n_repeats(self) -> int:
        """The number of splits that all methods were measured on."""
        return self.score.n

    @property
    def indistinguishable(self) -> list[OtherMethod]:
        """The methods whose difference from the winner is not significant."""
        few = self.n_repeats < FEWEST_REPEATS
        return [other for other in self.others if few or other.p_value > 1 - CONFIDENCE]

    @property
    def is_clear(self) -> bool:
        """Whether the winner's lead over every other method is more than chance explains."""
        return bool(self.others) and not self.indistinguishable

    @property
    def sentences(self) -> list[str]:
        """The verdict in two to five sentences."""
        if not self.others:
            only = "Preliminary: only" if self.waiting else "Only"
            return [f"{only} {self.winner} was measured, with test balanced accuracy {_score(self.score)}."]
        return [*_preliminary(self), _lead(self), _chance(self), *_cost(self), *_advice(self)]


def make_verdict(runs: Collection[Run], *, waiting: Sequence[str] = (), n_asked: int = 0) -> Verdict:
    """Find the best method of one task and compare all others with it.

    Parameters
    ----------
    runs : collection of Run
        Of one task, every method with the same seeds; see `shared_runs`.
    waiting : sequence of str
        Methods that still lack some of these seeds.
    n_asked : int, default=0
        Repeats that were asked for.

    Raises
    ------
    ValueError
        If there is no run, or the methods were not measured on the same splits.
    """
    by_method = _by_method(runs)
    means = {method: _mean_test(runs) for method, runs in by_method.items()}
    best = max(means.values())
    tied = [method for method, mean in means.items() if mean == best]
    winner = min(tied, key=lambda method: _seconds(by_method[method]))
    following = sorted((method for method in by_method if method != winner), key=lambda method: -means[method])
    p_values = _p_values(by_method)
    others = [
        _other_method(by_method[winner], by_method[method], p_values[frozenset({winner, method})])
        for method in following
    ]
    score, seconds = summarize(_tests(by_method[winner])), _seconds(by_method[winner])
    return Verdict(winner, score, seconds, tuple(others), tuple(waiting), n_asked)


def _by_method(runs: Collection[Run]) -> dict[str, list[Run]]:
    by_method: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        by_method.setdefault(run.method, []).append(run)
    if not by_method:
        raise ValueError("There is no run to judge: no repeat is complete yet.")
    splits = {tuple((run.seed, run.split) for run in runs) for runs in by_method.values()}
    if len(splits) > 1:
        raise ValueError("The methods must have been measured on the same splits of the same images.")
    return by_method


def _other_method(winner: Sequence[Run], runs: Sequence[Run], p_value: float) -> OtherMethod:
    behind = paired_difference(
        _tests(winner),
        _tests(runs),
        confidence=CONFIDENCE,
        test_to_train=_test_to_train(winner),
        resolution=_resolution(winner),
    )
    return OtherMethod(runs[0].method, summarize(_tests(runs)), _seconds(runs), behind, p_value)


def _p_values(by_method: Mapping[str, Sequence[Run]]) -> dict[frozenset[str], float]:
    """Return the p-value of every pair of methods, corrected for the number of all pairs."""
    pairs = list(combinations(by_method, 2))
    found = [_p_value(by_method[one], by_method[other]) for one, other in pairs]
    return {frozenset(pair): p_value for pair, p_value in zip(pairs, holm(found), strict=True)}


def _p_value(ours: Sequence[Run], theirs: Sequence[Run]) -> float:
    return paired_p_value(
        _tests(ours), _tests(theirs), test_to_train=_test_to_train(ours), resolution=_resolution(ours)
    )


def _resolution(runs: Sequence[Run]) -> float:
    """Return the largest step that one test image can make in the balanced accuracy of one split."""
    return max(_largest_step(run) for run in runs)


def _largest_step(run: Run) -> float:
    if not run.test_classes:
        return 1 / run.n_test  # a line of an older version; right for classes of the same size
    _, counts = np.unique(run.test_classes, return_counts=True)
    return 1 / float(len(counts) * counts.min())


def describe_tests(runs: Collection[Run]) -> str:
    """Say how many images each repeat was tested on, and how much one of them counts.

    Examples
    --------
    >>> describe_tests([Run("bark", "LBP", seed, 1.0, 0.9, 0.8, 60, 20 + seed, 1.0) for seed in range(3)])
    'Each repeat was tested on 20 to 22 images; one image changes a balanced accuracy by up to 0.050.'
    """
    fewest, most = (choose(run.n_test for run in runs) for choose in (min, max))
    n_images = str(fewest) if fewest == most else f"{fewest} to {most}"
    return (
        f"Each repeat was tested on {n_images} images; one image changes a balanced accuracy by up to"
        f" {_resolution(list(runs)):.3f}."
    )


def _test_to_train(runs: Sequence[Run]) -> float:
    """Return the ratio of test images to training and validation images, the mean over the splits."""
    return float(np.mean([run.n_test / (run.n_train + (run.n_validation or 0)) for run in runs]))


def _tests(runs: Sequence[Run]) -> list[float]:
    return [run.test_balanced_accuracy for run in runs]


def _mean_test(runs: Sequence[Run]) -> float:
    return round(float(np.mean(_tests(runs))), 9)  # the order of a sum must not decide between equals


def _seconds(runs: Sequence[Run]) -> float:
    return float(np.mean([run.cpu_seconds for run in runs]))


def _preliminary(verdict: Verdict) -> list[str]:
    if not verdict.waiting:
        return []
    compared = [verdict.winner, *(other.method for other in verdict.others)]
    return [f"This is preliminary, about {_list(compared, 'and')} alone; not in it: {'; '.join(verdict.waiting)}."]


def _lead(verdict: Verdict) -> str:
    following = verdict.others[0]
    start = f"{verdict.winner} has the best mean test balanced accuracy, {_score(verdict.score)}"
    if _is_tie(verdict):
        return f"{start}, practically the same as {following.method}."
    return f"{start}, {following.behind.mean:.3f} ahead of {following.method} with {following.score.mean:.3f}."


def _is_tie(verdict: Verdict) -> bool:
    """Tell whether the two best have the same accuracy in every table."""
    return f"{verdict.score.mean:.3f}" == f"{verdict.others[0].score.mean:.3f}"


def _chance(verdict: Verdict) -> str:
    n, level = verdict.n_repeats, [other.method for other in verdict.indistinguishable]
    if n < FEWEST_REPEATS:
        return f"{_too_few(n)} to tell {'them apart' if _is_tie(verdict) else 'whether that is more than chance'}."
    if not level:
        rest = "the other method" if len(verdict.others) == 1 else f"each of the {len(verdict.others)} others"
        return f"Its lead over {rest} is more than chance explains."
    if len(level) == len(verdict.others):
        start = "It" if _is_tie(verdict) else "Chance alone may explain its lead: it"
        return f"{start} cannot be told apart from {_list(level, 'or')}."
    n_worse = len(verdict.others) - len(level)
    worse = "the other one" if n_worse == 1 else f"the other {n_worse}"
    return (
        f"It cannot be told apart from {_list(level, 'or')}, as chance alone may explain the difference;"
        f" its lead over {worse} is more than chance explains."
    )


def _cost(verdict: Verdict) -> list[str]:
    own = f"One fit of {verdict.winner} took {_duration(verdict.seconds)} of computing"
    cheapest = min(verdict.indistinguishable, key=lambda other: other.seconds, default=None)
    if cheapest is None or verdict.n_repeats < FEWEST_REPEATS:
        return [f"{own}."]
    factor = verdict.seconds / max(cheapest.seconds, _SHORTEST)
    if factor < _NOTABLE_FACTOR:
        return [f"{own}."]
    times = f"{factor:.1f}" if factor < 10 else f"{factor:.0f}"
    theirs = f"{cheapest.method} ({_duration(cheapest.seconds)})"
    return [f"{own}, {times} times as long as {theirs}, the cheapest that cannot be told apart from it."]


def _advice(verdict: Verdict) -> list[str]:
    unfinished = verdict.waiting or verdict.n_repeats < verdict.n_asked
    if unfinished or not verdict.indistinguishable or verdict.n_repeats >= ENOUGH_REPEATS:
        return []
    return [f"More repeats (--repeats {2 * ENOUGH_REPEATS}) can show more; those that are done are kept."]


def _score(score: Summary) -> str:
    if score.deviation is None:
        return f"{score.mean:.3f} (1 repeat)"
    return f"{score.mean:.3f} (± {score.deviation:.3f} over {score.n} repeats)"


def _too_few(n: int) -> str:
    return "A single repeat is too little" if n == 1 else f"{n} repeats are too few"


def _duration(seconds: float) -> str:
    if seconds < _SHORTEST:
        return f"less than {_SHORTEST} s"
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 600 else f"{seconds / 60:.0f} min"


def _list(names: Sequence[str], last: str) -> str:
    # Some names hold a comma themselves.
    separator = "; " if any("," in name for name in names) else ", "
    return names[0] if len(names) == 1 else f"{separator.join(names[:-1])} {last} {names[-1]}"


def complete_repeats(runs: Collection[Run], methods: Collection[str]) -> set[int]:
    """Return the seeds that every method has a run of."""
    return set.intersection(*_seeds(runs, methods).values())


def shared_runs(runs: Collection[Run], methods: Collection[str]) -> list[Run]:
    """Return the runs that a verdict is about, every method in it with the same repeats.

    These are the complete repeats, which all methods have. If they are too few for a statement about chance, but the
    largest block of runs has enough, the verdict is about the methods of that block. So a method that was added later,
    or that fails, does not undo what is known about the others. Before the first repeat is complete the largest block
    is taken in any case. If several methods have runs but no two share a repeat, there is nothing to compare.

    Parameters
    ----------
    runs : collection of Run
        Of one task.
    methods : collection of str
        All that can run.

    Examples
    --------
    >>> def runs_of(method, n_repeats):
    ...     return [Run("bark", method, seed, 1.0, 0.9, 0.8, 60, 20, 1.0) for seed in range(n_repeats)]
    >>> runs = [*runs_of("LBP", 4), *runs_of("GLCM", 4), *runs_of("LMFCN", 2)]
    >>> [(run.method, run.seed) for run in shared_runs(runs, ["LBP", "GLCM", "LMFCN"])]
    [('LBP', 0), ('LBP', 1), ('LBP', 2), ('LBP', 3), ('GLCM', 0), ('GLCM', 1), ('GLCM', 2), ('GLCM', 3)]
    """
    seeds = _seeds(runs, methods)
    chosen = complete_repeats(runs, methods)
    if len(chosen) < FEWEST_REPEATS:
        largest = _largest_block(seeds)
        chosen = largest if len(largest) >= FEWEST_REPEATS or not chosen else chosen
    return [run for run in runs if run.seed in chosen <= seeds.get(run.method, set())]


def _seeds(runs: Collection[Run], methods: Collection[str]) -> dict[str, set[int]]:
    return {method: {run.seed for run in runs if run.method == method} for method in methods}


def _largest_block(seeds: Mapping[str, set[int]]) -> set[int]:
    """Return the seeds of the largest block of runs that at least two methods share, or that the only method has."""
    measured = [of_method for of_method in seeds.values() if of_method]
    common = [one & other for one, other in combinations(measured, 2)] if len(measured) > 1 else measured
    counted = [(sum(chosen <= of_method for of_method in measured), chosen) for chosen in common]
    _, best = max(counted, key=lambda pair: (pair[0] * len(pair[1]), pair[0]), default=(0, set()))
    return best
