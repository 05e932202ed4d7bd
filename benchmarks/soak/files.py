"""Bad files of our own kinds: models, galleries, checkpoints, journals, maps, configurations, tables.

Each is damaged in many ways. It must be refused in one sentence of ours, or give the same answers as before.
"""

import hashlib
import random
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import lmfcn
from lmfcn.benchmark.runs import RunReader
from lmfcn.classifier import LMFCNClassifier
from lmfcn.data.collection import ImageCollection
from lmfcn.data.sources import open_collection
from lmfcn.explain.gallery import load_gallery
from lmfcn.label.table import LabelTable
from lmfcn.maps.run import MapRequest, map_image
from lmfcn.recipe import Recipe
from soak.material import FAST, PLAIN, command, copy_folder, save_images, save_large_image, working_in
from soak.mutations import change_digit, mutate
from soak.rows import Row, first, row
from soak.watching import TooSlowError, captured_output, time_limit

COMMAND = "python benchmarks/soak files"
MOST_SECONDS = 20.0
_SOURCE = str(Path(lmfcn.__file__).parent)


@dataclass(frozen=True)
class Subject:
    """A kind of file.

    Attributes
    ----------
    name : str
    make : callable
        Writes sound files into an empty folder.
    damaged : str
        Pattern of the files to damage, one at a time.
    use : callable
        Works with the files in a folder and returns the answer.
    same : bool
        Whether a damaged file must be refused if the answer is not the same; a table may say something else.
    """

    name: str
    make: Callable[[Path], None]
    damaged: str
    use: Callable[[Path], bytes]
    same: bool = True


def subjects() -> list[Subject]:
    return [
        Subject("model files", make_model, "model.lmfcn", predict_with_model),
        Subject("galleries", make_model, "model.gallery", read_gallery),
        Subject("checkpoints", make_checkpoints, "checkpoints/*", fit_again),
        Subject("journals of predict", make_journal, "rows.csv.part", predict_on),
        Subject("map folders", make_map, "map/blocks/*", map_on),
        Subject("configuration files", make_configuration, "options.toml", predict_by_configuration, same=False),
        Subject("labels.csv", make_labels, "labels.csv", read_table, same=False),
        Subject("groups.csv", make_groups, "groups.csv", read_table, same=False),
        Subject("lists of images", make_list, "train.txt", read_table, same=False),
        Subject("arrays", make_arrays, "images.npz", read_arrays, same=False),
        Subject("tables of lmfcn label", make_label_table, "decisions.csv", read_label_table, same=False),
        Subject("runs of compare", make_runs, "runs.jsonl", read_runs, same=False),
    ]


def make_model(folder: Path) -> None:
    images = save_images(folder / "images")
    command("train", images, "-o", folder / "model.lmfcn", *FAST, *PLAIN)


def predict_with_model(folder: Path) -> bytes:
    model = lmfcn.load(folder / "model.lmfcn", "cpu")
    images = np.random.default_rng(0).integers(0, 256, (4, 16, 16), dtype=np.uint8)
    return model.predict_proba(images).tobytes() + repr(model.classes.tolist()).encode()


def read_gallery(folder: Path) -> bytes:
    gallery = load_gallery(folder / "model.gallery", lmfcn.load(folder / "model.lmfcn", "cpu"))
    parts = (gallery.names, gallery.labels, gallery.latents.tolist(), gallery.support.tolist(), gallery.pictures)
    return repr(parts).encode()


def make_checkpoints(folder: Path) -> None:
    fit_again(folder)


def fit_again(folder: Path) -> bytes:
    images = np.random.default_rng(0).integers(0, 256, (24, 16, 16), dtype=np.uint8)
    images[:12] //= 2
    classifier = LMFCNClassifier(
        latent_dim=2,
        widths=(4, 4),
        epochs=4,
        recipe=Recipe(passes=1),
        random_state=0,
        device="cpu",
        checkpoint_dir=folder / "checkpoints",
    )
    classifier.fit(images, np.repeat([0, 1], 12)).save(folder / "fitted.lmfcn")
    return (folder / "fitted.lmfcn").read_bytes()


def make_journal(folder: Path) -> None:
    """Predict some images, and one that cannot be read: then the journal stays."""
    make_model(folder)
    (folder / "images" / "bark" / "bad.png").write_bytes(b"no image")
    predict_on(folder)
    (folder / "images" / "bark" / "bad.png").unlink()


def predict_on(folder: Path) -> bytes:
    with working_in(folder):
        command("predict", "model.lmfcn", "images", "-o", "rows.csv", "--resume", "--proba", "--threads", 1, "--quiet")
    return b"".join(sorted((folder / "rows.csv").read_bytes().splitlines(keepends=True)))


def make_map(folder: Path) -> None:
    make_model(folder)
    save_large_image(folder / "large.png")
    map_on(folder)


def map_on(folder: Path) -> bytes:
    paths = (folder / "model.lmfcn", folder / "large.png", folder / "map")
    map_image(MapRequest(*paths, window=20, stride=8, block=40, device="cpu"))
    written = sorted(path for path in (folder / "map").glob("*") if path.suffix in (".npy", ".tif", ".csv", ".png"))
    return b"".join(path.read_bytes() for path in written)


def make_configuration(folder: Path) -> None:
    make_model(folder)
    text = '[predict]\nproba = true\nset = 0.9\nreject = 0.1\nformat = "csv"\nthreads = 1\ndevice = "cpu"\n'
    (folder / "options.toml").write_text(text, encoding="utf-8")


def predict_by_configuration(folder: Path) -> bytes:
    with working_in(folder):
        command("predict", "model.lmfcn", "images/bark", "--config", "options.toml", "-o", "rows.csv", "--quiet")
    return (folder / "rows.csv").read_bytes()


def _paths(folder: Path) -> list[str]:
    images = save_images(folder / "images", 2)
    return [str(path.relative_to(folder)) for path in sorted(images.rglob("*.png"))]


def make_labels(folder: Path) -> None:
    lines = [f"{path},{Path(path).parent.name}" for path in _paths(folder)]
    (folder / "labels.csv").write_text("\n".join(["path,label", *lines, ""]), encoding="utf-8")


def make_groups(folder: Path) -> None:
    lines = [f'"{path}";{Path(path).parent.name};g{number % 3};train' for number, path in enumerate(_paths(folder))]
    (folder / "groups.csv").write_text("\n".join(["path;label;group;split", *lines, ""]), encoding="utf-8")


def make_list(folder: Path) -> None:
    lines = [f"{Path(path).parent.name};{path}" for path in _paths(folder)]
    (folder / "train.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")


def read_table(folder: Path) -> bytes:
    return _content(open_collection(folder))


def _content(collection: ImageCollection) -> bytes:
    pixels = b"".join(collection[position].tobytes() for position in range(len(collection)))
    return pixels + repr((collection.labels, collection.groups)).encode()


def make_arrays(folder: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 12, 12), dtype=np.uint8)
    np.savez_compressed(folder / "images.npz", images=images, labels=np.array(["a", "b"] * 3), groups=np.arange(6))


def read_arrays(folder: Path) -> bytes:
    return _content(open_collection(folder / "images.npz"))


def make_label_table(folder: Path) -> None:
    lines = [f"{number}.png,wood,2026-01-01T00:00:00+00:00,hand" for number in range(8)]
    (folder / "decisions.csv").write_text("\n".join(["path,label,when,by", *lines, ""]), encoding="utf-8")


def read_label_table(folder: Path) -> bytes:
    with LabelTable(folder / "decisions.csv") as table:
        return repr(table.rows).encode()


def make_runs(folder: Path) -> None:
    images = save_images(folder / "images", 10)
    command("compare", images, "-o", folder, "--quick", "--methods", "LBP,GLCM", "--repeats", 2, "--quiet")


def read_runs(folder: Path) -> bytes:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*left out", category=UserWarning)
        return repr(RunReader(folder / "runs.jsonl").read()).encode()


@dataclass
class Findings:
    """What happened to the damaged files of one kind."""

    counts: Counter = field(default_factory=Counter)
    mistakes: list[str] = field(default_factory=list)


def try_out(subject: Subject, folder: Path, expected: bytes, name: str, findings: Findings) -> None:
    """Use a folder with a damaged file, and note what came of it."""
    try:
        with time_limit(MOST_SECONDS):
            answer = subject.use(folder)
    except TooSlowError as error:
        outcome, mistake = "too slow", f"{name}: {error}"
    except Exception as error:
        outcome, mistake = judge(error, name)
    else:
        same = answer == expected
        outcome = "same answers" if same else "other answers"
        mistake = f"{name}: other answers" if subject.same and not same else ""
    findings.counts[outcome] += 1
    if mistake:
        findings.mistakes.append(mistake)


def judge(error: Exception, name: str) -> tuple[str, str]:
    """Return what kind of an error this is, and a sentence if it is none that a user should see."""
    text = str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    ours = frame.filename.startswith(_SOURCE) and isinstance(error, ValueError)
    of_options = any(kind.__name__ == "ClickException" for kind in type(error).__mro__)  # typer has its own copy
    known = ours or of_options or (isinstance(error, OSError) and error.filename)
    if known and text and text.count("\n") <= 2:
        return "refused", ""
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    return "foreign error", f"{name}: {type(error).__name__} from {place}: {text[:120]}"


def damages(folder: Path, subject: Subject, seed: int) -> Iterator[tuple[Path, bytes, str]]:
    """Yield files of a subject with what is in them after damage, and a name; first two kinds of damage to each."""
    paths = sorted(path for path in folder.glob(subject.damaged) if path.is_file())
    for path in paths:
        yield path, b"", f"{path.name}, empty"
        yield path, change_digit(path.read_bytes()), f"{path.name}, a digit changed"
    number = 0
    while True:
        path = paths[number % len(paths)]
        name = f"{path.name}, seed {seed}, mutation {number}"
        yield path, mutate(path.read_bytes(), random.Random(f"{seed} {number}")), name
        number += 1


def soak(subject: Subject, folder: Path, seconds: float, seed: int) -> Row:
    """Make sound files once, and damage them again and again until the time is over; at least ten times."""
    findings = Findings()
    sound, place = folder / "sound", folder / "used"
    with captured_output():
        place.mkdir(parents=True)
        subject.make(place)
        copy_folder(place, sound)
        expected = subject.use(place)
        end = time.monotonic() + seconds
        for path, content, name in damages(sound, subject, seed):
            copy_folder(sound, place)
            (place / path.relative_to(sound)).write_bytes(content)
            try_out(subject, place, expected, name, findings)
            if time.monotonic() > end and sum(findings.counts.values()) >= 10:
                break
    counts = ", ".join(f"{count:,} {name}" for name, count in sorted(findings.counts.items()))
    promise = "refused in one sentence" + (", or the same answers" if subject.same else ", or read")
    n_files = sum(findings.counts.values())
    what = f"{n_files:,} damaged {subject.name}"
    return row(what, promise, counts + first(findings.mistakes), not findings.mistakes, COMMAND)


def run(seconds: float, seed: int, names: Collection[str] = ()) -> list[Row]:
    """Damage files of every kind, or of those with some names, for an equal share of the time each."""
    kinds = [subject for subject in subjects() if not names or subject.name in names]
    with tempfile.TemporaryDirectory() as folder:
        return [
            soak(subject, Path(folder) / hashlib.md5(subject.name.encode()).hexdigest()[:8], seconds / len(kinds), seed)
            for subject in kinds
        ]
