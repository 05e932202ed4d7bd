import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from threadpoolctl import threadpool_info
from torch.utils._pytree import tree_map_only

from lmfcn import LMFCNClassifier
from lmfcn.compute import resources
from lmfcn.compute.resources import (
    available_devices,
    check_device,
    find_fault,
    first_working,
    to_cpu_double,
    to_device,
    to_like,
    to_precise,
    use_threads,
    why_no_cuda,
)
from pretend_device import DeviceMistakeError, pretended


def test_a_kernel_that_does_not_fit_is_refused_before_any_work(monkeypatch, textures):
    monkeypatch.setattr(resources, "free_memory", lambda: 10_000)
    with pytest.raises(
        ValueError, match=r"SVM on 32 images needs about 0.0 GB for its kernel, but 0.0 GB of memory are"
    ):
        LMFCNClassifier(epochs=1).fit(*textures)
    resources.check_kernel_memory(17)
    monkeypatch.setattr(resources, "free_memory", lambda: None)
    resources.check_kernel_memory(10**9)


def test_free_memory_is_what_the_system_tells(monkeypatch, tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    5 kB\n")
    monkeypatch.setattr(resources, "Path", lambda _: tmp_path / "meminfo")
    assert resources.free_memory() == 5120
    monkeypatch.setattr(resources, "Path", lambda _: tmp_path / "nothing")
    assert resources.free_memory() is None


CPU, META = torch.device("cpu"), torch.device("meta")


def test_names_lead_to_devices():
    assert check_device("cpu") == check_device(CPU) == CPU
    assert check_device("auto").type in {name.split(":")[0] for name in available_devices()}


@pytest.mark.parametrize("name", ["cuda:77", "toaster", "", None])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(name):
    names = ", ".join(available_devices())
    expected = f"device must be 'auto' or an available device ({names}), got {name!r}."
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}") as refused:
        check_device(name)
    assert names.startswith("cpu")
    if name != "cuda:77":
        assert str(refused.value) == expected


def test_what_is_missing_for_cuda_is_said(monkeypatch):
    for name in ("cuda", "hip"):
        monkeypatch.setattr(torch.version, name, None)
    assert "was built without CUDA; install a build with it" in why_no_cuda()
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "no graphics card or no driver" in why_no_cuda()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert why_no_cuda() == ""


def test_a_device_that_cannot_compute_is_refused_and_never_chosen():
    with pytest.raises(ValueError, match=r"^The device 'meta' cannot be used \(.+\); choose 'cpu'"):
        check_device("meta")
    assert first_working([META]) == CPU
    assert first_working([]) == CPU


@pytest.mark.parametrize("name", ["mps:0", "cuda:0"])
def test_an_accelerator_that_works_is_chosen(name):
    with pretended(name) as device:
        assert find_fault(device) is None
        assert first_working([device], find_fault) == device


@pytest.mark.parametrize(
    "operation",
    [
        "aten::convolution",
        "aten::convolution_backward",
        "aten::native_batch_norm",
        "aten::max_pool2d_with_indices",
        "aten::mm",
        "aten::exp",
    ],
)
def test_an_accelerator_with_wrong_answers_is_not_chosen(operation):
    seen = []

    def zeros(name, result):
        seen.append(name)
        return tree_map_only(torch.Tensor, torch.zeros_like, result) if name == operation else result

    with pretended("mps:0", zeros) as device:
        fault = find_fault(device)
        assert str(fault).endswith("differ from those of the CPU")
        assert first_working([device], find_fault) == CPU
    assert operation in seen


def test_an_accelerator_that_is_too_old_is_not_chosen():
    def refuse(name, result):
        if name == "aten::convolution":
            raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nCompile with ...")
        return result

    with pretended("cuda:0", refuse) as device:
        assert find_fault(device) == "CUDA error: no kernel image is available for execution on the device"
        assert first_working([device], find_fault) == CPU


def test_looking_for_faults_leaves_random_numbers_and_gradients_alone():
    before = torch.get_rng_state()
    with torch.no_grad():
        assert find_fault(CPU) is None
        assert not torch.is_grad_enabled()
    with torch.inference_mode():
        assert find_fault(CPU) is None
    assert torch.equal(torch.get_rng_state(), before)


def test_double_precision_stays_away_from_mps():
    exact = torch.tensor([1 / 3, 2.0], dtype=torch.float64)
    with pretended("mps:0") as device:
        there = to_device(exact, device)
        assert (there.device, there.dtype) == (device, torch.float32)
        assert to_precise(there).dtype == torch.float32
        assert to_like(exact, there).device == device
        back = to_like(there, exact)
        assert torch.equal(back, to_cpu_double(there))
        assert (back.device, back.dtype) == (CPU, torch.float64)
    with pretended("cuda:0") as device:
        assert to_precise(to_device(exact, device)).dtype == torch.float64
        assert torch.equal(to_like(to_device(exact, device), exact), exact)


@pytest.mark.parametrize(
    ("name", "mistake", "message"),
    [
        ("mps:0", lambda there: there.double(), "float64, which MPS does not have"),
        ("mps:0", lambda there: there.to("cpu", torch.float64), "float64, which MPS does not have"),
        ("mps:0", lambda there: torch.zeros(3, dtype=torch.float64).to(there.device), "float64"),
        ("mps:0", lambda there: torch.zeros(3, dtype=torch.float64, device=there.device), "float64"),
        ("mps:0", lambda there: torch.zeros(3, dtype=torch.uint16).to(there.device), "uint16"),
        ("mps:0", lambda there: there + torch.zeros(3), "mixes cpu and mps:0"),
        ("cuda:0", lambda there: there + torch.zeros(3), "mixes cpu and cuda:0"),
        ("cuda:0", lambda there: there[:, None] @ torch.zeros(1, 3), "mixes cpu and cuda:0"),
        ("cuda:0", lambda there: there.index_select(0, torch.tensor([0])), "mixes cpu and cuda:0"),
        ("cuda:0", lambda there: torch.zeros(3)[there.long()], "mixes cpu and cuda:0"),
        ("cuda:0", lambda there: there.numpy(), "not supported"),
    ],
)
def test_the_pretended_devices_find_mistakes(name, mistake, message):
    with pretended(name) as device:
        there = torch.zeros(3, device=device)
        with pytest.raises((DeviceMistakeError, RuntimeError), match=message):
            mistake(there)


class InThread:
    """Runs functions in a thread of its own, one after the other; each has ended when `do` returns."""

    def __enter__(self):
        self._executor = ThreadPoolExecutor(1)
        return self

    def __exit__(self, *_):
        self._executor.shutdown()

    def do(self, function, *arguments):
        return self._executor.submit(function, *arguments).result()


@pytest.fixture
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize("first_leaves_first", [True, False])
@pytest.mark.parametrize("counts", [(1, 1), (1, 2), (3, 1)])
def test_threads_of_one_process_enter_and_leave_in_any_order(counts, first_leaves_first):
    of_blas = blas_threads()
    with InThread() as one, InThread() as other:
        assert [one.do(torch.get_num_threads), other.do(torch.get_num_threads)] == [4, 4]
        blocks = [use_threads(count) for count in counts]
        one.do(blocks[0].__enter__)
        other.do(blocks[1].__enter__)
        assert [one.do(torch.get_num_threads), other.do(torch.get_num_threads)] == list(counts)
        leaving = [(one, blocks[0]), (other, blocks[1])]
        (first, first_block), (last, last_block) = leaving if first_leaves_first else leaving[::-1]
        first.do(first_block.__exit__, None, None, None)
        still_inside = counts[1] if first_leaves_first else counts[0]
        assert [first.do(torch.get_num_threads), last.do(torch.get_num_threads)] == [4, still_inside]
        assert blas_threads() == {still_inside}
        last.do(last_block.__exit__, None, None, None)
        assert [one.do(torch.get_num_threads), other.do(torch.get_num_threads)] == [4, 4]
    with InThread() as later:
        assert later.do(torch.get_num_threads) == 4
    assert torch.get_num_threads() == 4
    assert blas_threads() == of_blas


@pytest.mark.usefixtures("four_threads")
def test_nested_blocks_go_back_one_by_one():
    with use_threads(3):
        with use_threads(1):
            assert (torch.get_num_threads(), blas_threads()) == (1, {1})
        assert (torch.get_num_threads(), blas_threads()) == (3, {3})
        with pytest.raises(KeyError), use_threads(2):
            raise KeyError
        assert torch.get_num_threads() == 3
    assert torch.get_num_threads() == 4


def test_idle_processors_are_counted_by_their_times(tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "_allowed_processors", lambda: {0, 1, 3})
    before = (
        "cpu 9 9 9 9\ncpu0 100 0 0 100 0 0 0 0 0 0\ncpu1 0 0 0 50 0 0 0 0\ncpu2 0 0 0 0 0 0 0 0\ncpu3 7 0 0 7 0 0 0 0\n"
    )
    # Of the next 10 ticks, the first is idle in 10, the second in 4 and one of waiting, the last in none.
    after = "cpu0 100 0 0 110 0 0 0 0\ncpu1 5 0 0 54 1 0 0 0\ncpu2 0 0 0 10 0 0 0 0\ncpu3 17 0 0 7 0 0 0 0\nintr 5\n"
    path = tmp_path / "stat"
    path.write_text(before)
    monkeypatch.setattr(resources.time, "sleep", lambda _: path.write_text(after))
    assert resources.idle_processors(path) == 1.5


@pytest.mark.parametrize(("idle", "expected"), [(0.2, 1), (2.6, 3), (9.0, 4)])
def test_threads_are_as_many_as_are_idle(monkeypatch, idle, expected):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(resources, "allowed_threads", lambda: 4)
    monkeypatch.setattr(resources, "idle_processors", lambda: idle)
    assert resources.free_threads.__wrapped__() == expected
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert resources.free_threads.__wrapped__() == 4


def test_a_quota_is_rounded_up_and_may_be_missing(tmp_path):
    path = tmp_path / "cpu.max"
    path.write_text("150000 100000\n")
    assert resources._quota(path) == 2
    path.write_text("max 100000\n")
    assert resources._quota(path) == resources._quota(tmp_path / "nothing") > 1000
