"""Many classes as in the paper: one network per class against all the others, side by side.

Their SVMs are thrown away; the latents of all networks, one behind the other, go to one multiclass SVM (final_svm.py).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import joblib
import torch

from lmfcn.algorithm.errors import TrainingError
from lmfcn.algorithm.training import Problem, Trained, Training


def one_against_all(problem: Problem, number: int) -> Problem:
    """Return the binary problem of one class (1) against all the others (0)."""
    validation = problem.validation_labels
    return replace(
        problem,
        labels=(problem.labels == number).long(),
        validation_labels=None if validation is None else (validation == number).long(),
    )


def train_side_by_side(
    trainings: Mapping[str, Callable[[], Training]], n_jobs: int | None, finished: Callable[[Trained], None]
) -> list[Trained]:
    """Run several trainings in joblib's workers; return their results in the same order.

    Parameters
    ----------
    trainings : mapping of callables
        Each makes one training, under the name that messages and errors call it by. They are called in the
        workers, so they must be picklable.
    n_jobs : int or None
        As everywhere in joblib; the backend is the one in force. Workers share the cores evenly.
    finished : callable
        Called in this process with every result as it comes in.
    """
    n_workers = min(joblib.effective_n_jobs(n_jobs), len(trainings))
    n_threads = max(1, torch.get_num_threads() // n_workers)
    tasks = (joblib.delayed(_run)(name, make, n_threads) for name, make in trainings.items())
    done: dict[str, Trained] = {}
    for name, trained in joblib.Parallel(n_jobs=n_workers, return_as="generator_unordered")(tasks):
        done[name] = trained
        finished(trained)
    return [done[name] for name in trainings]


def _run(name: str, make: Callable[[], Training], n_threads: int) -> tuple[str, Trained]:
    with _threads(n_threads):
        try:
            trained = make().run()
        except TrainingError as error:
            raise TrainingError(f"{name}: {error}") from error
    return name, replace(trained, message=trained.message and f"{name}: {trained.message}")


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
