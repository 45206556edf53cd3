"""The plans whose kernels no search has chosen yet, and whether searches are deferred now."""

from __future__ import annotations

from dataclasses import replace

from gradkern.call import Call
from gradkern.dispatch.prepared import Prepared
from gradkern.system.bounded import make_room


class PendingSearches:
    """At most `bound` plans. Beyond that the oldest are forgotten: they keep the kernels they have.

    No lock guards them, for the reason that PlanCache has none.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._plans: dict[int, Prepared] = {}
        self._deferring = 0

    def defer(self) -> None:
        """Defer every search from here on, whatever the policy says, until as many calls of `resume`."""
        self._deferring += 1

    def resume(self) -> None:
        self._deferring -= 1

    def with_search_deferred(self, call: Call) -> Call:
        """The call, and while searches are deferred, with a policy that defers its own."""
        if self._deferring and call.policy.search in ("exhaustive", "heuristic"):
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
        """Those whose search is pending, oldest first."""
        return list(self._plans.values())


pending = PendingSearches(bound=1024)
