"""Entries by key and guard, bounded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from gradkern.dispatch.recogniser import Recogniser


def found(table: Recogniser[str, str], key: object) -> list[tuple[str, str]]:
    return list(table.rows(key, ()))


def test_entries_of_a_key_come_oldest_first_and_the_oldest_goes() -> None:
    table: Recogniser[str, str] = Recogniser(bound=4, alike=2)
    assert table.add("key", "a", "A") == []
    assert table.add("key", "b", "B") == []
    assert table.add("key", "c", "C") == ["A"]
    assert found(table, "key") == [("b", "B"), ("c", "C")]
    assert found(table, "other") == []


def test_what_is_of_no_use_makes_room_first() -> None:
    dead: set[str] = set()
    table: Recogniser[str, str] = Recogniser(4, 2, lives=lambda entry: entry not in dead)
    table.add("key", "a", "A")
    table.add("key", "b", "B")
    dead.add("B")
    assert table.add("key", "c", "C") == []
    assert table.entries() == ["A", "C"]


def test_the_oldest_key_goes_unless_it_is_kept() -> None:
    table: Recogniser[str, str] = Recogniser(2, 2, keeps=lambda entry: entry == "kept")
    table.add(1, "a", "kept")
    table.add(2, "a", "A")
    assert table.add(3, "a", "B") == ["A"]
    assert table.entries() == ["kept", "B"]
    every: Recogniser[str, str] = Recogniser(1, 2, keeps=lambda entry: True)
    every.add(1, "a", "A")
    assert every.add(2, "a", "B") == ["A"]


def test_rows_is_of_the_table_after_it_was_cleared() -> None:
    table: Recogniser[str, str] = Recogniser(2, 2)
    rows = table.rows
    table.add(1, "a", "A")
    table.clear()
    assert rows(1, ()) == ()
    table.add(1, "b", "B")
    assert rows(1, ()) == (("b", "B"),)


def test_threads_that_add_at_once_keep_the_bounds() -> None:
    table: Recogniser[int, int] = Recogniser(8, 4)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: table.add(n % 23, n, n), range(4000)))
    assert len(table.entries()) <= 8 * 4 + 8 * 4  # of threads that pass a bound at once
