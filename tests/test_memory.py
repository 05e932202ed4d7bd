import ctypes

import pytest
import torch

from lmfcn import LMFCNClassifier, memory


def test_training_code_runs_inside_and_memory_is_returned():
    with memory.reused_buffers():
        total = sum(float(torch.ones(10_000_000).sum()) for _ in range(3))
    assert total == 3e7


def test_thresholds_are_set_and_set_back(monkeypatch):
    calls = []

    class Library:
        def mallopt(self, name, value):
            calls.append((name, value))

        def malloc_trim(self, pad):
            calls.append(("trim", pad))

    monkeypatch.setattr(memory, "_glibc", Library)
    with memory.reused_buffers():
        assert dict(calls)[-3] == 2**30
    assert calls[2:] == [(-3, 2**25), (-1, 2**26), ("trim", 0)]


def test_without_glibc_nothing_happens(monkeypatch):
    monkeypatch.setattr("platform.libc_ver", lambda: ("musl", "1"))
    memory._glibc.cache_clear()
    assert memory._glibc() is None
    with memory.reused_buffers():
        pass
    memory._glibc.cache_clear()


def test_a_library_that_cannot_be_loaded_is_no_error(monkeypatch):
    def refuse(_):
        raise OSError

    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(ctypes, "CDLL", refuse)
    memory._glibc.cache_clear()
    assert memory._glibc() is None
    memory._glibc.cache_clear()


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
