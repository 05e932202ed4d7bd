"""One small training that several tests run."""

from dataclasses import asdict

import torch

from lmfcn.method.epoch import Problem, Training
from lmfcn.method.network import TextureFCN
from lmfcn.recipe import Recipe

QUICK = Recipe(epochs=3, passes=1, batch_size=8, learning_rate=3e-3, whiten=False)


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
