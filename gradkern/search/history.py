"""Findings of earlier searches about origins of candidates: of this process, and stored ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from gradkern.search import store
from gradkern.search.store import Measurement

_ENOUGH = 2  # searches whose findings about an origin are enough to apply to others
_MOST_RECALLED = 100  # newest stored results that are read: about a millisecond each
_TRIES, GAIN = 2, 0.98
"""The number of compiling candidates of an origin that are tried without a gain; and the share of the best time of
candidates that do not compile that counts as a gain, because every process compiles such a candidate again. cuDNN's
take half a second each; of 570 winners on an H200 six compiled, with gains of 3 to 9 %.
"""


@dataclass(slots=True)
class _Origin:
    """searches: the number of searches that tried the origin.

    slowness   the least ratio of its best time to the winner's
    compiled   the number of its timed candidates that compile
    share      the least time of these, relative to the best of candidates that do not compile
    """

    searches: int = 0
    slowness: float = inf
    compiled: int = 0
    share: float = inf


_known: dict[tuple[str, str], _Origin] = {}
"""By kind of task and origin."""
_recalled: set[str] = set()
"""Kinds whose stored results were read."""


def expected(kind: str, origin: str) -> float:
    """The ratio of times of an origin's candidates to the winner's; 1 if too little is known."""
    found = _known.get((kind, origin))
    return 1.0 if found is None or found.searches < _ENOUGH else found.slowness


def worth_compiling(kind: str, origin: str) -> bool:
    """Whether a compiling candidate of this origin may gain, judging by those that were tried."""
    found = _known.get((kind, origin))
    return found is None or found.compiled < _TRIES or found.share < GAIN


def learn(kind: str, ranking: Sequence[Measurement], rejected: Iterable[Measurement]) -> None:
    """Record the findings of one search."""
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
    """Record, once for a kind, the findings of stored searches with this device and these libraries."""
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
    """Forget everything, as in a new process."""
    _known.clear()
    _recalled.clear()
