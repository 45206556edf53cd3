"""The plans whose kernels no search has chosen yet, and whether searches are put off now."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gradkern.call import Call
from gradkern.system.bounded import make_room

if TYPE_CHECKING:
    from gradkern.dispatch.prepared import Prepared

__all__ = ["Waiting", "waiting"]


class Waiting:
    """At most `bound` plans; beyond it the oldest are forgotten, and stay as they are.

    No lock guards them, for the reason that PlanCache has none.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._plans: dict[int, Prepared] = {}
        self._put_off = 0

    def put_off(self) -> None:
        """From here on every search is put off, whatever the policy says; until as many `resume`."""
        self._put_off += 1

    def resume(self) -> None:
        self._put_off -= 1

    def admitted(self, call: Call) -> Call:
        """The call with the policy by which it may be planned now."""
        if self._put_off and call.policy.search in ("exhaustive", "heuristic"):
            return replace(call, policy=replace(call.policy, search="background"))
        return call

    def add(self, plan: Prepared) -> None:
        """Remember a plan."""
        make_room(self._plans, self._bound)
        self._plans[id(plan)] = plan

    def discard(self, plan: Prepared) -> None:
        """Forget a plan."""
        self._plans.pop(id(plan), None)

    def plans(self) -> list[Prepared]:
        """Those that wait, in the order in which they were made."""
        return list(self._plans.values())


waiting = Waiting(bound=1024)
