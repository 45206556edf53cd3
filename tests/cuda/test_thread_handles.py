"""Handles of NVIDIA's libraries: who has which, and that a capture may be under way when one is made."""

from __future__ import annotations

import itertools
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from gradkern.cuda import device
from gradkern.cuda.thread_handles import ThreadHandles


class Driver:
    """A driver that knows the mode of each thread's captures."""

    CUresult = device.driver.CUresult
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed")

    def __init__(self) -> None:
        self._thread = threading.local()

    @property
    def mode(self) -> str:
        return getattr(self._thread, "mode", "global")

    def cuThreadExchangeStreamCaptureMode(self, mode: str) -> tuple[Any, str]:
        before, self._thread.mode = self.mode, mode
        return self.CUresult.CUDA_SUCCESS, before


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setattr(device, "driver", driver)
    return driver


def in_a_thread(handles: ThreadHandles[int], *indices: int) -> list[int]:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend(handles.of(index) for index in indices))
    thread.start()
    thread.join()
    return found


def test_every_thread_and_device_has_its_own_and_those_of_a_thread_that_has_ended_serve_the_next(
    driver: Driver,
) -> None:
    handles = ThreadHandles(itertools.count().__next__)
    mine = handles.of(0)
    there = in_a_thread(handles, 0, 1, 0)
    assert there[0] == there[2]
    assert len({mine, *there}) == 3
    assert handles.of(0) == mine
    assert in_a_thread(handles, 1, 0) == [there[1], there[0]]
    both = {handles.of(1), in_a_thread(handles, 1)[0]}
    assert there[1] in both
    assert len(both) == 2


def test_a_handle_is_made_though_a_capture_forbids_it_and_what_it_forbids_holds_again_after(driver: Driver) -> None:
    handles = ThreadHandles(lambda: driver.mode)
    assert handles.of(0) == "relaxed"
    assert driver.mode == "global"


def test_a_handle_that_cannot_be_made_is_asked_for_again(driver: Driver) -> None:
    tries = iter([False, True])

    def make() -> int:
        if not next(tries):
            raise MemoryError
        return 7

    handles = ThreadHandles(make)
    with pytest.raises(MemoryError):
        handles.of(0)
    assert driver.mode == "global"
    assert handles.of(0) == 7
