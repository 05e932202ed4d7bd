"""Full disks, read-only ones, and wrong clocks: one sentence, no half files, and the same command goes on.

A small disk is a tmpfs in a mount namespace of a child. Where that is not allowed, files are limited in size instead,
which is a limit of the process (RLIMIT_FSIZE) and gives another error.
"""

import contextlib
import ctypes
import functools
import hashlib
import json
import os
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from soak.children import Ended, import_all, run_command, start
from soak.kills import Job, jobs, make_material
from soak.material import copy_folder
from soak.rows import Row, row

COMMAND = "python benchmarks/soak disks"
_NEW_NAMESPACE, _NEW_USER, _REMOUNT, _READ_ONLY = 0x20000, 0x10000000, 32, 1
_PRIVATE = 0x4000 | 0x40000  # with all that is mounted below
_FREE = 20_000
"""Bytes that are left on the small disk beside the images."""
_FOR_ALL = 60.0
"""Seconds that all jobs take."""
_SPACE = 2**22
"""Bytes that a job needs."""
_YEAR = 365 * 24 * 3600.0


def run(seconds: float, seed: int) -> list[Row]:
    """Try each job once on a full disk, a read-only one, and with a wrong clock; in a short time only two jobs."""
    del seed
    import_all()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        material = make_material(Path(folder))
        names = ("train", "predict --resume", "map", "compare", "reproduce")[: 2 if seconds < _FOR_ALL else None]
        for job in (job for job in jobs() if job.name in names):
            expected = undisturbed(job, material)
            rows.append(on_full_disk(job, material, expected))
            rows.append(on_read_only_disk(job, material))
            rows.append(with_wrong_clock(job, material, expected))
    return rows


def undisturbed(job: Job, material: Path) -> bytes:
    """Return the result of a job."""
    place = copy_folder(material, material.with_name("whole"))
    ended = start(lambda: run_command(*job.arguments), place).wait()
    if ended.code != 0:
        raise RuntimeError(f"{job.name} ended with {ended.code}: {ended.text}")
    return job.result(place)


@functools.cache
def can_mount() -> bool:
    """Return whether a child may mount small disks here."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "place"
        place.mkdir()
        return start(lambda: mount_small(place, 2**20), place).wait().code == 0


def mount_small(place: Path, size: int) -> None:
    """Mount an empty disk of so many bytes, which only this process and its children see."""
    library = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if library.unshare(_NEW_NAMESPACE | (0 if user == 0 else _NEW_USER)) != 0:
        raise OSError(ctypes.get_errno(), "no namespace of its own")
    if user != 0:
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1", encoding="ascii")
    # Else a mount here would also appear outside, where systemd shares all mounts.
    if library.mount(None, b"/", None, _PRIVATE, None) != 0:
        raise OSError(ctypes.get_errno(), "mounts cannot be kept private")
    _mount(place, f"size={size}", 0)


def _mount(place: Path, options: str, flags: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.mount(b"none", os.fsencode(place), b"tmpfs", flags, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "the disk could not be mounted")


def size_of(folder: Path) -> int:
    """Return the bytes that the files of a folder take on a disk with pages of 4096 bytes."""
    return sum(-(-path.stat().st_size // 4096) * 4096 for path in folder.rglob("*") if path.is_file())


def on_full_disk(job: Job, material: Path, expected: bytes) -> Row:
    """Run a job where the disk is full after some bytes, then again with more space."""
    found = _in_namespace(lambda place: _full_then_free(job, material, place), material)
    first, second = Ended(*found["first"]), Ended(*found["second"])
    went_on = second.code == 0 and found["result"] == _digest(expected)
    ok = first.refused and not found["half"] and went_on
    text = f"{'one sentence' if first.refused else f'code {first.code}: {first.text[-200:]}'}"
    text += f", half files: {', '.join(found['half']) or 'none'}"
    text += ", then the same bytes" if went_on else f", then code {second.code}: {second.text[-200:]}"
    promise = "one sentence, no half files; the same command goes on when there is space"
    return row(f"lmfcn {job.name} on a full disk", promise, text, ok, COMMAND)


def _full_then_free(job: Job, material: Path, place: Path) -> dict:
    if can_mount():
        mount_small(place, size_of(material) + _SPACE)
        shutil.copytree(material, place, dirs_exist_ok=True)
        status = os.statvfs(place)
        (place / ".filler").write_bytes(bytes(status.f_bavail * status.f_frsize - _FREE))
        limit: Callable[[], None] = lambda: None  # noqa: E731
    else:
        shutil.copytree(material, place, dirs_exist_ok=True)
        limit = _limit_files
    before = set(place.rglob("*"))
    first = start(lambda: (limit(), run_command(*job.arguments)), place).wait()
    half = [path.name for path in place.rglob("*.part") if path not in before and path.name != "rows.csv.part"]
    (place / ".filler").unlink(missing_ok=True)
    second = start(lambda: run_command(*job.arguments), place).wait()
    result = _digest(job.result(place)) if second.code == 0 else ""
    return {"first": (first.code, first.text), "second": (second.code, second.text), "half": half, "result": result}


def _limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FREE, resource.RLIM_INFINITY))


def on_read_only_disk(job: Job, material: Path) -> Row:
    """Run a job in a folder that cannot be written to."""
    what = f"lmfcn {job.name} in a read-only folder"
    if os.getuid() == 0 and not can_mount():
        return row(what, "one sentence", "not tried: root may write everywhere", True, COMMAND)
    found = _in_namespace(lambda place: _read_only(job, material, place), material)
    ended = Ended(*found["ended"])
    text = ended.text.strip().splitlines()[-1][-160:] if ended.text.strip() else f"code {ended.code}"
    return row(what, "one sentence", text, ended.refused, COMMAND)


def _read_only(job: Job, material: Path, place: Path) -> dict:
    if can_mount():
        mount_small(place, size_of(material) + _SPACE)
        shutil.copytree(material, place, dirs_exist_ok=True)
        _mount(place, "", _REMOUNT | _READ_ONLY)
    else:
        shutil.copytree(material, place, dirs_exist_ok=True)
        place.chmod(0o555)
    ended = start(lambda: run_command(*job.arguments), place).wait()
    return {"ended": (ended.code, ended.text)}


def _in_namespace(work: Callable[[Path], dict], material: Path) -> dict:
    """Do something in an empty folder, in a child that may mount a disk there; return its answer."""
    outer = Path(tempfile.mkdtemp(dir=material.parent))
    place, answer = outer / "place", outer / "answer.json"
    place.mkdir()
    child = start(lambda: answer.write_text(json.dumps(work(place)), encoding="utf-8"), outer)
    ended = child.wait()
    if ended.code != 0:
        raise RuntimeError(ended.text)
    found = json.loads(answer.read_text(encoding="utf-8"))
    with contextlib.suppress(OSError):
        place.chmod(0o755)
    shutil.rmtree(outer, ignore_errors=True)
    return found


def with_wrong_clock(job: Job, material: Path, expected: bytes) -> Row:
    """Kill a job half-way, let the clock go back by a year, and run it to its end."""
    place, chance = copy_folder(material, material.with_name("place")), random.Random(0)
    begin = time.monotonic()
    start(lambda: run_command(*job.arguments), copy_folder(material, material.with_name("timed"))).wait()
    duration = time.monotonic() - begin
    start(lambda: run_command(*job.arguments), place).kill_after(chance.uniform(0.3, 0.7) * duration)
    ended = start(lambda: _a_year_ago(job), place).wait()
    same = ended.code == 0 and job.result(place) == expected
    text = "the same bytes" if same else f"code {ended.code}: {ended.text[-200:]}"
    return row(f"lmfcn {job.name}, killed, the clock set back", "the same bytes", text, same, COMMAND)


def _a_year_ago(job: Job) -> None:
    with clock_set_back(_YEAR):
        run_command(*job.arguments)


@contextmanager
def clock_set_back(seconds: float) -> Iterator[None]:
    """Let this process see an earlier time of day; files of before are in the future."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() - seconds
    time.time_ns = lambda: now_ns() - int(seconds * 1e9)
    try:
        yield
    finally:
        time.time, time.time_ns = now, now_ns


def _digest(content: bytes) -> str:
    """Return a digest of the lines in any order: file systems list their files differently."""
    return hashlib.sha256(b"\n".join(sorted(content.splitlines()))).hexdigest()
