"""Work in a thread of its own: what it returns and raises comes back, and its caller's frames are not held."""

from __future__ import annotations

import gc
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from gradkern.system.importing import load
from gradkern.system.own_thread import in_own_thread, without_collection


class Array:
    """What a caller holds."""


def leaves_a_cycle() -> str:
    """As Numba's compiler does."""
    cycle: list[Any] = []
    try:
        raise ValueError("no type")
    except ValueError as error:
        cycle += [cycle, error]
    return "done"


def called(function: Callable[[], Any]) -> tuple[Any, weakref.ref[Array]]:
    array = Array()
    return function(), weakref.ref(array)


@pytest.fixture(autouse=True)
def collector() -> Any:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_frames_of_the_caller_end_with_their_calls() -> None:
    result, array = called(leaves_a_cycle)
    assert result == "done"
    assert array() is not None  # so the cycle is one
    result, array = called(lambda: in_own_thread(leaves_a_cycle))
    assert result == "done"
    assert array() is None


def test_what_is_raised_is_raised_here() -> None:
    def refuse() -> None:
        raise KeyError("x")

    def caught() -> str:
        try:
            in_own_thread(refuse)
        except KeyError as error:
            return traceback.extract_tb(error.__traceback__)[-1].name
        return ""

    result, array = called(caught)
    assert result == "refuse"
    assert array() is None


def test_it_is_another_thread_if_there_can_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_own_thread(threading.get_ident) != threading.get_ident()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert in_own_thread(threading.get_ident) == threading.get_ident()


def test_what_is_half_imported_is_given_to_nobody_else(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finalizer that runs in the middle of an import may ask for that module."""
    (tmp_path / "half_imported.py").write_text(
        "from gradkern.system.importing import load\n"
        "assert not hasattr(load('half_imported'), 'whole')\n"
        "import threading, time\n"
        "seen = []\n"
        "thread = threading.Thread(target=lambda: seen.append(hasattr(load('half_imported'), 'whole')))\n"
        "thread.start()\n"
        "time.sleep(0.2)\n"
        "whole = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module: Any = load("half_imported")
    module.thread.join()
    assert module.seen == [True]


@pytest.mark.parametrize("was_on", [True, False])
def test_garbage_is_collected_as_before(was_on: bool) -> None:
    if was_on:
        gc.enable()
    with without_collection():
        assert not gc.isenabled()
    assert gc.isenabled() == was_on
