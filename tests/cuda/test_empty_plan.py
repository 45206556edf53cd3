"""The plan of a call without elements, with a driver that notes what it is asked for."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from gradkern.cuda import rows
from gradkern.cuda.device import Device
from gradkern.cuda.rows import EmptyPlan


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    driver = SimpleNamespace(
        cuMemsetD8Async=lambda *given: found.append(("fill", *given)),
        cuMemcpyDtoDAsync=lambda *given: found.append(("copy", *given)),
    )
    monkeypatch.setattr(rows, "driver", driver)
    monkeypatch.setattr(rows, "activate", lambda _device: nullcontext())
    monkeypatch.setattr(rows, "check", lambda _status, _what: None)
    return found


DEVICE = Device(0, (9, 0), 132, 232448)


def test_outputs_are_filled_where_they_have_bytes(asked: list[tuple[Any, ...]]) -> None:
    EmptyPlan("empty", 0, DEVICE, (8, 0, 4), (0xFF, 0, 0))((), (1, 2, 3), 7)
    assert asked == [("fill", 1, 0xFF, 8, 7), ("fill", 3, 0, 4, 7)]


def test_outputs_are_copies_of_inputs_except_in_place(asked: list[tuple[Any, ...]]) -> None:
    plan = EmptyPlan("empty", 0, DEVICE, (8, 8, 8, 0), copies=(None, 0, 1, 1))
    plan((100, 200), (1, 100, 3, 4), 7)
    assert asked == [("fill", 1, 0, 8, 7), ("copy", 3, 200, 8, 7)]
