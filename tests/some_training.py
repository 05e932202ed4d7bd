"""One small training that several tests run, and classifiers whose recipe is written in one line."""

from collections.abc import Callable
from dataclasses import asdict
from inspect import signature
from typing import Any

import torch

from lmfcn import Callback, LMFCNClassifier
from lmfcn.method.epoch import Problem, Training
from lmfcn.method.network import TextureFCN
from lmfcn.recipe import Recipe

QUICK = Recipe(epochs=3, passes=1, batch_size=8, learning_rate=3e-3, precision="float32", whiten=False)
PARAMETERS = set(signature(LMFCNClassifier).parameters)


def problem_of(textures, *, validate: bool = True) -> Problem:
    images, labels = textures[0][..., None], torch.from_numpy(textures[1].copy())
    if not validate:
        return Problem(images, labels)
    return Problem(images[:20], labels[:20], images[20:], labels[20:])


def training_of(problem: Problem, recipe: Recipe = QUICK, seed: int = 0, **options) -> Training:
    generator = torch.Generator().manual_seed(seed)
    network = TextureFCN(problem.images.shape[3], 4, (6, 8), generator=generator)
    return Training(network, problem, recipe, generator, **options)


def measured(history) -> list[dict]:
    """The records without their timings, which differ from run to run."""
    return [
        {name: value for name, value in asdict(record).items() if not name.startswith("seconds")} for record in history
    ]


def classifier_of(**values) -> LMFCNClassifier:
    """Make a classifier; values that are no parameters of its own are values of its recipe."""
    of_recipe = {f"recipe__{name}": value for name, value in values.items() if name not in PARAMETERS}
    parameters = {name: value for name, value in values.items() if name in PARAMETERS}
    return LMFCNClassifier(**parameters).set_params(**of_recipe)


class EachEpoch(Callback):
    """Calls a function with the record and the latent space of every epoch."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def on_epoch_end(self, training, record, space):  # noqa: ARG002
        self.function(record, space)
