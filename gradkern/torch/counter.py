"""Counts of calls."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import torch  # pyright: ignore[reportMissingImports]


class Counter:
    """Counts calls of any thread, at the cost of one tick. others: functions that return further counts."""

    __slots__ = ("_looks", "_ticks", "others", "tick")

    def __init__(self) -> None:
        self._ticks, self._looks = count(), 0
        self.tick = self._ticks.__next__
        self.others: list[Callable[[], int]] = []

    @property
    def value(self) -> int:
        self._looks += 1
        return self.tick() - self._looks + 1 + sum([each() for each in tuple(self.others)])

    def less(self, calls: int) -> None:
        """Take back the count of calls that were nobody's but gradkern's own."""
        self._looks += calls


_calls: dict[tuple[str, bool], Counter] = {}


def count_call(function: str, x: torch.Tensor) -> None:
    """Count a call that one of gradkern.torch's functions computes itself; one that is compiled is no call of it."""
    if not torch.compiler.is_compiling():
        key = function, x.is_cuda
        counter = _calls.get(key) or _calls.setdefault(key, Counter())
        counter.tick()


def calls() -> list[tuple[str, str, int]]:
    """Functions, kinds of devices, and how often each was called since `forget_calls`."""
    return [(name, "cuda" if cuda else "cpu", counter.value) for (name, cuda), counter in _calls.items()]


def forget_calls() -> None:
    _calls.clear()
