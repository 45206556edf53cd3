"""Whose result may be believed: results of independent origins that agree.

Libraries have returned wrong gradients (cuDNN on Hopper: pytorch issues 150700 and 163539), so no result is believed
on its own. Every result is compared with those before it; those that agree form a camp. The camp with the most origins
is believed, if it has two at least; a single origin only where nobody else had a result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from gradkern.search.candidate import Candidate

__all__ = ["Difference", "Jury", "Witness"]

_ROUNDING = {"float64": 1e-13, "float32": 5e-6, "float16": 3e-4, "bfloat16": 2.2e-3}
"""How far a result may be from the truth, ||result - truth|| / ||truth||: what gradkern promises for each type."""
_TF32 = 1e-3
_ADDING = {"float64": 1e-13, "float32": 5e-6, "float16": 5e-6, "bfloat16": 5e-6}
"""The part of it that does not come from the rounding of the output."""
_MANY_TERMS = 1e6  # from here on the errors of a sum grow as the root of its length
_SINGLE = 64
"""How many times the norm's share a single element may be off, in root mean squares, beyond one step of its type."""
_MOST_CAMPS = 4  # each keeps a copy of the outputs


class Difference(NamedTuple):
    """How one output differs from another: ||a - b|| / ||b||, and the largest |a - b| beyond one step of the type (its
    epsilon times the larger), over the root mean square of b.
    """

    norm: float
    element: float


class Witness(Protocol):
    """Shows the outputs of the last run."""

    def whole(self) -> bool:
        """Whether every element was written, nothing else was, and none is NaN."""
        ...

    def keep(self) -> int:
        """Keep a copy; its number."""
        ...

    def compare(self, kept: int) -> tuple[Difference, ...]:
        """Each output against its kept copy."""
        ...


@dataclass(slots=True)
class _Camp:
    kept: int
    tf32: bool
    origins: set[str] = field(default_factory=set)
    members: list[str] = field(default_factory=list)


class Jury:
    """Hears the result of one candidate after another, all on the same data."""

    def __init__(self, witness: Witness, dtypes: Iterable[str], terms: int) -> None:
        self._witness = witness
        self._dtypes = tuple(dtypes)
        self._growth = max(1.0, (terms / _MANY_TERMS) ** 0.5)
        self._camps: list[_Camp] = []
        self._wrong: dict[str, str] = {}

    def hear(self, candidate: Candidate) -> bool:
        """Look at what the candidate wrote just now; whether it may be right."""
        if not self._witness.whole():
            self._wrong[candidate.name] = "it left elements unwritten, wrote others', or made NaN of numbers"
            return False
        tf32 = "tf32" in candidate.notes
        camp = next((each for each in self._camps if self._agree(each, tf32)), None)
        if camp is None:
            if len(self._camps) == _MOST_CAMPS:
                self._wrong[candidate.name] = "its result is like no other's"
                return False
            camp = _Camp(self._witness.keep(), tf32)
            self._camps.append(camp)
        camp.origins.add(candidate.origin)
        camp.members.append(candidate.name)
        return True

    def _agree(self, camp: _Camp, tf32: bool) -> bool:
        loose = _TF32 if tf32 or camp.tf32 else 0.0
        return all(
            difference.norm <= max(loose, _ROUNDING[dtype]) * self._growth
            and difference.element <= max(loose, _ADDING[dtype]) * self._growth * _SINGLE
            for dtype, difference in zip(self._dtypes, self._witness.compare(camp.kept), strict=True)
        )

    @property
    def agreed(self) -> bool:
        """Whether two origins at least agree on a result, and more than on any other."""
        camp = self._believed()
        return camp is not None and len(camp.origins) > 1

    @property
    def believed(self) -> frozenset[str]:
        """The names of the candidates whose result is believed."""
        camp = self._believed()
        return frozenset(camp.members) if camp else frozenset()

    def wrong(self) -> dict[str, str]:
        """The candidates whose result is wrong, and what it is; those of other camps once one is believed."""
        camp = self._believed()
        odd = {}
        if camp is not None:
            text = f"its result differs from the one that {_several(sorted(camp.origins))} agree on"
            odd = {name: text for each in self._camps if each is not camp for name in each.members}
        return {**self._wrong, **odd}

    def camps(self) -> str:
        """Who agrees with whom, in words."""
        return "; ".join(_several(sorted(each.origins)) for each in self._camps) or "nobody"

    def _believed(self) -> _Camp | None:
        ranked = sorted(self._camps, key=lambda each: -len(each.origins))
        if len(ranked) > 1 and len(ranked[1].origins) == len(ranked[0].origins):
            return None
        return ranked[0] if ranked else None


def _several(names: list[str]) -> str:
    shown = names if len(names) <= 4 else [*names[:3], f"{len(names) - 3} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
