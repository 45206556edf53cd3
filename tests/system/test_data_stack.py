"""Calls from any depth of CPython's data stack, with room and without."""

import sys

import pytest
from helpers.page_faults import at_depths

from gradkern.system.data_stack import with_room

CALLS = 200


def inner(x: int) -> int:
    return x + 1


def outer(x: int) -> int:
    return inner(x)


def loop() -> int:
    """Calls of Python functions, as of a compiled graph's kernels."""
    return sum([outer(each) for each in range(CALLS)])


def test_calls_with_room_map_no_memory_each() -> None:
    assert max(at_depths(with_room(loop))) < 10


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="later versions of CPython keep a chunk")
def test_calls_without_do_at_some_depth() -> None:
    assert max(at_depths(loop)) >= CALLS


def test_arguments_results_and_errors_pass() -> None:
    def divide(x: int, y: int) -> float:
        return x / y

    assert with_room(divide)(1, 4) == 0.25
    with pytest.raises(ZeroDivisionError):
        with_room(divide)(1, 0)
