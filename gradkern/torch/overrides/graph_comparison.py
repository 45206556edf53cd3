"""Whether a step is shorter with the graphs that gradkern has rewritten, or with those that Inductor alone compiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend import choice
from gradkern.torch.compile_backend.choice import StepTimes
from gradkern.torch.overrides import ranks
from gradkern.torch.overrides.step_comparison import times_of
from gradkern.torch.overrides.timing import synchronize

__all__ = ["compare_graphs", "forget_runs"]

_OURS, _INDUCTOR = "gradkern", "Inductor"


def forget_runs() -> None:
    """Before the step whose graphs are to be compared."""
    for each in choice.live():
        each.ran = False


def compare_graphs(step: Callable[[], Any], repeats: int) -> None:
    """Let the graphs that have run since `forget_runs` be gradkern's or Inductor's, as steps are shorter with; in CUDA
    graphs, as their kernels take less time.
    """
    graphs = [each for each in choice.live() if each.ran]
    if not ranks.of_first(bool(graphs)):
        return

    def take(way: str) -> None:
        for each in graphs:
            each.plain = way == _INDUCTOR

    try:
        times = times_of((_OURS, _INDUCTOR), take, step, repeats)
        on_device = dict[str, float | None]()
        for way in (_INDUCTOR, _OURS):
            take(way)
            on_device[way] = _on_device(step)
    except BaseException:
        take(_OURS)
        raise
    found = StepTimes(times[_OURS].least, times[_INDUCTOR].least, on_device[_OURS], on_device[_INDUCTOR])
    for each in graphs:
        each.plain, each.plain_in_graph = found.is_plain, found.is_plain_in_graph
    choice.note(found)


def _on_device(step: Callable[[], Any]) -> float | None:
    """Milliseconds that a step's kernels take; None without a GPU."""
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    from torch.profiler import ProfilerActivity, profile  # pyright: ignore[reportMissingImports]

    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as found:  # else it warns
        step()
        synchronize()
    return sum(each.self_device_time_total for each in found.key_averages()) / 1e3
