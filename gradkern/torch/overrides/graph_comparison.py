"""Whether a step is shorter with the graphs that gradkern has rewritten, or with those that Inductor alone compiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend import choice
from gradkern.torch.compile_backend.choice import Choice, StepTimes
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
    """Let the graphs that have run since `forget_runs` be gradkern's or Inductor's, as steps are shorter with."""
    graphs = [each for each in choice.live() if each.ran]
    if not ranks.of_first(bool(graphs)):
        return

    def take(way: str) -> None:
        for each in graphs:
            each.plain = way == _INDUCTOR

    try:
        times = times_of((_OURS, _INDUCTOR), take, step, repeats)
    except BaseException:
        take(_OURS)
        raise
    ours, inductor = times[_OURS].least, times[_INDUCTOR].least
    take(_INDUCTOR if inductor < ours else _OURS)
    choice.note(StepTimes(ours, inductor, _on_device(step, graphs)))


def _on_device(step: Callable[[], Any], graphs: list[Choice]) -> float | None:
    """Milliseconds that a step's kernels take; None without a GPU."""
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    from torch.profiler import ProfilerActivity, profile  # pyright: ignore[reportMissingImports]

    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as found:  # else it warns
        step()
        synchronize()
    return sum(each.self_device_time_total for each in found.key_averages()) / 1e3
