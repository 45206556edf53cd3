"""Functions of the same code and constants are made once, and no others are taken for one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradkern.cuda.device_code import alike

LIMIT = 3


def adder(amount: Any) -> Callable[[Any], Any]:
    def add(x: Any) -> Any:
        return x + amount

    return add


def bounded(_: object) -> Callable[[Any], Any]:
    def least(x: Any) -> Any:
        return min(x, LIMIT, alike._MOST)

    return least


def test_a_function_is_made_once_for_the_same_code_and_constants() -> None:
    make = alike.once_for_alike(lambda function: [function])
    one, other = make(adder((1, "a"))), make(adder((1, "a")))
    assert one is other
    assert one[0](()) == (1, "a")
    assert make(bounded(1)) is make(bounded(2))
    assert make(adder(one[0])) is make(adder(one[0]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2), (1, True), (1, 1.0), (1, np.int32(1)), (0.0, -0.0), (np.float32(0), np.float32(-0.0)),
        ((1, 0.0), (1, -0.0)), ((1,), (True,)), (adder(1), adder(1)), (frozenset("a"), frozenset("b")),
    ],
)  # fmt: skip
def test_other_constants_are_told_apart(one: Any, other: Any) -> None:
    make = alike.once_for_alike(lambda function: [function])
    assert make(adder(one)) is not make(adder(other))
    assert make(adder(one)) is make(adder(one))


def test_other_code_and_what_can_change_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    make = alike.once_for_alike(lambda function: [function])
    assert make(adder(1)) is not make(bounded(1))
    changing = [1]
    assert make(adder(changing)) is not make(adder(changing))
    assert make(len)[0] is len
    before = make(bounded(1))
    monkeypatch.setitem(globals(), "LIMIT", 5)
    assert make(bounded(1)) is not before
    monkeypatch.setitem(globals(), "LIMIT", 3)
    assert make(bounded(1)) is before
    monkeypatch.setattr(alike, "_MOST", 4)
    assert make(bounded(1)) is not before
