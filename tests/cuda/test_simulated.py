"""Tests' versions of the intrinsics are called as the real ones are."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

pytest.importorskip("numba.cuda", reason="numba-cuda is not installed")
pytest.importorskip("greenlet", reason="greenlet is not installed")

from helpers import simulated

from gradkern.cuda.device_code import intrinsics

MAKERS = {name: each for name, each in vars(intrinsics).items() if hasattr(each, "cache_info")}
FUNCTIONS = [name for name, each in vars(intrinsics).items() if type(each).__name__ == "_Intrinsic"]


@pytest.mark.parametrize("name", MAKERS)
def test_a_function_that_makes_intrinsics_has_the_parameters_of_the_real_one(name: str) -> None:
    assert parameters(getattr(simulated, name)) == parameters(MAKERS[name])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_there_is_one_for_every_intrinsic(name: str) -> None:
    assert callable(getattr(simulated, name))


def test_they_are_found() -> None:
    assert {"loader", "async_copy"} < MAKERS.keys()
    assert {"shared_memory", "wait"} < {*FUNCTIONS}


def parameters(function: Any) -> list[tuple[str, Any]]:
    return [(each.name, each.default) for each in inspect.signature(function).parameters.values()]
