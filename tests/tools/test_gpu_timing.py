"""Timing on a GPU, without one: what runs between two events, and before them."""

from __future__ import annotations

import importlib
import sys
from unittest.mock import MagicMock

import pytest


@pytest.mark.parametrize("cold", [True, False])
def test_the_cache_is_overwritten_before_each_run_or_the_call_made_once_more(
    cold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    torch = MagicMock()
    torch.empty.return_value.zero_ = lambda: order.append("flush")
    torch.cuda.Event.return_value.record = lambda: order.append("event")
    torch.cuda.Event.return_value.elapsed_time.return_value = 2.0
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "gpu_timing", None)
    del sys.modules["gpu_timing"]  # to be imported with this torch, and forgotten with it
    times = importlib.import_module("gpu_timing").device_times({"a": lambda: order.append("a")}, 0.001, cold)
    assert times == {"a": [2e-3] * 7}
    before = "flush" if cold else "a"
    assert order == ["a"] * 4 + [before, "event", "a", "event"] * (3 + 7)
