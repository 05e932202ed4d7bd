"""Which of the runs at hand can be compared: methods that were measured on the same repeats."""

from collections.abc import Collection, Mapping
from itertools import combinations

from lmfcn.experiments.runs import Run
from lmfcn.experiments.verdict import FEWEST_REPEATS


def complete_repeats(runs: Collection[Run], methods: Collection[str]) -> set[int]:
    """Return the seeds that every method has a run of."""
    return set.intersection(*_seeds(runs, methods).values())


def shared_runs(runs: Collection[Run], methods: Collection[str]) -> list[Run]:
    """Return the runs that a verdict is about, every method in it with the same repeats.

    These are the complete repeats, which all methods have. If they are too few to say anything about chance, but the
    largest block of runs has enough, it is the methods of that block: one that was added to a comparison, or that
    fails, does not undo what is known about the others. Before the first repeat is complete it is the largest block in
    any case. If several methods have runs but no two share a repeat, there is nothing to compare.

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
    """Return the seeds that some methods have the most runs of together: at least two, unless only one has any."""
    measured = [mine for mine in seeds.values() if mine]
    common = [one & other for one, other in combinations(measured, 2)] if len(measured) > 1 else measured
    sharing = [(sum(chosen <= mine for mine in measured), chosen) for chosen in common]
    _, best = max(sharing, key=lambda pair: (pair[0] * len(pair[1]), pair[0]), default=(0, set()))
    return best
