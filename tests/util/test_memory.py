"""What the C library does with freed memory."""

import ctypes
import os
import platform
import subprocess
import sys

import pytest

from lmfcn.util.memory import reuse_freed_memory

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


def printed_by(code):
    """What a process prints whose malloc is as the system leaves it, whatever commands have run in this one."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", N_MAPPED + code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=clean).stdout.split()


@needs_glibc
def test_a_command_keeps_freed_memory():
    code = """
from lmfcn.util.memory import reuse_freed_memory
print(n_mapped(2**26))
reuse_freed_memory()
print(n_mapped(2**26))
"""
    assert printed_by(code) == ["5", "0"]


@needs_glibc
def test_processes_that_a_command_starts_keep_freed_memory_too():
    code = """
import subprocess, sys
from lmfcn.util.memory import reuse_freed_memory
if len(sys.argv) == 1:
    reuse_freed_memory()
    subprocess.run([sys.executable, "-c", sys.orig_argv[2], "child"], check=True)
else:
    print(n_mapped(2**26))
"""
    assert printed_by(code) == ["0"]


@needs_glibc
def test_fit_leaves_the_settings_of_a_process_as_they_are():
    code = """
library.mallopt(-3, 2**17)  # every block of 128 KiB or more is mapped
from lmfcn import LMFCNClassifier, make_gaussians
X, y = make_gaussians(8, 16, random_state=0)
LMFCNClassifier(epochs=2, latent_dim=2, widths=(4,), random_state=0).fit(X, y).model_.map(X[0], window=8, stride=8)
print(n_mapped(2**20))
"""
    assert printed_by(code) == ["5"]


def test_what_the_user_has_set_stays(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: None)  # which cannot set anything
    chosen = {"MALLOC_TRIM_THRESHOLD_": "1"}
    reuse_freed_memory(chosen)
    assert chosen == {"MALLOC_TRIM_THRESHOLD_": "1"}


@needs_glibc
def test_free_pages_go_back_to_the_system():
    program = """
import gc
from pathlib import Path
from lmfcn.util.memory import release_freed_memory

def resident():
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line)

blocks = [bytearray(60_000) for _ in range(2000)]
pins = blocks[-1:]
del blocks
gc.collect()
before = resident()
release_freed_memory()
print(before - resident())
"""
    freed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert int(freed) > 80_000  # of about 117,000 kB


def test_without_glibc_nothing_happens(monkeypatch):
    monkeypatch.setattr("platform.libc_ver", lambda: ("musl", "1"))
    environment = {}
    reuse_freed_memory(environment)
    assert environment == {}


def test_a_library_that_cannot_be_loaded_is_no_error(monkeypatch):
    def refuse(_):
        raise OSError

    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(ctypes, "CDLL", refuse)
    environment = {}
    reuse_freed_memory(environment)
    assert environment == {}
