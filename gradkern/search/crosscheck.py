"""Which results of candidates are accepted: those of independent origins that agree.

Libraries have returned wrong gradients (cuDNN on Hopper: pytorch issues 150700 and 163539), so no result is accepted
on its own. Every result is compared with those before it; those that agree config a group. Where there are several
groups, each is compared with elements of a float64 reference, if the task has one: groups within the bound of their
type are accepted, or else the nearest. Without a reference the group with the most origins is accepted, if it has two
at least; a single origin only where no other origin had a result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf, isnan
from typing import NamedTuple, Protocol

from gradkern.search.candidate import Candidate

__all__ = ["CrossCheck", "Difference", "Outputs", "Rejection"]

_ROUNDING = {"float64": 1e-13, "float32": 5e-6, "float16": 3e-4, "bfloat16": 2.2e-3}
"""How far a result may be from exact, ||result - exact|| / ||exact||: what gradkern promises for each type."""
_TF32 = 1e-3
_ACCUMULATION = {"float64": 1e-13, "float32": 5e-6, "float16": 5e-6, "bfloat16": 5e-6}
"""The part of it that does not come from the rounding of the output."""
_MANY_TERMS = 1e6  # from here on the errors of a sum grow as the root of its length
_SINGLE = 64
"""How many times the norm's share a single element may be off, in root mean squares, beyond one step of its type."""
_MOST_GROUPS = 8  # each holds a copy of the outputs
_WRONG = 0.01  # from this relative error on, a result is not inaccurate but wrong


class Difference(NamedTuple):
    """How one output differs from another: ||a - b|| / ||b||, and the largest |a - b| beyond one step of the type (its
    epsilon times the larger), over the root mean square of b.
    """

    norm: float
    element: float


class Rejection(NamedTuple):
    """Why a candidate's result is not accepted. Not wrong means that it is only less accurate than it must be."""

    reason: str
    wrong: bool


class Outputs(Protocol):
    """The outputs of the last run, and copies of earlier ones."""

    def complete(self) -> bool:
        """Whether every element was written, nothing else was, and none is NaN."""
        ...

    def copy(self) -> int:
        """Hold a copy; its number."""
        ...

    def compare(self, copy: int) -> tuple[Difference, ...]:
        """Each output against its copy."""
        ...

    def errors(self, copy: int) -> tuple[float, ...] | None:
        """The relative error of the copy of each output, ||copy - reference|| / ||reference||, from the elements of
        the float64 reference; None where there is none.
        """
        ...


@dataclass(slots=True)
class _Group:
    """Candidates whose results agree with that of the first of them.

    copy       the outputs of the first
    tf32       one of them multiplies in TF32: then that may be as inexact, too, which stands for all of them
    distances  of candidates outside: how far their results are from the first's, where they were compared
    errors     of the first's outputs from the reference, once they were asked for
    """

    copy: int
    tf32: bool
    origins: set[str] = field(default_factory=set[str])
    members: list[str] = field(default_factory=list[str])
    distances: dict[str, float] = field(default_factory=dict[str, float])
    errors: tuple[float, ...] | None = None


class CrossCheck:
    """Takes the result of one candidate after another, all on the same data."""

    def __init__(self, outputs: Outputs, dtypes: Iterable[str], terms: int) -> None:
        self._outputs = outputs
        self._dtypes = tuple(dtypes)
        self._growth = max(1.0, (terms / _MANY_TERMS) ** 0.5)
        self._groups: list[_Group] = []
        self._compared = 0  # groups whose errors are known, or cannot be
        self._incomplete: list[str] = []

    def add(self, candidate: Candidate) -> bool:
        """Compare what the candidate wrote just now with the results before; whether it may be right."""
        name, tf32 = candidate.name, "tf32" in candidate.notes
        if not self._outputs.complete():
            self._incomplete.append(name)
            return False
        joined = None
        for group in self._groups:
            differences = self._outputs.compare(group.copy)
            if joined is None and self._agree(differences, tf32 or group.tf32):
                joined = group
                group.tf32 |= tf32
                group.origins.add(candidate.origin)
                group.members.append(name)
            else:
                group.distances[name] = max(difference.norm for difference in differences)
        if joined is None and len(self._groups) < _MOST_GROUPS:
            joined = _Group(self._outputs.copy(), tf32, {candidate.origin}, [name])
            self._groups.append(joined)
        return joined is not None

    def _agree(self, differences: tuple[Difference, ...], tf32: bool) -> bool:
        loose = _TF32 if tf32 else 0.0
        return all(
            difference.norm <= max(loose, _ROUNDING[dtype]) * self._growth
            and difference.element <= max(loose, _ACCUMULATION[dtype]) * self._growth * _SINGLE
            for dtype, difference in zip(self._dtypes, differences, strict=True)
        )

    @property
    def confirmed(self) -> bool:
        """Whether two origins at least agree on a result, and more than on any other, or the reference confirms it."""
        return any(len(group.origins) > 1 or group.errors is not None for group in self._accepted())

    @property
    def accepted(self) -> frozenset[str]:
        """The names of the candidates whose result is accepted."""
        return frozenset(name for group in self._accepted() for name in group.members)

    def rejections(self) -> dict[str, Rejection]:
        """Of those whose result is not accepted: incomplete ones, and all others once one result is accepted."""
        incomplete = Rejection("it left elements unwritten, wrote others', or made NaN of numbers", True)
        found = dict.fromkeys(self._incomplete, incomplete)
        groups = self._accepted()
        if not groups:
            return found
        accepted = self.accepted
        group, *_ = groups
        outside = {name: distance for name, distance in group.distances.items() if name not in accepted}
        for other in self._groups:
            if other not in groups:  # earlier groups were compared with the accepted one's first when that came
                distance = other.distances.get(group.members[0], inf)
                outside |= {name: group.distances.get(name, distance) for name in other.members}
        agreed = _listed(sorted(group.origins))
        for name, distance in outside.items():
            text = f"its result is {distance:.1e} away from the one that {agreed} agree on"
            found[name] = Rejection(text, not distance < _WRONG)  # NaN is far away
        for other in self._groups:
            if other not in groups and other.errors is not None:
                error = max(other.errors)
                text = f"its result is {error:.1e} away from float64"
                found |= dict.fromkeys(other.members, Rejection(text, not error < _WRONG))
        return found

    def groups(self) -> str:
        """The origins that agree with one another, in words."""
        return "; ".join(_listed(sorted(each.origins)) for each in self._groups) or "nobody"

    def _accepted(self) -> list[_Group]:
        if len(self._groups) > 1 and self._compare_with_reference():
            near = [group for group in self._groups if self._share_of_bound(group) <= 1]
            nearest = min(self._groups, key=self._share_of_bound)
            return near or ([nearest] if nearest.errors and max(nearest.errors) < _WRONG else [])
        ranked = sorted(self._groups, key=lambda each: -len(each.origins))
        if len(ranked) > 1 and len(ranked[1].origins) == len(ranked[0].origins):
            return []
        return ranked[:1]

    def _compare_with_reference(self) -> bool:
        """Work out the errors of every group; whether they could be."""
        for group in self._groups[self._compared :]:
            group.errors = self._outputs.errors(group.copy)
        self._compared = len(self._groups)
        return all(group.errors is not None for group in self._groups)

    def _share_of_bound(self, group: _Group) -> float:
        """The largest of its errors, as a share of what the output's type may have."""
        loose = _TF32 if group.tf32 else 0.0
        bounds = (max(loose, _ROUNDING[dtype]) * self._growth for dtype in self._dtypes)
        shares = [error / bound for error, bound in zip(group.errors or (), bounds, strict=True)]
        return inf if any(map(isnan, shares)) else max(shares)


def _listed(names: list[str]) -> str:
    shown = names if len(names) <= 4 else [*names[:3], f"{len(names) - 3} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
