"""Many classes as in the paper: one network per class against all the others, side by side.

Their SVMs are thrown away; the latents of all networks, one behind the other, go to one multiclass SVM (final_svm.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from lmfcn.compute.parallel import Workers, as_completed
from lmfcn.compute.resources import use_threads
from lmfcn.method.epoch import Problem, Trained, Training
from lmfcn.method.history import TrainingError


def one_against_all(problem: Problem, number: int) -> Problem:
    """Return the binary problem of one class (1) against all the others (0)."""
    validation = problem.validation_labels
    return replace(
        problem,
        labels=(problem.labels == number).long(),
        validation_labels=None if validation is None else (validation == number).long(),
    )


def train_side_by_side(
    trainings: Mapping[str, Callable[[], Training]],
    finished: Callable[[Trained], None],
    *,
    workers: Workers,
    n_threads: int,
) -> list[Trained]:
    """Run several trainings, each in one of the workers; return their results in the same order.

    Parameters
    ----------
    trainings : mapping of callables
        Each makes one training, under its name in messages and errors. They are called in the workers, so they must be
        picklable unless there is only this process.
    finished : callable
        Called in this process with every result as it comes in.
    workers : Workers
    n_threads : int
        Threads of each training; bits depend on it.
    """
    train = _TrainByName(trainings, n_threads)
    jobs = min(workers.jobs, len(trainings))
    done: dict[str, Trained] = {}
    for name, trained in as_completed(train, trainings, jobs=jobs, scheduler=workers.scheduler):
        done[name] = trained
        finished(trained)
    return [done[name] for name in trainings]


@dataclass(frozen=True)
class _TrainByName:
    """Runs any of the trainings; sent to workers once, with the images that all trainings share."""

    trainings: Mapping[str, Callable[[], Training]]
    n_threads: int

    def __call__(self, name: str) -> Trained:
        with use_threads(self.n_threads):
            try:
                trained = self.trainings[name]().run()
            except TrainingError as error:
                raise TrainingError(f"{name}: {error}") from error
        return replace(trained, message=trained.message and f"{name}: {trained.message}")
