"""Large workspaces are lent by PyTorch where it uses the GPU, and go back whatever happens; small ones are scratch."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.driver import driver

from gradkern.call import Refusal
from gradkern.cuda import torch_memory
from gradkern.cuda.device import Device, OutOfMemoryError
from gradkern.cuda.torch_memory import LARGE, borrow
from gradkern.errors import ProviderError
from gradkern.search import plan as search_plan
from gradkern.search.plan import SearchPlan

DEVICE = Device(1, (9, 0), 132, 232448)
STREAM = 0x5000
ADDRESS = 0x7F00_0000_0000


class Cuda:
    """What of torch.cuda is asked for."""

    class OutOfMemoryError(RuntimeError):
        pass

    def __init__(self, free: int = 1 << 40, initialized: bool = True) -> None:
        self.free, self.initialized = free, initialized
        self.lent: list[tuple[int, int, int]] = []
        self.back: list[int] = []

    def is_initialized(self) -> bool:
        return self.initialized

    def caching_allocator_alloc(self, size: int, device: int, stream: int) -> int:
        if size > self.free:
            raise self.OutOfMemoryError("none is free")
        self.lent.append((size, device, stream))
        return ADDRESS

    def caching_allocator_delete(self, address: int) -> None:
        self.back.append(address)


def use(monkeypatch: pytest.MonkeyPatch, cuda: Any, capturing: bool = False) -> Any:
    """Let this be PyTorch's side, and the driver say that of every stream."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    ok = driver.CUresult.CUDA_SUCCESS
    asked = SimpleNamespace(CUresult=driver.CUresult, cuStreamIsCapturing=lambda stream: (ok, int(capturing)))
    monkeypatch.setattr("gradkern.cuda.device.driver", asked)
    monkeypatch.setattr(torch_memory, "driver", asked)
    return cuda


@pytest.mark.parametrize(("stream", "known_as"), [(0, 0), (1, 0), (STREAM, STREAM)])
def test_pytorch_knows_the_default_stream_by_another_name(
    stream: int, known_as: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = use(monkeypatch, Cuda())
    assert borrow(DEVICE, stream, 1000) == ADDRESS
    assert cuda.lent == [(1000, 1, known_as)]


def test_nothing_is_lent_without_pytorch_to_a_graph_or_to_a_stream_of_each_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(monkeypatch, Cuda())
    assert borrow(DEVICE, 2, 1000) is None
    use(monkeypatch, Cuda(), capturing=True)
    assert borrow(DEVICE, STREAM, 1000) is None
    use(monkeypatch, Cuda(initialized=False))
    assert borrow(DEVICE, STREAM, 1000) is None
    monkeypatch.delitem(sys.modules, "torch")
    assert borrow(DEVICE, STREAM, 1000) is None


class Fake:
    """A chosen candidate, of which there are smaller ones until none is left, and its call."""

    def __init__(self, *workspaces: int, fails: bool = False) -> None:
        self.workspaces, self.fails = workspaces, fails
        self.candidate, self.provisional, self.result = self, False, None
        self.name, self.workspace = f"with {workspaces[0]} bytes", workspaces[0]
        self.calls: list[tuple[int, int]] = []

    def smaller(self) -> Fake:
        if len(self.workspaces) < 2:
            raise Refusal("it is the smallest")
        return Fake(*self.workspaces[1:])

    def of_call(self) -> Any:
        def enqueue(inputs: Any, outputs: Any, workspace: int, stream: int) -> None:
            self.calls.append((workspace, stream))
            if self.fails:
                raise ProviderError("it fails")

        return enqueue


def planned(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Its plan, and the sizes of the scratch memory that is asked for."""
    asked: list[int] = []

    def scratch(device: Device, stream: int, size: int) -> tuple[int, int]:
        asked.append(size)
        return 0, 0x100

    monkeypatch.setattr(search_plan, "scratch", scratch)
    monkeypatch.setattr(search_plan, "is_current", lambda device: True)
    choices: Any = {"dW": fake}
    bind: Any = lambda choices: (choices["dW"],)  # noqa: E731
    return SearchPlan(DEVICE, choices, bind), asked


def test_large_workspaces_are_lent_for_a_call_and_small_ones_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = use(monkeypatch, Cuda())
    large, small = Fake(LARGE + 1), Fake(LARGE)
    plan, asked = planned(large, monkeypatch)
    plan((), (), STREAM)
    assert (large.calls, cuda.lent, cuda.back, asked) == (
        *([(ADDRESS, STREAM)], [(LARGE + 1, 1, STREAM)], [ADDRESS]),
        [],
    )
    plan, asked = planned(small, monkeypatch)
    plan((), (), STREAM)
    assert (small.calls, asked, len(cuda.lent)) == ([(0x100, STREAM)], [LARGE], 1)


def test_a_call_that_fails_gives_its_workspace_back(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = use(monkeypatch, Cuda())
    plan, _ = planned(Fake(2 * LARGE, fails=True), monkeypatch)
    with pytest.raises(ProviderError, match="it fails"):
        plan((), (), STREAM)
    assert cuda.back == [ADDRESS]


def test_where_pytorch_has_no_memory_left_a_kernel_with_a_smaller_workspace_takes_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = use(monkeypatch, Cuda(free=2 * LARGE))
    plan, _ = planned(Fake(4 * LARGE, 3 * LARGE, 2 * LARGE), monkeypatch)
    plan((), (), STREAM)
    assert plan.kernel == f"dW: with {2 * LARGE} bytes"
    assert cuda.lent == [(2 * LARGE, 1, STREAM)]
    plan, _ = planned(Fake(4 * LARGE, 3 * LARGE), monkeypatch)
    with pytest.raises(ProviderError, match=r"workspace failed: none is free; no other kernel for dW: .* smallest"):
        plan((), (), STREAM)
    with pytest.raises(OutOfMemoryError, match="134,217,728 bytes of workspace"):
        borrow(DEVICE, STREAM, 4 * LARGE)
