"""Kills and losses of power at random moments: the same command then ends with the same bytes, or says what is lost."""

import itertools
import json
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from soak.children import Ended, import_all, lose_power, note_all_as_synced, run_command, start
from soak.material import copy_folder, save_images, save_large_image
from soak.rows import Row, first, row

COMMAND = "python benchmarks/soak kills"
TRAIN = ("--no-report", "--no-gallery", "--quiet", "--device", "cpu", "--threads", 1, "--seed", 0)
KINDS = ("kill", "loss of power")
SOME = ("train", "predict --jobs --resume", "map", "compare")
FOR_ALL = 60.0
"""Seconds from which on all jobs are interrupted, and not only some."""
MOST_TRIES = 8
"""In which a job may end before it is interrupted by each of them, when there is no time."""
SMALL = ("--network", "texture-fcn", "--epochs", 6, "--passes", 3, "--latent-dim", 4)


@dataclass(frozen=True)
class Job:
    """A command that can be interrupted.

    Attributes
    ----------
    name : str
    arguments : tuple
        Of the command, which runs in a folder with images.
    result : callable
        Returns what must be the same, from that folder.
    weight : float
        How much of the time it gets.
    may_lose : bool
        Whether a loss of power may cost what was done, said in one sentence: journals are not synced line by line.
    """

    name: str
    arguments: tuple[object, ...]
    result: Callable[[Path], bytes]
    weight: float = 1.0
    may_lose: bool = False


def jobs() -> list[Job]:
    train = ("train", "images", "-o", "new.lmfcn", "--checkpoint", "checkpoints", *TRAIN)
    one_vs_all = ("--strategy", "one-vs-all")
    pretrained = ("--network", "efficientnet-lite0", "--epochs", 4, "--passes", 1, "--size", 32)
    window = ("--window", 24, "--stride", 4, "--threads", 1, "--quiet")
    return [
        Job("train", (*train, *SMALL), model_bytes),
        Job("train, one-vs-all", (*train, *SMALL, *one_vs_all), model_bytes),
        Job("train, pretrained network", (*train, *pretrained), model_bytes),
        Job("predict --resume", predicting("--threads", 1), table_bytes, may_lose=True),
        Job("predict --jobs --resume", predicting("--jobs", 2), table_bytes, 2.0, may_lose=True),
        Job("map", ("map", "model.lmfcn", "large.png", "-o", "map", *window), map_bytes),
        Job("compare", comparing(), compared, 2.0),
        Job("reproduce", reproducing(), reproduced, 2.0),
    ]


def predicting(*how: object) -> tuple[object, ...]:
    return ("predict", "model.lmfcn", "images", "many", "-o", "rows.csv", "--resume", "--proba", "--quiet", *how)


def comparing() -> tuple[object, ...]:
    return ("compare", "images", "-o", "out", "--quick", "--methods", "LBP,GLCM", "--repeats", 2, "--quiet")


def reproducing() -> tuple[object, ...]:
    options = ("--profile", "quick", "--size", 16, "--repeats", 2, "--only", "LMFCN", "--quiet")
    return ("reproduce", "table2", "-o", "out", *options)


def model_bytes(folder: Path) -> bytes:
    return (folder / "new.lmfcn").read_bytes()


def table_bytes(folder: Path) -> bytes:
    return (folder / "rows.csv").read_bytes()


def map_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((folder / "map").iterdir()) if path.is_file())


def compared(folder: Path) -> bytes:
    """Return the scores; times are not the same."""
    keep = ("task", "method", "seed", "test_balanced_accuracy", "predicted_classes", "confidences", "chosen")
    lines = (folder / "out" / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    runs = [{name: run.get(name) for name in keep} for run in map(_values, lines) if run]
    return "\n".join(sorted({json.dumps(run) for run in runs})).encode()


def _values(line: str) -> dict:
    try:
        return json.loads(line)
    except ValueError:
        return {}  # half a line, which a kill has left


def reproduced(folder: Path) -> bytes:
    return (folder / "out" / "table2.csv").read_bytes() + compared(folder)


@dataclass
class Findings:
    """What came of interruptions."""

    counts: Counter = field(default_factory=Counter)
    mistakes: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def run(seconds: float, seed: int, names: Collection[str] = ()) -> list[Row]:
    """Interrupt each job, or those with some names, for its share of the time, at least once in each way."""
    import_all()
    with tempfile.TemporaryDirectory() as folder:
        material = make_material(Path(folder))
        names = names or (SOME if seconds < FOR_ALL else [job.name for job in jobs()])
        kinds = [job for job in jobs() if job.name in names]
        share = seconds / sum(job.weight for job in kinds)
        return [interrupt(job, material, share * job.weight, seed) for job in kinds]


def make_material(folder: Path) -> Path:
    """Make images and a model, in a child."""
    material = folder / "material"
    material.mkdir()
    save_images(material / "images")
    save_images(material / "many", 60, 24)
    save_large_image(material / "large.png", 200)
    ended = start(lambda: run_command("train", "images", "-o", "model.lmfcn", *TRAIN, *SMALL), material).wait()
    if ended.code != 0:
        raise RuntimeError(f"The model could not be trained: {ended.text}")
    return material


def interrupt(job: Job, material: Path, seconds: float, seed: int) -> Row:
    """Interrupt a job at random moments until the time is over, then let it end."""
    whole, place, findings = material.with_name("whole"), material.with_name("place"), Findings()
    copy_folder(material, whole)
    begin = time.monotonic()
    ended = start(lambda: run_command(*job.arguments), whole).wait()
    duration = time.monotonic() - begin
    if ended.code != 0:
        return row(job.name, "ends", ended.text[-200:], False, COMMAND)
    expected, chance = job.result(whole), random.Random(f"{job.name} {seed}")
    _again(material, place)
    end = time.monotonic() + seconds - duration
    for number in itertools.count():
        n_interrupted = sum(findings.counts[kind] for kind in KINDS)
        if time.monotonic() > end and (n_interrupted >= len(KINDS) or number > MOST_TRIES):
            break
        _one_interruption(job, place, KINDS[n_interrupted % len(KINDS)], chance, duration, findings)
        if (place / "ended").exists():
            duration *= 0.8  # it can be shorter than when it was measured, on a machine with other work
            _compare(job, place, expected, findings)
            _again(material, place)
    _finish(job, place, expected, findings)
    shutil.rmtree(place)
    return _row(job, findings)


def _again(material: Path, place: Path) -> None:
    copy_folder(material, place)
    note_all_as_synced(place)


def _one_interruption(
    job: Job, place: Path, kind: str, chance: random.Random, duration: float, findings: Findings
) -> None:
    """Run the job for a random time; a file says that it has ended by itself."""
    child = start(lambda: run_command(*job.arguments), place)
    ended = child.kill_after(chance.uniform(0.05, 1.0) * duration)
    if ended.code < 0:
        findings.counts[kind] += 1
        findings.counts["left behind"] += child.left_behind()
        if kind == "loss of power":
            lose_power(place, chance)
    elif ended.refused:
        _note_refusal(place, ended, findings)
    else:
        (place / "ended").write_text("", encoding="ascii")


def _note_refusal(place: Path, ended: Ended, findings: Findings) -> None:
    """Count a refusal, and do what its sentence says: remove what is damaged."""
    findings.counts["said what is lost"] += 1
    findings.said.append(ended.text.split("Error: ")[1].replace(f"{place}/", "").strip())
    for name in ("checkpoints", "rows.csv.part", "map", "out"):
        path = place / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    if "Errno" in ended.text:
        findings.mistakes.append(ended.text[-200:])


def _finish(job: Job, place: Path, expected: bytes, findings: Findings) -> None:
    """Let the job end, after at most one sentence about what is lost."""
    for _ in range(2):
        ended = start(lambda: run_command(*job.arguments), place).wait()
        if not ended.refused:
            break
        _note_refusal(place, ended, findings)
    if ended.code == 0:
        _compare(job, place, expected, findings)
    else:
        findings.mistakes.append(f"ended with {ended.code}: {ended.text[-300:]}")


def _compare(job: Job, place: Path, expected: bytes, findings: Findings) -> None:
    try:
        found = job.result(place)
    except OSError as error:
        findings.mistakes.append(f"no result: {error}; {place.with_name('place.log').read_text()[-200:]}")
        return
    findings.counts["ends with the same bytes"] += found == expected
    if found != expected:
        findings.mistakes.append("other bytes")


def _row(job: Job, findings: Findings) -> Row:
    counts = findings.counts
    found = f"{counts['kill']} kills, {counts['loss of power']} losses of power"
    found += f", {counts['said what is lost']} times said what is lost" if counts["said what is lost"] else ""
    found += f" ({findings.said[0]})" if findings.said else ""
    found += f"; {counts['ends with the same bytes']} ends with the same bytes"
    if findings.said and not job.may_lose:
        findings.mistakes.append(findings.said[0])
    if counts["left behind"]:
        findings.mistakes.append(f"{counts['left behind']} times a process was left behind")
    promise = "the same bytes as undisturbed" + (", or one sentence" if job.may_lose else "")
    return row(
        f"lmfcn {job.name}, interrupted", promise, found + first(findings.mistakes), not findings.mistakes, COMMAND
    )
