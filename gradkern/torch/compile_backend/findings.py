"""What graphs that were compiled have of what can be fused: what was taken, what was left, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from gradkern.system import locks

__all__ = ["Finding", "add", "clear", "findings", "note_graph", "shown", "used"]

_MOST = 10_000


@dataclass(frozen=True)
class Finding:
    """A place in a model.

    fusion   what could be one operator, such as "batch_norm + relu"
    module   the name of the module where it begins; "" outside of any
    tensor   type and shape of what it computes
    reason   why it is left to Inductor; "" where gradkern computes it
    """

    fusion: str
    module: str
    tensor: str
    reason: str = ""


_found: list[Finding] = []
_graphs: list[int] = [0]  # compiled in this process
_changing = locks.lock()


def add(finding: Finding) -> None:
    with _changing:
        if len(_found) < _MOST:
            _found.append(finding)


def findings() -> tuple[Finding, ...]:
    """Of every graph that was compiled in this process, since `clear`; of one that was compiled again, again."""
    return tuple(_found)


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
