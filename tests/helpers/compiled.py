"""Which kernels the tests compile for which devices, without a GPU. Each takes a second of a core or several."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
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


def parameters(always: Pairs, others: Pairs = ()) -> list[Any]:
    """Of a test: kind and compute capability, those of every run and the rest of those that --every-kernel adds: every
    kind for the GPU that kernels are tuned on, and for one other, for which kinds take turns. --long adds all.
    """
    every_run = list(always)
    added = [each for each in others if each not in every_run]
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
    added.sort(key=lambda each: repr(each[0]))  # of one kind after another: devices share the work on the same kernel
    found: list[tuple[Any, Any]] = [(each, ()) for each in every_run]
    for each in added:
        taken = each[1] in HOPPER or (repr(each[0]), each[1]) in turns
        found.append((each, pytest.mark.every_kernel if taken else pytest.mark.slow))
    return [
        pytest.param(
            kind, capability, id=f"{'.'.join(map(str, capability))}-{getattr(kind, 'name', kind)}", marks=marks
        )
        for (kind, capability), marks in found
    ]


@lru_cache(64)
def made_of(spec: KernelSpec) -> Compiled:
    """The kernel, which calls of other shapes may have in common: what it is made of is the same then."""
    return spec.compile()
