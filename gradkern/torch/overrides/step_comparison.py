"""What an operator's calls gain in a whole training step: it is timed with gradkern's kernels and with PyTorch's. And
whether a step is shorter with the graphs that gradkern has rewritten, or with those that Inductor alone compiles.

Times of single calls cannot show it: what a call costs on the host counts only where the device waits for the host, and
between other work that is more than in a row of such calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import expm1, log, sqrt
from statistics import fmean, geometric_mean, stdev
from time import perf_counter
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend import choice
from gradkern.torch.compile_backend.choice import StepTimes
from gradkern.torch.overrides import ranks
from gradkern.torch.overrides.kernel import Kernel, synchronize
from gradkern.torch.overrides.signatures import Signature

_CHOSEN, _MORE, _PYTORCH = "chosen", "more", "PyTorch's"
"""Ways to answer an operator's calls: gradkern those that `compare` has left to it; those that gain on the device less
than they cost the host as well; or PyTorch all of them.
"""


_TURNS = 4
"""At least, of each way."""
_SECONDS = 10.0
"""Of turns beyond those, for as long as it is open which way is the fastest. A host that others use, too, runs at half
its speed in one moment and not in the next: turns of one way differ by a tenth, so that four do not show a twentieth.
"""


def compare_steps(
    kernels: Iterable[Kernel], calls: Mapping[Signature, int], step: Callable[[], Any], repeats: int
) -> None:
    """For every operator, those with the most calls first, choose the way that makes steps shortest.

    calls     how often each signature came in a step
    repeats   steps in a turn of a way, after one that does not count
    """
    named = {
        f"{each.translation.name} on {each.key}": each for each in kernels if each.enabled and not each.replaces_errors
    }
    runs: list[tuple[int, str, tuple[str, ...], frozenset[str]]] = []
    for name, kernel in named.items():
        came = [each for each in kernel.signatures() if calls.get(each)]
        chosen = [each for each in came if each.run is not None] if kernel.override.installed else []
        more = [each for each in came if each.run is None and each.comparison and each.comparison.on_device > 0]
        ways = (*[_CHOSEN] * bool(chosen), *[_MORE] * bool(more), _PYTORCH)
        if len(ways) > 1:
            runs.append((sum(map(calls.__getitem__, chosen + more)), name, ways, frozenset(x.text for x in more)))
    runs = ranks.of_first(sorted(runs, key=lambda each: -each[0]))  # all run as many steps: they wait for each other
    for _, name, ways, texts in runs:
        kernel = named[name]
        with_ways = _Ways(kernel, texts)
        try:
            turns = turns_of(ways, with_ways.take, step, repeats, _SECONDS / len(runs))
        finally:
            with_ways.take(_CHOSEN)
        times = {way: geometric_mean(each) for way, each in turns.items()}
        *ours, theirs = times.values()
        if min(ours) < theirs:
            with_ways.take(min(times, key=times.__getitem__))
            continue
        kernel.activate()
        kernel.deactivate(
            f"no gain: a step takes {min(ours):.2f} ms with gradkern's kernels, {theirs:.2f} with PyTorch's"
        )


class _Ways:
    """The ways of one operator. more: the texts of the signatures that only one of them takes."""

    def __init__(self, kernel: Kernel, more: Collection[str]) -> None:
        self._kernel, self._inactive = kernel, kernel.inactive
        self._more = [(each, each.reason) for each in kernel.signatures() if each.run is None and each.text in more]

    def take(self, way: str) -> None:
        for each, reason in self._more:
            if way == _MORE:
                each.reason = ""
                each.withdraw()
                self._kernel.plan(each)  # again: it is there
            else:
                each.decline(reason)
        self._kernel.activate()
        if way == _PYTORCH:
            self._kernel.override.remove()
        elif way == _CHOSEN and self._inactive:
            self._kernel.deactivate(self._inactive)


def turns_of(
    ways: Sequence[str], take: Callable[[str], None], step: Callable[[], Any], repeats: int, seconds: float
) -> dict[str, list[float]]:
    """Milliseconds of a step in each turn of each way, on the slowest rank. seconds: of turns beyond the least."""

    def turn(way: str) -> float:
        take(way)
        step()  # which has more to do
        synchronize()
        start = perf_counter()
        for _ in range(repeats):
            step()
        synchronize()
        return (perf_counter() - start) * 1e3 / repeats

    taken: dict[str, list[float]] = {way: [] for way in ways}

    def further() -> float:
        """Seconds of the turns beyond the least."""
        return sum(sum(turns[_TURNS:]) for turns in taken.values()) * repeats / 1e3

    while len(taken[ways[0]]) < _TURNS or (further() < seconds and not _is_clear(taken)):
        order = in_round(len(taken[ways[0]]), ways)
        for way, times in zip(order, zip(*ranks.of_all([turn(way) for way in order]), strict=True), strict=True):
            taken[way].append(max(times))
    return taken


def in_round(number: int, ways: Sequence[str]) -> Sequence[str]:
    """The order of a round of turns: forward or in reverse, by the Thue-Morse sequence, so that neither drift nor
    periodic load on the host favours one of them.
    """
    return ways if number.bit_count() % 2 == 0 else ways[::-1]


def _is_clear(taken: Mapping[str, Sequence[float]]) -> bool:
    """Whether the fastest way leads for certain, or a standard error is too small to matter."""
    fastest = min(taken.values(), key=geometric_mean)
    for turns in taken.values():
        if turns is not fastest:
            leads = [log(other / ours) for other, ours in zip(turns, fastest, strict=True)]
            error = stdev(leads) / sqrt(len(leads))
            if error > 0.005 and fmean(leads) < _errors(len(leads) - 1) * error:
                return False
    return True


def _errors(freedom: int) -> float:
    """Student's t that is as improbable as three standard deviations, by Wallace's approximation: of four turns 9.8, as
    an error that is estimated from so few may be far too small.
    """
    deviations = 3 * (8 * freedom + 3) / (8 * freedom + 1)
    return sqrt(freedom * expm1(deviations**2 / freedom))


# --- compiled graphs --------------------------------------------------------------------------------------------------

_OURS, _INDUCTOR = "gradkern", "Inductor"


def forget_runs() -> None:
    """Before the step whose graphs are to be compared."""
    for each in choice.live():
        each.ran = False


def compare_graphs(step: Callable[[], Any], repeats: int) -> None:
    """Let the graphs that have run since `forget_runs` be gradkern's or Inductor's, as steps are shorter with; where
    turns cannot tell, and in CUDA graphs, as their kernels take less time.
    """
    graphs = [each for each in choice.live() if each.ran]
    if not ranks.of_first(bool(graphs)):
        return

    def take(way: str) -> None:
        for each in graphs:
            each.plain = way == _INDUCTOR

    try:
        turns = turns_of((_OURS, _INDUCTOR), take, step, repeats, _SECONDS)
        times = {way: geometric_mean(each) for way, each in turns.items()}
        asleep = max(ranks.of_all(2 * max(times.values())))  # one for all: their kernels wait for each other's
        on_device = dict[str, float | None]()
        for way in times:
            take(way)
            found = ranks.of_all(_on_device(step, asleep))
            on_device[way] = max((each for each in found if each is not None), default=None)
    finally:
        take(_OURS)
    ours, inductor = times[_OURS], times[_INDUCTOR]
    plain = in_graph = inductor < ours
    is_clear = _is_clear(turns)
    ours_there, inductor_there = on_device[_OURS], on_device[_INDUCTOR]
    if ours_there is not None and inductor_there is not None:
        in_graph = inductor_there < ours_there
        plain = plain if is_clear else in_graph
    for each in graphs:
        each.plain, each.plain_in_graph = plain, in_graph
    choice.compared.append(StepTimes(ours, inductor, plain, in_graph, ours_there, inductor_there, is_clear))


def _on_device(step: Callable[[], Any], longest: float) -> float | None:
    """Milliseconds that a step's kernels take, one right behind the other: the device sleeps for as long as the step
    may take the host, which queues them meanwhile. The least of three, as a step that waits for the device, or has more
    kernels than the queue holds, about a thousand, waits for the host, too. None without a GPU.

    torch.profiler would tell more, but slows every launch for the rest of the process.
    """
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    devices = [each for each in range(torch.cuda.device_count()) if torch.cuda.memory_allocated(each)]

    def once() -> float:
        events = {each: [torch.cuda.Event(enable_timing=True) for _ in range(2)] for each in devices}
        for device, (start, _) in events.items():
            with torch.cuda.device(device):
                torch.cuda._sleep(int(longest * 3e6))  # cycles, of at most 3 GHz
                start.record()
        step()
        for device, (_, end) in events.items():
            with torch.cuda.device(device):
                end.record()
        for _, end in events.values():
            end.synchronize()
        return max(start.elapsed_time(end) for start, end in events.values())

    return min(once() for _ in range(3)) if devices else None
