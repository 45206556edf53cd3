"""Scratch memory on a GPU: shared by launches that run one after another, never by launches that may overlap."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.capture import Capture

pytestmark = pytest.mark.gpu


@pytest.fixture
def stream() -> Iterator[Any]:
    from helpers.driver import driver

    from gradkern.cuda.device import activate, check, get_device

    with activate(get_device(0)):
        made = check(driver.cuStreamCreate(1), "creating a stream")
        yield made
        driver.cuStreamSynchronize(made)
        driver.cuStreamDestroy(made)


def test_a_stream_keeps_its_memory_and_shares_it_with_no_other(stream: Any) -> None:
    from gradkern.cuda.device import get_device
    from gradkern.cuda.scratch import scratch

    mine = scratch(get_device(0), int(stream), 1000)
    assert scratch(get_device(0), int(stream), 500) == mine
    others = [scratch(get_device(0), other, 1000) for other in (0, 2)]
    assert len({mine, *others}) == 3
    larger = scratch(get_device(0), int(stream), 1 << 22)
    assert not set(larger) & set(mine)


def test_the_default_streams_of_two_threads_share_nothing() -> None:
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier

    from gradkern.cuda.device import get_device
    from gradkern.cuda.scratch import scratch

    both = Barrier(2)

    def ask(_: int) -> tuple[int, int]:
        both.wait()
        return scratch(get_device(0), 2, 1000)

    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(ask, range(2))
    assert not set(one) & set(other)


def test_a_capture_has_memory_of_its_own_until_its_graph_is_destroyed(stream: Any) -> None:
    from helpers.driver import driver

    from gradkern.cuda.device import check, get_device
    from gradkern.cuda.scratch import scratch

    def ask(size: int = 1000) -> tuple[int, int]:
        return scratch(get_device(0), int(stream), size)

    with Capture(stream) as first:
        in_first = ask()
        assert ask() == in_first
        larger = ask(1 << 22)
    with Capture(stream) as second:
        in_second = ask()
    assert len({*in_first, *larger, *in_second, *ask()}) == 8
    executable = check(driver.cuGraphInstantiate(first.graph, 0), "instantiating")
    check(driver.cuGraphDestroy(first.graph), "destroying a graph")
    time.sleep(0.1)
    with Capture(stream) as third:
        assert not {*ask(), *ask(1 << 22)} & {*in_first, *larger}  # the executable graph still uses it
    check(driver.cuGraphExecDestroy(executable), "destroying a graph")
    end = time.monotonic() + 10
    captures, found = [second, third], None
    while time.monotonic() < end:  # CUDA destroys in its own time
        with Capture(stream) as again:
            found = ask(1 << 22)
        captures.append(again)
        if found == larger:
            break
        time.sleep(0.1)
    assert found == larger
    for each in captures:
        driver.cuGraphDestroy(each.graph)
