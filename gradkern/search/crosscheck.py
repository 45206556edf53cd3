"""Whose result may be believed: results of independent origins that agree.

Libraries have returned wrong gradients (cuDNN on Hopper: pytorch issues 150700 and 163539), so no result is believed
on its own. Every result is compared with those before it; those that agree form a camp. Where there are several camps,
each is compared with elements computed in float64, if the task can: those within the bound of their type are believed,
or else the nearest. If it cannot, the camp with the most origins is believed, if it has two at least; a single origin
only where nobody else had a result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf, isnan
from typing import NamedTuple, Protocol

from gradkern.search.candidate import Candidate

__all__ = ["Difference", "Jury", "Verdict", "Witness"]

_ROUNDING = {"float64": 1e-13, "float32": 5e-6, "float16": 3e-4, "bfloat16": 2.2e-3}
"""How far a result may be from the truth, ||result - truth|| / ||truth||: what gradkern promises for each type."""
_TF32 = 1e-3
_ADDING = {"float64": 1e-13, "float32": 5e-6, "float16": 5e-6, "bfloat16": 5e-6}
"""The part of it that does not come from the rounding of the output."""
_MANY_TERMS = 1e6  # from here on the errors of a sum grow as the root of its length
_SINGLE = 64
"""How many times the norm's share a single element may be off, in root mean squares, beyond one step of its type."""
_MOST_CAMPS = 8  # each keeps a copy of the outputs
_WRONG = 0.01  # so far away, a result is not inaccurate but wrong


class Difference(NamedTuple):
    """How one output differs from another: ||a - b|| / ||b||, and the largest |a - b| beyond one step of the type (its
    epsilon times the larger), over the root mean square of b.
    """

    norm: float
    element: float


class Verdict(NamedTuple):
    """Why a candidate's result is not believed. Not wrong means that it is only less accurate than it must be."""

    reason: str
    wrong: bool


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

    def errors(self, kept: int) -> tuple[float, ...] | None:
        """How far the kept copy of each output is from float64 where that was computed: ||copy - truth|| / ||truth||;
        None where it cannot be.
        """
        ...


@dataclass(slots=True)
class _Camp:
    """Those who agree with the first of them, and how far those outside who were compared with it are from it.

    errors: of the first's outputs from float64, once they were asked for.
    """

    kept: int
    tf32: bool
    origins: set[str] = field(default_factory=set)
    members: list[str] = field(default_factory=list)
    outside: dict[str, float] = field(default_factory=dict)
    errors: tuple[float, ...] | None = None


class Jury:
    """Hears the result of one candidate after another, all on the same data."""

    def __init__(self, witness: Witness, dtypes: Iterable[str], terms: int) -> None:
        self._witness = witness
        self._dtypes = tuple(dtypes)
        self._growth = max(1.0, (terms / _MANY_TERMS) ** 0.5)
        self._camps: list[_Camp] = []
        self._asked = 0  # of how many camps the errors are known, or cannot be
        self._fragments: list[str] = []

    def hear(self, candidate: Candidate) -> bool:
        """Look at what the candidate wrote just now; whether it may be right."""
        name, tf32 = candidate.name, "tf32" in candidate.notes
        if not self._witness.whole():
            self._fragments.append(name)
            return False
        joined = None
        for camp in self._camps:
            differences = self._witness.compare(camp.kept)
            if joined is None and self._agree(differences, tf32 or camp.tf32):
                joined = camp
                camp.origins.add(candidate.origin)
                camp.members.append(name)
            else:
                camp.outside[name] = max(difference.norm for difference in differences)
        if joined is None and len(self._camps) < _MOST_CAMPS:
            joined = _Camp(self._witness.keep(), tf32, {candidate.origin}, [name])
            self._camps.append(joined)
        return joined is not None

    def _agree(self, differences: tuple[Difference, ...], tf32: bool) -> bool:
        loose = _TF32 if tf32 else 0.0
        return all(
            difference.norm <= max(loose, _ROUNDING[dtype]) * self._growth
            and difference.element <= max(loose, _ADDING[dtype]) * self._growth * _SINGLE
            for dtype, difference in zip(self._dtypes, differences, strict=True)
        )

    @property
    def agreed(self) -> bool:
        """Whether two origins at least agree on a result, and more than on any other, or float64 tells who is right."""
        camps = self._believed()
        return any(len(camp.origins) > 1 or camp.errors is not None for camp in camps)

    @property
    def believed(self) -> frozenset[str]:
        """The names of the candidates whose result is believed."""
        return frozenset(name for camp in self._believed() for name in camp.members)

    def verdicts(self) -> dict[str, Verdict]:
        """On those whose result is not believed: all who left fragments, and all others once one result is believed."""
        fragments = Verdict("it left elements unwritten, wrote others', or made NaN of numbers", True)
        found = dict.fromkeys(self._fragments, fragments)
        camps = self._believed()
        if not camps:
            return found
        believed = self.believed
        camp, *_ = camps
        outside = {name: apart for name, apart in camp.outside.items() if name not in believed}
        for other in self._camps:
            if other not in camps:  # whom the camp's first was compared with, where he came later
                apart = other.outside.get(camp.members[0], inf)
                outside |= {name: camp.outside.get(name, apart) for name in other.members}
        agreed = _several(sorted(camp.origins))
        for name, apart in outside.items():
            text = f"its result is {apart:.1e} away from the one that {agreed} agree on"
            found[name] = Verdict(text, not apart < _WRONG)  # NaN is far away
        for other in self._camps:
            if other not in camps and other.errors is not None:
                error = max(other.errors)
                text = f"its result is {error:.1e} away from float64"
                found |= dict.fromkeys(other.members, Verdict(text, not error < _WRONG))
        return found

    def camps(self) -> str:
        """Who agrees with whom, in words."""
        return "; ".join(_several(sorted(each.origins)) for each in self._camps) or "nobody"

    def _believed(self) -> list[_Camp]:
        if len(self._camps) > 1 and self._errors_are_known():
            near = [camp for camp in self._camps if self._beyond(camp) <= 1]
            nearest = min(self._camps, key=self._beyond)
            return near or ([nearest] if nearest.errors and max(nearest.errors) < _WRONG else [])
        ranked = sorted(self._camps, key=lambda each: -len(each.origins))
        if len(ranked) > 1 and len(ranked[1].origins) == len(ranked[0].origins):
            return []
        return ranked[:1]

    def _errors_are_known(self) -> bool:
        for camp in self._camps[self._asked :]:
            camp.errors = self._witness.errors(camp.kept)
        self._asked = len(self._camps)
        return all(camp.errors is not None for camp in self._camps)

    def _beyond(self, camp: _Camp) -> float:
        """The largest of its errors, as a share of what the output's type may have."""
        loose = _TF32 if camp.tf32 else 0.0
        bounds = (max(loose, _ROUNDING[dtype]) * self._growth for dtype in self._dtypes)
        shares = [error / bound for error, bound in zip(camp.errors or (), bounds, strict=True)]
        return inf if any(map(isnan, shares)) else max(shares)


def _several(names: list[str]) -> str:
    shown = names if len(names) <= 4 else [*names[:3], f"{len(names) - 3} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
