"""Which kernels the tests compile for which devices, without a GPU. Each takes a second of a core or several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import pytest

from helpers.covers import cover

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
             a kind for the GPU that kernels are tuned on, and as few as have each part for each other
    """
    every_run = list(always)
    added = [each for each in others if each not in every_run]
    taken = {*_tuned(every_run, added, covered), *_elsewhere(every_run, added, covered)}
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


def _tuned(every_run: list[Any], added: list[Any], covered: int) -> Iterator[str]:
    cases = [each for each in added if each[1] in HOPPER]
    if covered:
        had = [kind for kind, capability in every_run if capability in HOPPER]
        cases = cover(cases, [kind for kind, _ in cases], covered, had)
    yield from map(repr, cases)


def _elsewhere(every_run: list[Any], added: list[Any], covered: int) -> Iterator[str]:
    had, cases = ([each for each in among if each[1] not in HOPPER] for among in (every_run, added))
    if covered:
        yield from map(repr, cover(cases, map(_parts, cases), 1, map(_parts, had)))
        return
    kinds: dict[str, list[Any]] = {}
    for each in cases:
        kinds.setdefault(repr(each[0]), []).append(each)
    for number, (kind, found) in enumerate(kinds.items()):
        if kind not in {repr(each[0]) for each in had}:
            yield repr(found[number % len(found)])


def _parts(case: Any) -> list[Any]:
    kind, capability = case
    return [(part, capability) for part in kind]


@cache
def _compile() -> Any:
    from gradkern.cuda.compile import compile_kernel
    from gradkern.cuda.device_code.alike import once_for_alike

    return once_for_alike(compile_kernel)


def made_of(spec: KernelSpec) -> Compiled:
    """The kernel, compiled once for all calls that have it in common, whatever else their configs say."""
    kernel = resolve_name(spec.builder)(*spec.constants)
    return _compile()(kernel, spec.arguments, spec.capability, spec.threads, spec.blocks_per_processor)
