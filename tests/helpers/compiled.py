"""Which kernels the tests compile for which devices, without a GPU. Each takes a second of a core or several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import combinations
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gradkern.cuda.compile import Compiled
    from gradkern.cuda.spec import KernelSpec

__all__ = ["HOPPER", "OTHERS", "SHARED_MEMORY", "made_of", "parameters"]

HOPPER = [(9, 0)]
"""What kernels are tuned on: some kinds are compiled for it in every run, all with --every-kernel."""
OTHERS = [(7, 5), (8, 0), (10, 0), (12, 0)]
"""One of each other generation: kinds take turns."""
SHARED_MEMORY = {(7, 5): 65536, (8, 0): 166912, (9, 0): 232448, (10, 0): 232448, (12, 0): 101376}

Pairs = Iterable[tuple[Any, tuple[int, int]]]


def parameters(always: Pairs, others: Pairs = (), covered: int = 0) -> list[Any]:
    """Of a test: kind and compute capability, those of every run and the rest of those that --every-kernel adds: every
    kind for the GPU that kernels are tuned on, and for one other, for which kinds take turns. --long adds all.

    covered  of kinds that are a product: --every-kernel adds as few as have all combinations of so many of the parts of
             a kind and the capability
    """
    every_run = list(always)
    added = [each for each in others if each not in every_run]
    taken = {repr(each) for each in _cover(every_run, added, covered)} if covered else _taken_in_turn(every_run, added)
    # of one kind after another: devices share the work on the same kernel
    found = sorted([*every_run, *added], key=lambda each: repr(each[0]))
    return [
        pytest.param(
            *each,
            id=f"{'.'.join(map(str, each[1]))}-{getattr(each[0], 'name', each[0])}",
            marks=() if each in every_run else pytest.mark.every_kernel if repr(each) in taken else pytest.mark.slow,
        )
        for each in found
    ]


def _taken_in_turn(every_run: list[Any], added: list[Any]) -> set[str]:
    elsewhere: dict[str, list[tuple[int, int]]] = {}
    for kind, capability in added:
        if capability not in HOPPER:
            elsewhere.setdefault(repr(kind), []).append(capability)
    had = {repr(kind) for kind, capability in every_run if capability not in HOPPER}
    turns = {
        (kind, capabilities[number % len(capabilities)])
        for number, (kind, capabilities) in enumerate(elsewhere.items())
        if kind not in had
    }
    return {repr(each) for each in added if each[1] in HOPPER or (repr(each[0]), each[1]) in turns}


def _cover(every_run: list[Any], added: list[Any], size: int) -> Iterator[Any]:
    """The least of `added`, by a greedy choice, that have all combinations of `size` parts which others do not have."""
    of_each = {repr(each): {*combinations(enumerate(_parts(each)), size)} for each in [*every_run, *added]}
    missing = set[Any]().union(*of_each.values()).difference(*(of_each[repr(each)] for each in every_run))
    while missing:
        best = max(added, key=lambda each: len(of_each[repr(each)] & missing))
        missing -= of_each[repr(best)]
        yield best


def _parts(case: Any) -> Iterator[Any]:
    kind, capability = case
    yield from kind
    yield capability


@cache
def _compile() -> Any:
    from gradkern.cuda.compile import compile_kernel
    from gradkern.cuda.device_code.alike import once_for_alike

    return once_for_alike(compile_kernel)


def made_of(spec: KernelSpec) -> Compiled:
    """The kernel, compiled once for all calls that have it in common, whatever else their configs say."""
    kernel = resolve_name(spec.builder)(*spec.constants)
    return _compile()(kernel, spec.arguments, spec.capability, spec.threads, spec.blocks_per_processor)
