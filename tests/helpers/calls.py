"""Calls for tests of what happens around the kernels: small arguments, a provider that computes nothing, refusals."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradkern
from gradkern.call import Call
from gradkern.contract.samples import inputs_of
from gradkern.contract.schema import Example
from gradkern.dispatch.prepared import Prepared

OPERATORS = gradkern.operators()
run_any: Callable[..., Any] = gradkern.run
prepare_any: Callable[..., Prepared] = gradkern.prepare
"""For operators and arguments that are put together by a test: type checkers know calls that are written out."""


def arguments(name: str, example: int = 0, **changes: Any) -> dict[str, Any]:
    """Inputs and attributes of an example of the registry, in its first combination of types, with these changes."""
    operator = OPERATORS[name]
    size: Example = operator.examples[example]
    inputs = inputs_of(operator, operator.combinations[0], size, np.random.default_rng(0))
    return {**inputs, **size.attributes, **changes}


def message(error: type[Exception], call: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """The text with which a call is refused; the error's class is exactly this one."""
    with pytest.raises(error) as caught:
        call(*args, **kwargs)
    assert caught.type is error
    return str(caught.value)


class FakeProvider:
    """A provider module that computes nothing: every plan fills output number n with n, and is remembered."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.plans: list[FakePlan] = []
        self.seconds = 0.0

    def plan(self, call: Call) -> FakePlan:
        time.sleep(self.seconds)
        self.calls.append(call)
        self.plans.append(FakePlan())
        return self.plans[-1]


class FakePlan:
    kernel = "fake"
    scratch = 24

    def __init__(self) -> None:
        self.runs: list[tuple[tuple[Any, ...], tuple[Any, ...], Any]] = []

    def __call__(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...], stream: Any) -> None:
        self.runs.append((inputs, outputs, stream))
        for number, output in enumerate(outputs, 1):
            output[...] = number


class OnDevice:
    """An array that says by DLPack that it is on this device. Its elements cannot be reached."""

    def __init__(self, model: np.ndarray, device: tuple[int, int]) -> None:
        self.shape, self.dtype, self._device = model.shape, model.dtype, device

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("its elements are elsewhere")

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


class WithInterface:
    """An array whose owner offers only __array_interface__."""

    def __init__(self, array: Any, **changes: Any) -> None:
        self._array = array
        self.__array_interface__ = {**array.__array_interface__, **changes}
