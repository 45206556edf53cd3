"""Calls like earlier ones: found by a key, and among those with that key by a guard that looks at the tensors.

A key holds all that decides how a call is computed but its tensors. A guard recognises tensors like those of one
earlier call. Reading the tensors into a key instead takes the host longer than all the rest of a warm call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Guard = TypeVar("Guard")
Entry = TypeVar("Entry")


class Recogniser(Generic[Guard, Entry]):
    """Entries by key and guard. At most `bound` keys, and `alike` entries for a key: the oldest are forgotten.

    lives   whether an entry is still of use; those that are not make room first
    keeps   whether an entry is forgotten only after all those that are not kept
    rows    `rows(key, ())`: guards and entries for a key, the oldest first. A method of the table's own: a warm call
            enters no function of Python for it

    No lock guards it, for the reason that PlanCache has none. Of two threads that add at once, one is forgotten.
    """

    __slots__ = ("_alike", "_keeps", "_lives", "_table", "bound", "rows")

    def __init__(
        self,
        bound: int,
        alike: int,
        lives: Callable[[Entry], bool] = lambda entry: True,
        keeps: Callable[[Entry], bool] = lambda entry: False,
    ) -> None:
        self.bound, self._alike, self._lives, self._keeps = bound, alike, lives, keeps
        self._table: dict[Hashable, tuple[tuple[Guard, Entry], ...]] = {}
        self.rows: Callable[[Hashable, tuple[()]], tuple[tuple[Guard, Entry], ...]] = self._table.get

    def add(self, key: Hashable, guard: Guard, entry: Entry) -> list[Entry]:
        """Let calls with this key, on tensors that the guard recognises, find the entry. Returns what is forgotten."""
        gone: list[Entry] = []
        if key not in self._table:
            while len(self._table) >= self.bound:
                gone += self._forget_one()
        rows = [row for row in self.rows(key, ()) if self._lives(row[1])]
        surplus = len(rows) + 1 - self._alike
        self._table[key] = (*rows[max(surplus, 0) :], (guard, entry))
        return gone + [each for _, each in rows[: max(surplus, 0)]]

    def entries(self) -> list[Entry]:
        """All entries, those with the oldest keys first."""
        return [entry for rows in list(self._table.values()) for _, entry in rows]

    def clear(self) -> None:
        self._table.clear()

    def _forget_one(self) -> list[Entry]:
        """Forget a key: the oldest without an entry that is kept, or the oldest of all."""
        keys = list(self._table)  # at once, where an iterator would fail if another thread changed the table
        free = (key for key in keys if not any(self._keeps(entry) for _, entry in self.rows(key, ())))
        oldest = next(free, next(iter(keys), None))
        return [entry for _, entry in self._table.pop(oldest, ())]
