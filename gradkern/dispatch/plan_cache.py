"""Plans by signature: bounded, the least recently used leaves first, safe for threads."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import count
from threading import Lock, RLock
from typing import Generic, NamedTuple, TypeVar

__all__ = ["Kept", "PlanCache", "Statistics"]

Entry = TypeVar("Entry")


class Statistics(NamedTuple):
    """How often a plan was found and had to be made, how many are kept, and how many may be."""

    hits: int
    misses: int
    size: int
    bound: int


class Kept(Generic[Entry]):
    """An entry and when it was last used. To note that costs a hit less than to move it in an ordered dictionary.

    Once the cache has forgotten the entry, it is None.
    """

    __slots__ = ("entry", "used")

    def __init__(self, entry: Entry, used: int) -> None:
        self.entry: Entry | None = entry
        self.used = used


class PlanCache(Generic[Entry]):
    """A mapping from signature to plan that keeps at most `bound` of them.

    A hit takes no lock: it draws a tick, which is when the entry was last used and, less the ticks that were not drawn
    by hits, how many hits there were. `planning` is the lock under which plans are made: a search that times kernels
    must have the device to itself.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._entries: dict[Hashable, Kept[Entry]] = {}
        self._lock = Lock()
        self._ticks = count()
        self._other_ticks = self._misses = 0
        self.planning = RLock()

    def get(self, signature: Hashable) -> Entry | None:
        """The plan of a signature, counted as a hit, or None, counted as a miss."""
        kept = self._entries.get(signature)
        entry = None if kept is None else self.again(kept)
        if entry is None:
            with self._lock:
                self._misses += 1
        return entry

    def again(self, kept: Kept[Entry]) -> Entry | None:
        """The plan of what `kept` returned, counted as a hit; None, not counted, once the cache has forgotten it."""
        entry = kept.entry
        if entry is not None:
            kept.used = next(self._ticks)
        return entry

    def kept(self, signature: Hashable) -> Kept[Entry] | None:
        """Where a signature's plan is kept, to find it `again` without the signature. Not counted."""
        return self._entries.get(signature)

    def peek(self, signature: Hashable) -> Entry | None:
        """The plan of a signature, not counted."""
        kept = self._entries.get(signature)
        return None if kept is None else kept.entry

    def put(self, signature: Hashable, entry: Entry) -> None:
        """Keep a plan."""
        with self._lock:
            self._forget(signature)
            self._entries[signature] = Kept(entry, self._tick())
            while len(self._entries) > self._bound:
                self._forget(min(self._entries, key=lambda each: self._entries[each].used))

    def clear(self) -> None:
        """Forget every plan and set the statistics to zero."""
        with self._lock:
            for signature in list(self._entries):
                self._forget(signature)
            self._other_ticks = self._tick() + 1
            self._misses = 0

    def entries(self) -> list[Entry]:
        """The plans, those used longest ago first."""
        with self._lock:
            kept = sorted(self._entries.values(), key=lambda each: each.used)
            return [each.entry for each in kept if each.entry is not None]

    def statistics(self) -> Statistics:
        """Hits, misses, size and bound, all of one moment."""
        with self._lock:
            hits = self._tick() - self._other_ticks + 1
            return Statistics(hits, self._misses, len(self._entries), self._bound)

    def _forget(self, signature: Hashable) -> None:
        """Taken under the lock."""
        kept = self._entries.pop(signature, None)
        if kept is not None:
            kept.entry = None

    def _tick(self) -> int:
        """A tick that is no hit's. Taken under the lock."""
        self._other_ticks += 1
        return next(self._ticks)
