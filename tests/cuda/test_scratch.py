"""What tells that a captured graph is destroyed, and how much memory is held, as far as it shows without a GPU."""

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from gradkern.cuda import scratch as memory
from gradkern.cuda.device import Device
from gradkern.cuda.scratch import _Flag, scratch


def test_a_flag_is_raised_by_a_function_of_the_c_library_and_lowered_by_the_look_at_it() -> None:
    one, other = _Flag(), _Flag()
    assert not one.lowered()
    assert one.raising is not None
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(one.raising)(one.address)
    assert not other.lowered()
    assert one.lowered()
    assert not one.lowered()


def test_a_buffer_that_is_too_small_gives_way_to_one_of_twice_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    ok = memory.driver.CUresult.CUDA_SUCCESS

    def allocate(size: int) -> tuple[Any, int]:
        asked.append(size)
        return ok, 1 << 20

    names = ("cuStreamCreate", "cuMemsetD8Async", "cuStreamSynchronize", "cuStreamDestroy")
    done: dict[str, Any] = dict.fromkeys(names, lambda *_: (ok, 0))
    flags = memory.driver.CUstream_flags
    monkeypatch.setattr(memory, "driver", SimpleNamespace(**done, cuMemAlloc=allocate, CUstream_flags=flags))
    monkeypatch.setattr(memory, "activate", lambda device: nullcontext())
    monkeypatch.setattr(memory, "relaxed_capture", nullcontext)
    monkeypatch.setattr(memory, "_streams", {})
    device = Device(0, (9, 0), 132, 232448)
    for size in (5 << 20, 3 << 20, 7 << 20):  # the second fits into what the first has
        scratch(device, 0, size)
    assert [size >> 20 for size in asked] == [5, 10]
