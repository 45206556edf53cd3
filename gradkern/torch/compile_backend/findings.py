"""What graphs that were compiled have of what can be fused: what was taken, what was left, and why."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gradkern.system import locks

_MOST = 10_000


@dataclass(frozen=True)
class Finding:
    """A place in a model.

    fusion   what could be one operator, such as "batch_norm + relu"
    module   the name of the module where it begins; "" outside of any
    tensor   type and shape of what it computes
    reason   why it is left to Inductor; "" where gradkern computes it
    matched  False: a norm that is part of nothing that could be one operator; `fusion` names the norm
    """

    fusion: str
    module: str
    tensor: str
    reason: str = ""
    matched: bool = True


_found: list[Finding] = []
_graphs: list[int] = [0]  # compiled in this process
_changing = locks.reentrant_lock()


class _OfGraph(threading.local):
    """What is found in the graph that this thread compiles; None where it compiles none."""

    found: list[Finding] | None = None


_of_graph = _OfGraph()


@contextmanager
def of_graph() -> Iterator[None]:
    """Add what is found only when the graph is compiled: Dynamo gives some up on the way, to trace them again with
    numbers in place of symbols.
    """
    outer, _of_graph.found = _of_graph.found, []
    try:
        yield
        found = _of_graph.found
    finally:
        _of_graph.found = outer
    for each in found:
        add(each)


def add(finding: Finding) -> None:
    if _of_graph.found is not None:
        _of_graph.found.append(finding)
        return
    with _changing:
        if len(_found) < _MOST:
            _found.append(finding)


def findings() -> tuple[Finding, ...]:
    """What can be one operator, of every graph that was compiled in this process, since `clear`; of one that was
    compiled again, again.
    """
    return tuple([each for each in _found if each.matched])


def unmatched() -> tuple[Finding, ...]:
    """Norms that are part of nothing that can be one operator, of the same graphs."""
    return tuple([each for each in _found if not each.matched])


def note_graph() -> None:
    """Note that a graph is compiled, whatever is found in it."""
    with _changing:
        _graphs[0] += 1


def used() -> bool:
    """Whether a graph was ever compiled in this process."""
    return bool(_graphs[0])


def clear() -> None:
    with _changing:
        _found.clear()


def shown(found: Iterable[Finding]) -> list[str]:
    """One line for each fusion that was taken, and for each reason why one was not."""
    every = list(found)
    taken = Counter(each.fusion for each in every if not each.reason)
    left = Counter((each.fusion, each.reason) for each in every if each.reason)
    first = {(each.fusion, each.reason): each.module for each in reversed(every)}
    lines = [f"{count:8}           compiled {fusion}: gradkern" for fusion, count in taken.items()]
    for (fusion, reason), count in left.items():
        module = first[fusion, reason]
        lines.append(f"{'':8} {count:8}  compiled {fusion}: {reason}" + (f" ({module})" if module else ""))
    return lines
