"""Train once undisturbed, and once in processes of which twenty in a row are killed; say how far each one got.

A script of its own, because it forks: a process that has used several threads of torch must not.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import sklearn.linear_model
import sklearn.model_selection
import sklearn.svm  # noqa: F401, which the first epoch would import, in every process again
import torch._dynamo  # noqa: F401, which the first step of an optimiser would import, for seconds

from lmfcn.classifier import LMFCNClassifier
from lmfcn.data.gaussians import make_gaussians
from lmfcn.recipe import Recipe

N_KILLS = 20


def fit_and_save(folder: Path, strategy: str) -> None:
    images, labels = make_gaussians(12, 16, random_state=0)
    classifier = LMFCNClassifier(
        latent_dim=4,
        widths=(6, 8),
        epochs=12,
        strategy=strategy,
        recipe=Recipe(passes=6),
        random_state=0,
        device="cpu",
        checkpoint_dir=folder / "checkpoints",
    )
    classifier.fit(images, np.where(np.arange(24) % 4 == 0, 2, labels)).save(folder / "model.lmfcn")


def start(folder: Path, strategy: str) -> int:
    process = os.fork()
    if process == 0:
        fit_and_save(folder, strategy)
        os._exit(0)
    return process


def saved_bytes(folder: Path) -> int:
    """How much the checkpoints hold; it grows with every record of the histories."""
    return sum(path.stat().st_size for path in folder.glob("checkpoints/*.safetensors"))


def seconds_of_whole(folder: Path, strategy: str) -> tuple[float, float]:
    """Train undisturbed; return the seconds until the first checkpoint and until the end."""
    begin = time.perf_counter()
    process = start(folder, strategy)
    while saved_bytes(folder) == 0:
        time.sleep(0.005)
    to_first_save = time.perf_counter() - begin
    os.waitpid(process, 0)
    return to_first_save, time.perf_counter() - begin


def main(folder: Path, strategy: str) -> None:
    for name in ("whole", "killed"):
        (folder / name).mkdir()
    to_first_save, to_end = seconds_of_whole(folder / "whole", strategy)
    longest = to_first_save + (to_end - to_first_save) / 15
    moments, progress, n_killed = random.Random(0), [0], 0
    for _ in range(N_KILLS):
        process = start(folder / "killed", strategy)
        time.sleep(moments.uniform(0.1, 1) * longest)
        os.kill(process, signal.SIGKILL)
        n_killed += os.WIFSIGNALED(os.waitpid(process, 0)[1])
        progress.append(saved_bytes(folder / "killed"))
    last_status = os.waitpid(start(folder / "killed", strategy), 0)[1]
    sys.stdout.write(json.dumps({"n_killed": n_killed, "progress": progress, "last_status": last_status}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
