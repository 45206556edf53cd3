"""What an operator's calls gain in a whole training step: it is timed with gradkern's kernels and with PyTorch's. And
whether a step is shorter with the graphs that gradkern has rewritten, or with those that Inductor alone compiles.

Times of single calls cannot show it: what a call costs on the host counts only where the device waits for the host, and
between other work that is more than in a row of such calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple

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


def compare_steps(
    kernels: Iterable[Kernel], calls: Mapping[Signature, int], step: Callable[[], Any], repeats: int
) -> None:
    """For every operator, those with the most calls first, choose the way that makes steps clearly shortest. Where its
    turns overlap with PyTorch's, the one whose kernels take the least time if these bound the step, and else PyTorch's.

    calls     how often each signature came in a step
    repeats   steps in each of two turns of each way, after one with each
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
    runs.sort(key=lambda each: -each[0])
    for _, name, ways, texts in ranks.of_first(runs):  # every rank runs as many steps, as they wait for each other
        kernel = named[name]
        with_ways = _Ways(kernel, texts)
        try:
            times = times_of(ways, with_ways.take, step, repeats)
            best = _best(times, with_ways.take, step)
        finally:
            with_ways.take(_CHOSEN)
        if best != _PYTORCH:
            with_ways.take(best)
            continue
        kernel.activate()
        kernel.deactivate(_no_gain(min(times[way] for way in ways if way != best), times[best]))


def _best(times: Mapping[str, Turns], take: Callable[[str], None], step: Callable[[], Any]) -> str:
    best, theirs = _PYTORCH, times[_PYTORCH]
    for way, turns in times.items():
        if turns.most < times[best].least:
            best = way
    level = [way for way, turns in times.items() if turns.least <= theirs.most]
    if best == _PYTORCH and len(level) > 1:
        kernels = _kernels_of(level, times, take, step)
        if kernels and not choice.is_host_bound(kernels[_PYTORCH], theirs.least):
            best = min(reversed(level), key=kernels.__getitem__)
    return best


class Turns(NamedTuple):
    """Milliseconds of a step, in the fastest of a way's turns and in the slowest. Where those of two ways overlap,
    neither is known to be faster: a host that others use, too, makes the same steps a tenth longer in the next moment.
    """

    least: float
    most: float


def _no_gain(ours: Turns, theirs: Turns) -> str:
    if ours.least >= theirs.least:
        return f"no gain: a step takes {ours.least:.2f} ms with gradkern's kernels, {theirs.least:.2f} with PyTorch's"
    return (
        f"no clear gain: a step takes {ours.least:.2f} to {ours.most:.2f} ms with gradkern's kernels, "
        f"{theirs.least:.2f} to {theirs.most:.2f} with PyTorch's"
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


def times_of(
    ways: tuple[str, ...], take: Callable[[str], None], step: Callable[[], Any], repeats: int, rounds: int = 1
) -> dict[str, Turns]:
    """The times of each way on the slowest rank, in turns forth and back: what drifts meets all alike. The turns of two
    ways that are equally fast do not overlap once in 3 where there is one round, once in 35 where there are two.
    """

    def seconds(way: str, steps: int) -> float:
        take(way)
        synchronize()
        start = perf_counter()
        for _ in range(steps):
            step()
        synchronize()
        return perf_counter() - start

    for way in ways:  # a first step has more to do
        seconds(way, 1)
    turns = [(way, seconds(way, repeats)) for way in (*ways, *reversed(ways)) * rounds]
    mine = [sorted(time / repeats * 1e3 for way, time in turns if way == each) for each in ways]
    every = ranks.of_all(mine)
    slowest = [
        Turns(*[max(of_rank[place][turn] for of_rank in every) for turn in (0, -1)]) for place in range(len(ways))
    ]
    return dict(zip(ways, slowest, strict=True))


# --- compiled graphs --------------------------------------------------------------------------------------------------

_OURS, _INDUCTOR = "gradkern", "Inductor"


def forget_runs() -> None:
    """Before the step whose graphs are to be compared."""
    for each in choice.live():
        each.ran = False


def compare_graphs(step: Callable[[], Any], repeats: int) -> None:
    """Let the graphs that have run since `forget_runs` be gradkern's or Inductor's, as steps are clearly shorter with.
    Where neither are, those whose kernels take less time if these bound the step. If the host does, those with the
    fastest of twice as many turns: a host that others use, too, makes turns longer, never shorter. In CUDA graphs it is
    always by the kernels.
    """
    graphs = [each for each in choice.live() if each.ran]
    if not ranks.of_first(bool(graphs)):
        return

    def take(way: str) -> None:
        for each in graphs:
            each.plain = way == _INDUCTOR

    try:
        times = times_of((_OURS, _INDUCTOR), take, step, repeats, rounds=2)
        kernels = _kernels_of((_INDUCTOR, _OURS), times, take, step)
        ours, inductor = times[_OURS], times[_INDUCTOR]
        overlap = inductor.least <= ours.most and ours.least <= inductor.most
        by_kernels = overlap and kernels and not choice.is_host_bound(kernels[_OURS], ours.least)
        if overlap and not by_kernels:
            more = times_of((_OURS, _INDUCTOR), take, step, repeats, rounds=2)
            ours, inductor = (min(times[way], more[way]) for way in (_OURS, _INDUCTOR))
    except BaseException:
        take(_OURS)
        raise
    shorter = inductor.least < ours.least
    in_graph = kernels[_INDUCTOR] < kernels[_OURS] if kernels else shorter
    plain = in_graph if by_kernels else shorter
    on_device = (kernels[_OURS], kernels[_INDUCTOR]) if kernels else ()
    found = StepTimes(ours.least, inductor.least, plain, in_graph, *on_device)
    for each in graphs:
        each.plain, each.plain_in_graph = found.is_plain, found.is_plain_in_graph
    choice.compared.append(found)


def _kernels_of(
    ways: Sequence[str], times: Mapping[str, Turns], take: Callable[[str], None], step: Callable[[], Any]
) -> dict[str, float] | None:
    """Milliseconds that the kernels of each way's steps take on the slowest rank; None where there is no GPU."""
    mine = dict[str, float | None]()
    for way in ways:
        take(way)
        mine[way] = _on_device(step, times[way].most)
    every = ranks.of_all(mine)
    found = {way: [ms for of_rank in every if (ms := of_rank[way]) is not None] for way in ways}
    return {way: max(each) for way, each in found.items()} if all(found.values()) else None


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
