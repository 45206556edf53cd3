"""Deferred searches: plans that were made without one are remembered until `tune` makes it."""

from __future__ import annotations

from types import TracebackType

from gradkern.dispatch import planner
from gradkern.dispatch.plan_cache import pending
from gradkern.dispatch.prepared import Prepared
from gradkern.errors import GradkernError
from gradkern.system import locks
from gradkern.system.notice import warn
from gradkern.system.own_thread import turn
from gradkern.system.progress import bar

_one_at_a_time = locks.reentrant_lock()


def tune() -> Tuning:
    """Make every search that calls have deferred, and give their plans the kernels that it finds.

    Under `Policy(search="background")` a call never waits for a search: it is recorded as pending. tune() makes these
    searches one after another, with a bar that shows the time left, and replaces the kernels of cached and of prepared
    plans; the results are stored for other processes. If several processes tune the same, one makes each search and the
    others wait for its result. A search first waits until the device is idle. A graph that was captured before keeps
    the kernels it has.

    As a context it defers all searches of calls within, in every thread, whatever the policy, and makes them at the
    end: a training step runs at once, and its searches run when it no longer needs memory and device.

    >>> with gradkern.tune():
    ...     step()

    Returns a Tuning. A search that fails leaves its plan as it is, with a RuntimeWarning.
    """
    return Tuning(_tune())


class Tuning:
    """What `tune` returns. plans: how many plans it has searched for."""

    def __init__(self, plans: int) -> None:
        self.plans = plans

    def __enter__(self) -> Tuning:
        pending.defer()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        pending.resume()
        if error is None:
            self.plans += _tune()

    def __repr__(self) -> str:
        return f"<gradkern tuning: {self.plans} plans>"


def _tune() -> int:
    """Search for all pending plans. Returns how many there were."""
    found = 0
    with turn(_one_at_a_time):
        planner.compile_ahead(map(planner.compile_job, pending.plans()))
        for plan in bar("tuning", pending.plans(), _title):
            try:
                planner.search(plan)
                found += 1
            except GradkernError as error:
                warn(f"gradkern: {plan.operator} is not tuned: {error}", stacklevel=3)
            pending.discard(plan)
    return found


def _title(plan: Prepared) -> str:
    sizes = ("x".join(map(str, each.shape)) for each in list(plan.call.inputs.values())[:3])
    return f"{plan.operator} {' '.join(sizes)}"
