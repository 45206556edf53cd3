"""Whether an operator pays in a whole training step, which is timed with gradkern's kernels and with PyTorch's.

Times of single calls cannot show it: what a call costs on the host counts only where the device waits for the host, and
between other work that is more than in a row of such calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import perf_counter
from typing import Any

from gradkern.torch.overrides import ranks
from gradkern.torch.overrides.kernel import Kernel
from gradkern.torch.overrides.signatures import Signature
from gradkern.torch.overrides.timing import synchronize

__all__ = ["compare_steps"]

_TURNS = (True, False, False, True)  # gradkern's kernels, or PyTorch's: what drifts meets both alike


def compare_steps(
    kernels: Iterable[Kernel], calls: Mapping[Signature, int], step: Callable[[], Any], repeats: int
) -> None:
    """Leave to PyTorch every operator without which a step is no longer than with it, those with the most calls first.

    calls     how often each signature came in a step
    repeats   steps in each of four turns, after one with each of both
    """
    named = {f"{each.translation.name} on {each.key}": each for each in kernels if each.active}
    taken = {
        name: sum(calls.get(each, 0) for each in kernel.signatures() if each.run is not None)
        for name, kernel in named.items()
        if kernel.override.installed
    }
    tried = sorted((name for name, count in taken.items() if count), key=lambda name: -taken[name])
    for name in ranks.of_first(tried):  # every rank runs as many steps, as they wait for each other in each
        times = ranks.of_all(_times(named[name], step, repeats))
        ours, theirs = (max(each) for each in zip(*times, strict=True))  # the slowest rank's is everyone's
        if ours >= theirs:
            named[name].rest(
                f"no gain: a step takes {ours:.2f} ms with gradkern's kernels, {theirs:.2f} with PyTorch's"
            )


def _times(kernel: Kernel, step: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Milliseconds of a step, the least of two turns, with gradkern's kernels and with PyTorch's."""

    def seconds(ours: bool, steps: int) -> float:
        if ours:
            kernel.override.install()
        else:
            kernel.override.remove()
        synchronize()
        start = perf_counter()
        for _ in range(steps):
            step()
        synchronize()
        return perf_counter() - start

    try:
        for ours in (True, False):  # a first step has more to do
            seconds(ours, 1)
        turns = [(ours, seconds(ours, repeats)) for ours in _TURNS]
    finally:
        kernel.override.install()
    least = [min(time for ours, time in turns if ours is each) / repeats * 1e3 for each in (True, False)]
    return least[0], least[1]
