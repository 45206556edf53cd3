"""What earlier searches have found about the origins of candidates: those of this process, and stored ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from gradkern.search import store
from gradkern.search.store import Measurement

__all__ = ["GAIN", "expected", "forget", "learn", "recall", "worth_compiling"]

_ENOUGH = 2  # searches from which on what they found of an origin holds for others
_MOST_RECALLED = 100  # stored results that are looked into, the newest: about a millisecond each
_TRIES, GAIN = 2, 0.98
"""How many candidates of an origin that compile are tried without a gain; and the share of the best time of all that do
not compile that is one, as every process that runs such a candidate compiles it again. cuDNN's take half a second each,
and of 570 winners on the H200 six were such, by 3 to 9 %.
"""


@dataclass(slots=True)
class _Origin:
    """searches: in how many it was tried.

    slowness   how many times slower than the winner its best was, where that was least
    compiled   how many of its candidates that compile were timed
    share      the least time of one of these, as a share of the best of all that do not compile
    """

    searches: int = 0
    slowness: float = inf
    compiled: int = 0
    share: float = inf


_known: dict[tuple[str, str], _Origin] = {}
"""By kind of task and origin."""
_recalled: set[str] = set()
"""Kinds of which the stored results were looked into."""


def expected(kind: str, origin: str) -> float:
    """How many times slower than the winner the candidates of an origin are; 1 where too little is known."""
    found = _known.get((kind, origin))
    return 1.0 if found is None or found.searches < _ENOUGH else found.slowness


def worth_compiling(kind: str, origin: str) -> bool:
    """Whether a candidate of this origin that compiles may gain, by those of its like that were tried."""
    found = _known.get((kind, origin))
    return found is None or found.compiled < _TRIES or found.share < GAIN


def learn(kind: str, ranking: Sequence[Measurement], rejected: Iterable[Measurement]) -> None:
    """Take note of what one search has found."""
    best = min(map(_seconds, ranking), default=inf)
    ready = min((_seconds(each) for each in ranking if "compiles" not in each.notes), default=inf)
    timed = [each for each in (*ranking, *rejected) if each.seconds is not None and best < inf]
    for origin in {each.origin for each in timed}:
        _known.setdefault((kind, origin), _Origin()).searches += 1
    for each in timed:
        assert each.seconds is not None
        known = _known[kind, each.origin]
        known.slowness = min(known.slowness, each.seconds / best)
        if "compiles" in each.notes:
            known.compiled += 1
            if not each.reason:
                known.share = min(known.share, each.seconds / ready)


def recall(kind: str, conditions: Mapping[str, Any]) -> None:
    """Take note, once for a kind, of what stored searches found with this device and these libraries."""
    if kind in _recalled:
        return
    _recalled.add(kind)
    same = ("device", "driver", "gradkern", "sources")
    for result in store.newest(kind, _MOST_RECALLED):
        if all(result.conditions.get(name) == conditions[name] for name in same):
            learn(kind, result.ranking, result.rejected)


def _seconds(measurement: Measurement) -> float:
    return inf if measurement.seconds is None else measurement.seconds


def forget() -> None:
    """As in a new process."""
    _known.clear()
    _recalled.clear()
