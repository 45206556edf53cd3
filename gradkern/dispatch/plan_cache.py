"""The plans that were made: by signature, by calls that are recognised without one, and those that wait for a search.

The caches are bounded and safe for threads. Their keys hold all that a plan depends on:

    signature   operator, outputs wanted, attributes, of every input and `out` array (type, shape, strides, alignment),
                inputs that are one array, device, provider, policy
    shortcut    the same without the arrays, for calls on plain tensors of a GPU: PyTorch's own guard compares those
                with the tensors of an earlier call, in less time than reading their attributes takes
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from itertools import count
from typing import Any, Generic, NamedTuple, TypeVar

from gradkern.arrays.kind import Kind
from gradkern.arrays.torch_guards import Guard, guard_of
from gradkern.call import HOST, Call
from gradkern.contract.request import Request
from gradkern.dispatch.operands import Operands, out_names
from gradkern.dispatch.prepared import Prepared
from gradkern.dispatch.recogniser import Recogniser
from gradkern.policy import DEFAULT, blocks, effective, of_this_thread
from gradkern.system import locks
from gradkern.system.bounded import make_room

Entry = TypeVar("Entry")


class Statistics(NamedTuple):
    """How often a plan was found, how often one had to be made, how many are kept, and how many at most."""

    hits: int
    misses: int
    size: int
    bound: int


class Slot(Generic[Entry]):
    """An entry and when it was last used. Recording that takes a hit less time than moving an entry in an ordered
    dictionary.

    The entry is None once the cache has dropped it.
    """

    __slots__ = ("entry", "used")

    def __init__(self, entry: Entry, used: int) -> None:
        self.entry: Entry | None = entry
        self.used = used


class PlanCache(Generic[Entry]):
    """A mapping from signature to plan that holds at most `bound` of them; the least recently used leaves first.

    No lock guards it: a signal handler, or a finalizer that the garbage collector runs, may call gradkern in the middle
    of any of these methods, and would wait for its own thread. Each of them is right whatever others do between its
    steps. A hit draws a tick. It says when the entry was last used and, less the ticks that were not drawn by hits, how
    many hits there were.

    `planning` is the lock for planning, held by one thread at a time: a search that times kernels must have the device
    to itself. A handler or finalizer that runs in this thread meanwhile may plan, too.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._slots: dict[Hashable, Slot[Entry]] = {}
        self._ticks = count()
        self._other_ticks = self._misses = 0
        self.planning = locks.wait_before_fork(locks.reentrant_lock())

    def get(self, signature: Hashable) -> Entry | None:
        """The plan of a signature, counted as a hit, or None, counted as a miss."""
        slot = self._slots.get(signature)
        if slot is not None:
            entry = slot.entry
            if entry is not None:
                slot.used = next(self._ticks)
                return entry
        self._misses += 1
        return None

    def use(self, slot: Slot[Entry]) -> Entry | None:
        """The plan in a slot, counted as a hit; None, not counted, once the cache has dropped it."""
        entry = slot.entry
        if entry is not None:
            slot.used = next(self._ticks)
        return entry

    def slot(self, signature: Hashable) -> Slot[Entry] | None:
        """Where a signature's plan is, to `use` it without the signature. Not counted."""
        return self._slots.get(signature)

    def peek(self, signature: Hashable) -> Entry | None:
        """The plan of a signature, not counted."""
        slot = self._slots.get(signature)
        return None if slot is None else slot.entry

    def put(self, signature: Hashable, entry: Entry) -> None:
        """Hold a plan."""
        self._drop(signature)
        self._slots[signature] = Slot(entry, self._tick())
        surplus = len(self._slots) - self._bound
        if surplus > 0:
            for oldest in sorted(self._slots, key=self._used)[:surplus]:
                self._drop(oldest)

    def clear(self) -> None:
        """Drop every plan and set the statistics to zero."""
        for signature in list(self._slots):
            self._drop(signature)
        self._other_ticks = self._tick() + 1
        self._misses = 0

    def entries(self) -> list[Entry]:
        """The plans, those used longest ago first."""
        slots = sorted(self._slots.values(), key=lambda each: each.used)
        return [each.entry for each in slots if each.entry is not None]

    def statistics(self) -> Statistics:
        """Hits, misses, size and bound."""
        hits = self._tick() - self._other_ticks + 1
        return Statistics(hits, self._misses, len(self._slots), self._bound)

    def __repr__(self) -> str:
        hits, misses, size, bound = self.statistics()
        return f"<gradkern plan cache: {size} of at most {bound} plans, {hits} hits, {misses} misses>"

    def _drop(self, signature: Hashable) -> None:
        slot = self._slots.pop(signature, None)
        if slot is not None:
            slot.entry = None

    def _used(self, signature: Hashable) -> int:
        slot = self._slots.get(signature)
        return -1 if slot is None else slot.used

    def _tick(self) -> int:
        """A tick that is no hit's."""
        self._other_ticks += 1
        return next(self._ticks)


Shortcut = tuple["Slot[Prepared]", Kind]
"""Where the plan of calls is, and the kind of their tensors."""
GuardedPlan = tuple[Guard, Shortcut]
"""A guard that recognises tensors, and the plan of calls on them."""


class Shortcuts:
    """Earlier calls on plain tensors of a GPU, by all their arguments but the tensors.

    tensor   the class of those tensors; None before the first
    """

    def __init__(self, bound: int, alike: int) -> None:
        self._known: Recogniser[Guard, Shortcut] = Recogniser(
            bound, alike, lives=lambda each: each[0].entry is not None
        )
        self.tensor: type | None = None

    def find(self, request: Request) -> tuple[Prepared, tuple[int, ...], Kind, tuple[int, ...]] | None:
        """The plan for these tensors, their addresses, their kind and the addresses of the tensors in `out`; None where
        no call like this one is known, or where an `out` array overlaps another.
        """
        key, tensors, inputs, places = _key(request)
        for guard, (slot, kind) in self._known.rows(key, ()):
            addresses = guard.addresses(tensors)
            plan = slot.entry
            if addresses is None or plan is None:
                continue
            buffers, out_buffers = addresses, ()
            if request.out:
                buffers, out_buffers = addresses[:inputs], tuple([addresses[place] for place in places])
                if not plan.disjoint(buffers, out_buffers):
                    return None
            plan_cache.use(slot)
            return plan, buffers, kind, out_buffers
        return None

    def known(self, request: Request) -> tuple[GuardedPlan, tuple[int, ...]] | None:
        """What recognises calls like this one, for a caller that remembers it: a guard of the tensors that are inputs
        with those in `out` that are none behind them; and the place of each of `out` among these.
        """
        key, tensors, _, places = _key(request)
        for row in self._known.rows(key, ()):
            if row[1][0].entry is not None and row[0].addresses(tensors) is not None:
                return row, places
        return None

    def add(self, request: Request, operands: Operands, slot: Slot[Prepared] | None) -> None:
        """Let the next call like this one be found."""
        keys, _, kind, names, _, in_place = operands
        if kind.device == HOST or slot is None or not all(each is None or each[3] == 16 for each in keys):
            return
        binder, arrays = request.binder, request.arrays
        key, tensors, inputs, places = _key(request)
        sources = [source for source, each in zip(binder.inputs, arrays, strict=True) if each is not None]
        same = [(sources[place], name) for name, place in zip(names, places, strict=True) if place < inputs]
        if in_place != frozenset(same):  # an array in place of another tensor of the same memory
            return
        shown = [each for each in keys[: len(arrays)] if each is not None]
        shown += [each for each, place in zip(keys[len(arrays) :], places, strict=True) if place >= inputs]
        guard = guard_of(tensors, tuple(shown))
        if guard is not None:
            self._known.add(key, guard, (slot, kind))
            self.tensor = type(tensors[0])


def _key(request: Request) -> tuple[Hashable, tuple[Any, ...], int, tuple[int, ...]]:
    """The key of a call; the tensors for a guard, the number of inputs among them, and the place among them of each of
    `out`.
    """
    binder, arrays, _, attributes, wanted, out, provider, policy, _ = request
    policy = of_this_thread() if policy is None and not blocks else effective(policy)
    policy_key = None if policy is DEFAULT else policy  # a policy's hash is worked out in Python
    given, missing = binder.given(arrays)
    tensors, out_key, places = given, None, ()
    if out:
        tensors, places = _with_written(given, [out[name] for name in out_names(binder, out)])
        out_key = (*out, places)
    key = (binder.name, wanted, attributes, missing, out_key, provider, policy_key, given[0].shape)
    return key, tensors, len(given), places


def _with_written(given: tuple[Any, ...], written: list[Any]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """The inputs, then the arrays in `out` that are not inputs; and the place among all these of each of `out`.

    A guard takes no tensor twice.
    """
    known = {id(each): place for place, each in enumerate(given)}
    places = tuple([known.setdefault(id(each), len(known)) for each in written])
    if len(known) == len(given):
        return given, places
    return (*given, *[each for each, place in zip(written, places, strict=True) if place >= len(given)]), places


plan_cache: PlanCache[Prepared] = PlanCache(bound=1024)
shortcuts = Shortcuts(bound=1024, alike=16)


def signature_of(request: Request, operands: Operands) -> Hashable:
    """All that the plan of a call depends on. Raises PolicyError for a policy that is none."""
    binder, _, _, attributes, wanted, _, provider, policy, _ = request
    policy = of_this_thread() if policy is None and not blocks else effective(policy)
    keys, _, kind, names, _, in_place = operands
    policy_key = None if policy is DEFAULT else policy  # a policy's hash is worked out in Python
    return binder.name, wanted, attributes, keys, names, in_place, kind.device, provider, policy_key


class PendingSearches:
    """At most `bound` plans whose kernels no search has chosen yet, and whether searches are deferred now. Beyond the
    bound the oldest are forgotten: they keep the kernels they have.

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
