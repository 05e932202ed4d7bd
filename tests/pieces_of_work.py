"""Functions that tests send to other processes, which import this module; it must be light."""

import os
import signal
import time
from pathlib import Path


def square(number):
    return number**2


def process_and_square(number):
    time.sleep(0.2)
    return os.getpid(), number**2


def reciprocal(number):
    return 1 / number


def die_on(number):
    """A function that ends its own process, as a lack of memory does, when it is given `number`."""

    def function(argument):
        if argument == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return argument

    return function


def die_once(folder, number):
    """A function that ends its process the first time, but not the second."""

    def function(argument):
        if argument == number and not (Path(folder) / "died").exists():
            (Path(folder) / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return argument

    return function


def threads_and_jobs(_):
    import torch

    from lmfcn.compute.parallel import workers_of

    return torch.get_num_threads(), workers_of(4).jobs


def threads_before_and_within(count):
    from lmfcn.compute.resources import WithThreads

    return threads_and_jobs(0), WithThreads(threads_and_jobs, count)(0)


class Adder:
    """Holds a large array."""

    def __init__(self, numbers):
        self.numbers = numbers

    def __call__(self, position):
        return int(self.numbers[position]), self.numbers.flags.writeable


def tiny_task(seed):
    import numpy as np

    from lmfcn import make_gaussians
    from lmfcn.benchmark.tasks import SplitData, Subset

    random = np.random.default_rng(seed)
    return SplitData(*(Subset(*make_gaussians(8, 16, random, stds=(10, 60))) for _ in range(3)))


def deadly_task(folder, seed):
    """The tiny task; the first process that is asked for seed 1 writes down its number and waits to be killed."""
    try:
        with (Path(folder) / "victim").open("x") if seed == 1 else open(os.devnull, "w") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return tiny_task(seed)
    if seed == 1:
        time.sleep(60)
    return tiny_task(seed)


class DeadlyPredictor:
    """Predicts files; the first process that gets one of a certain name tells its number and waits to be killed."""

    def __init__(self, predict, folder, name):
        self.predict, self.victim, self.name = predict, Path(folder) / "victim", name

    def __call__(self, paths):
        if any(path.endswith(self.name) for path in paths) and not self.victim.exists():
            self.victim.with_name("number").write_text(str(os.getpid()))
            self.victim.with_name("number").rename(self.victim)
            time.sleep(60)
        return self.predict(paths)


class DeadlyMapper:
    """Maps blocks of an image; one of them ends every process that is given it."""

    def __init__(self, mapper, deadly):
        self.mapper, self.deadly = mapper, deadly

    def __call__(self, block):
        if block == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.mapper(block)
