import ctypes

import torch

from lmfcn import memory


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
