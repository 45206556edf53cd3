"""Accepts results of candidates from independent origins that agree.

Libraries have returned wrong gradients (cuDNN on Hopper: pytorch issues 150700 and 163539), so no result is accepted
on its own. Every result is compared with earlier ones; results that agree form a group. If there are several groups,
each is compared with elements of a float64 reference, if the task has one: groups within the bound of their type are
accepted, else the nearest. Without a reference the group with the most origins is accepted, if it has at least two; a
single origin only if no other origin had a result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf, isnan
from typing import NamedTuple, Protocol

from gradkern.search.candidate import Candidate

_ROUNDING = {"float64": 1e-13, "float32": 5e-6, "float16": 3e-4, "bfloat16": 2.2e-3}
"""The bound of ||result - exact|| / ||exact|| that gradkern guarantees for each type."""
CHECKED = frozenset(_ROUNDING)
"""The types whose results can be compared."""
_TF32 = 1e-3
_ACCUMULATION = {"float64": 1e-13, "float32": 5e-6, "float16": 5e-6, "bfloat16": 5e-6}
"""The part of the bound besides the rounding of the output."""
_MANY_TERMS = 1e6  # for more terms the bound grows with the root of their number
_SINGLE = 64
"""Bound of a single element's error beyond one step of its type, in units of the norm's bound times the root mean
square.
"""
_MOST_GROUPS = 8  # each holds a copy of the outputs
_WRONG = 0.01  # at this relative error a result is wrong, not inaccurate


class Difference(NamedTuple):
    """How one output differs from another: ||a - b|| / ||b||, and the largest |a - b| beyond one step of the type (its
    epsilon times the larger), over the root mean square of b.
    """

    norm: float
    element: float


class Rejection(NamedTuple):
    """Why a candidate's result is not accepted. wrong=False: it is only not accurate enough."""

    reason: str
    wrong: bool


class Outputs(Protocol):
    """The outputs of the last run, and copies of earlier ones."""

    def complete(self) -> bool:
        """Whether every element was written, nothing else was, and none is NaN."""
        ...

    def copy(self) -> int:
        """Keep a copy; returns its number."""
        ...

    def compare(self, copy: int) -> tuple[Difference, ...]:
        """Compare each output with its copy."""
        ...

    def errors(self, copy: int) -> tuple[float, ...] | None:
        """The relative error of the copy of each output, ||copy - reference|| / ||reference||, over the elements of the
        float64 reference; None without a reference.
        """
        ...


@dataclass(slots=True)
class _Group:
    """Candidates whose results agree with that of the first of them.

    copy       the outputs of the first
    tf32       one of them multiplies in TF32: the representative may then be as inexact
    distances  from other candidates' results to the first's, if they were compared
    errors     of the first's outputs relative to the reference, once computed
    """

    copy: int
    tf32: bool
    origins: set[str] = field(default_factory=set[str])
    members: list[str] = field(default_factory=list[str])
    distances: dict[str, float] = field(default_factory=dict[str, float])
    errors: tuple[float, ...] | None = None


class CrossCheck:
    """Collects the results of candidates, all on the same data."""

    def __init__(self, outputs: Outputs, dtypes: Iterable[str], terms: int) -> None:
        self._outputs = outputs
        self._dtypes = tuple(dtypes)
        self._growth = max(1.0, (terms / _MANY_TERMS) ** 0.5)
        self._groups: list[_Group] = []
        self._compared = 0  # groups whose errors are known, or cannot be known
        self._incomplete: list[str] = []

    def add(self, candidate: Candidate) -> bool:
        """Compare the candidate's current outputs with earlier results; returns whether they may be right."""
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
        """Whether at least two origins agree on a result, more than on any other, or the reference confirms it."""
        return any(len(group.origins) > 1 or group.errors is not None for group in self._accepted())

    @property
    def accepted(self) -> frozenset[str]:
        """The names of the candidates whose result is accepted."""
        return frozenset(name for group in self._accepted() for name in group.members)

    def rejections(self) -> dict[str, Rejection]:
        """Reasons by the names of candidates whose result is not accepted: incomplete results, and, once one result is
        accepted, all others."""
        incomplete = Rejection("it left elements unwritten, wrote others', or made NaN of numbers", True)
        found = dict.fromkeys(self._incomplete, incomplete)
        groups = self._accepted()
        if not groups:
            return found
        accepted = self.accepted
        group, *_ = groups
        outside = {name: distance for name, distance in group.distances.items() if name not in accepted}
        for other in self._groups:
            if other not in groups:  # earlier groups were compared with the accepted group's first result when it came
                distance = other.distances.get(group.members[0], inf)
                outside |= {name: group.distances.get(name, distance) for name in other.members}
        agreed = _listed(sorted(group.origins))
        for name, distance in outside.items():
            text = f"its result is {distance:.1e} away from the one that {agreed} agree on"
            found[name] = Rejection(text, not distance < _WRONG)  # NaN counts as wrong
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
        """Compute the errors of every group; returns whether that was possible."""
        for group in self._groups[self._compared :]:
            group.errors = self._outputs.errors(group.copy)
        self._compared = len(self._groups)
        return all(group.errors is not None for group in self._groups)

    def _share_of_bound(self, group: _Group) -> float:
        """The largest of a group's errors, relative to the bound of the output's type."""
        loose = _TF32 if group.tf32 else 0.0
        bounds = (max(loose, _ROUNDING[dtype]) * self._growth for dtype in self._dtypes)
        shares = [error / bound for error, bound in zip(group.errors or (), bounds, strict=True)]
        return inf if any(map(isnan, shares)) else max(shares)


def _listed(names: list[str]) -> str:
    shown = names if len(names) <= 4 else [*names[:3], f"{len(names) - 3} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
