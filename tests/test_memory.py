import ctypes
import os
import platform
import subprocess
import sys

import pytest

from lmfcn import LMFCNClassifier, memory

needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc of glibc")
N_MAPPED = """
import ctypes
library = ctypes.CDLL("libc.so.6")
library.malloc.restype = ctypes.c_void_p

class Information(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "abcdefghij"]

library.mallinfo2.restype = Information

def n_mapped(n_bytes):
    # How many of five blocks of this size come as fresh pages of the system's.
    before = library.mallinfo2().d
    blocks = [library.malloc(n_bytes) for _ in range(5)]
    return library.mallinfo2().d - before
"""


def told_by(code):
    """What a process prints whose malloc is as the system leaves it, whatever commands have run in this one."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", N_MAPPED + code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=clean).stdout.split()


@needs_glibc
def test_a_command_keeps_freed_memory():
    code = """
from lmfcn.memory import reuse_freed_memory
print(n_mapped(2**26))
reuse_freed_memory()
print(n_mapped(2**26))
"""
    assert told_by(code) == ["5", "0"]


@needs_glibc
def test_processes_that_a_command_starts_keep_freed_memory_too():
    code = """
import subprocess, sys
from lmfcn.memory import reuse_freed_memory
if len(sys.argv) == 1:
    reuse_freed_memory()
    subprocess.run([sys.executable, "-c", sys.orig_argv[2], "child"], check=True)
else:
    print(n_mapped(2**26))
"""
    assert told_by(code) == ["0"]


@needs_glibc
def test_fit_leaves_the_settings_of_a_process_as_they_are():
    code = """
library.mallopt(-3, 2**17)  # every block of 128 KiB or more is mapped
from lmfcn import LMFCNClassifier, make_gaussians
X, y = make_gaussians(8, 16, random_state=0)
LMFCNClassifier(epochs=2, latent_dim=2, widths=(4,), random_state=0).fit(X, y).model_.map(X[0], window=8, stride=8)
print(n_mapped(2**20))
"""
    assert told_by(code) == ["5"]


def test_what_the_user_has_set_stays(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: None)  # which cannot set anything
    chosen = {"MALLOC_TRIM_THRESHOLD_": "1"}
    memory.reuse_freed_memory(chosen)
    assert chosen == {"MALLOC_TRIM_THRESHOLD_": "1"}


def test_without_glibc_nothing_happens(monkeypatch):
    monkeypatch.setattr("platform.libc_ver", lambda: ("musl", "1"))
    environment = {}
    memory.reuse_freed_memory(environment)
    assert environment == {}


def test_a_library_that_cannot_be_loaded_is_no_error(monkeypatch):
    def refuse(_):
        raise OSError

    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(ctypes, "CDLL", refuse)
    environment = {}
    memory.reuse_freed_memory(environment)
    assert environment == {}


def test_a_kernel_that_does_not_fit_is_refused_before_any_work(monkeypatch, textures):
    monkeypatch.setattr(memory, "free_memory", lambda: 10_000)
    with pytest.raises(
        ValueError, match=r"SVM on 32 images needs about 0.0 GB for its kernel, but 0.0 GB of memory are"
    ):
        LMFCNClassifier(epochs=1).fit(*textures)
    memory.check_kernel_memory(17)
    monkeypatch.setattr(memory, "free_memory", lambda: None)
    memory.check_kernel_memory(10**9)


def test_free_memory_is_what_the_system_tells(monkeypatch, tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    5 kB\n")
    monkeypatch.setattr(memory, "Path", lambda _: tmp_path / "meminfo")
    assert memory.free_memory() == 5120
    monkeypatch.setattr(memory, "Path", lambda _: tmp_path / "nothing")
    assert memory.free_memory() is None
