"""Tensors on the CPU that are taken for a GPU's, and plans that compute nothing, for tests of how plans are found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gradkern.arrays import device
from gradkern.dispatch import operands, run
from gradkern.dispatch import planner as making
from gradkern.dispatch.plan_cache import Shortcuts

__all__ = ["Plan", "Planner", "take_for_a_gpus"]


class Elsewhere:
    """Tensors on the CPU, said to be on a GPU."""

    device = "cuda:0"
    finish = None
    stream = staticmethod(lambda: 7)

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def maker(self, tensor: Any) -> Any:
        strides = [step // tensor.dtype.itemsize for step in tensor.strides]
        dtype = getattr(self._torch, tensor.dtype.name)

        def new(stream: Any) -> tuple[Any, int]:
            array = self._torch.empty_strided(tensor.shape, strides, dtype=dtype)
            return array, array.data_ptr()

        return new

    def allocator(self, tensors: Any) -> Any:
        makers = [self.maker(each) for each in tensors]
        return lambda: [new(None)[0] for new in makers]


class Plan:
    kernel, scratch = "fake", 0

    def __init__(self) -> None:
        self.runs: list[Any] = []

    def __call__(self, *arguments: Any) -> None:
        self.runs.append(arguments)


class Planner:
    """The calls that were planned, and their plans; and how often arrays were read for a signature."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.plans: list[Plan] = []
        self.reads = 0
        self.made: type[Plan] = Plan

    def plan(self, binder: Any, provider: str, call: Any) -> Plan:
        self.calls.append(call)
        self.plans.append(self.made())
        return self.plans[-1]


def take_for_a_gpus(monkeypatch: pytest.MonkeyPatch) -> Planner:
    """Take tensors on the CPU for a GPU's in this test. Returns what plans their calls."""
    torch = pytest.importorskip("torch")
    made, kind = Planner(), Elsewhere(torch)
    read = operands.read

    def elsewhere(binder: Any, arrays: Any, out: Any) -> Any:
        made.reads += 1
        given, missing = binder.given(arrays)
        found = operands._of_tensors(binder, arrays, given, missing, out) if given[0].is_cpu else None
        return found or read(binder, arrays, out)

    monkeypatch.setattr(run, "shortcuts", Shortcuts(1024, 16))
    monkeypatch.setattr(run, "read", elsewhere)
    monkeypatch.setattr(operands, "device_arrays", lambda: SimpleNamespace(torch_kind=lambda index: kind))
    monkeypatch.setattr(making, "unavailable", lambda provider: None)
    monkeypatch.setattr(device, "refuse_capture", lambda *_: None)  # which asks the driver
    monkeypatch.setattr(making, "_ask", lambda binder, provider, call: made.plan(binder, provider.name, call))
    return made
