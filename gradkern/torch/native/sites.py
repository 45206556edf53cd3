"""Calls of one place in compiled code answered from machine code: an operator of PyTorch's for each number of tensors
that such calls are given and return. Its first argument is the place.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cache, partial
from itertools import count
from typing import Any, NamedTuple

import torch  # pyright: ignore[reportMissingImports]

from gradkern.call import Plan, Tensor
from gradkern.system import locks
from gradkern.torch.native import shim
from gradkern.torch.native import words as w
from gradkern.torch.native.kernel import NativeKernel, Record
from gradkern.torch.native.recording import Empty, Output, Steps, Unrepeatable, of_cuda, unrepeatable

_NAMESPACE = "gradkern_site"
_MOST_ALIKE = 16
_numbers = count()
_sites: weakref.WeakValueDictionary[int, NativeSite] = weakref.WeakValueDictionary()
_libraries: list[Any] = []
_defining = locks.reentrant_lock()  # an operator is defined once


class Places(NamedTuple):
    """What a plan reads and writes, as places among a call's tensors, followed by what it makes.

    read, written  in the order of the plan's inputs and outputs
    made           descriptions of what it makes
    results        the places of the results among what it makes; behind them for an empty tensor
    """

    read: list[int]
    written: list[int]
    made: list[Tensor]
    results: list[int]


class NativeSite:
    """A place in compiled code. `by_python(*tensors)` answers the calls that no record does.

    call   answers a call with these tensors; None as long as there is no record
    """

    def __init__(self, by_python: Callable[..., Any]) -> None:
        self.by_python = by_python
        self._number = next(_numbers)
        self._records: list[Record] = []
        self.forget()
        _sites[self._number] = self

    def forget(self) -> None:
        """Let Python answer until this is taught anew."""
        gone, self._records = self._records, []
        self.call: Callable[..., Any] | None = None
        for each in gone:
            each.withdraw()
        self._wanted, self._misses = True, 0

    def __del__(self) -> None:
        self.forget()  # its records make room for others'

    def miss(self, tensors: tuple[torch.Tensor, ...]) -> Any:
        """Answer a call that no record does. Where most are such calls, as with sizes that come and go, Python answers
        all from now on: by the way through machine code a call costs more.
        """
        self._misses += 1
        if self._misses > 4 * _MOST_ALIKE and self._misses > sum(each.calls for each in self._records):
            self._stop()
        return self.by_python(*tensors)

    def _stop(self) -> None:
        self._wanted, self.call = False, None

    def teach(self, tensors: tuple[torch.Tensor, ...], plan: Plan, places: Places) -> None:
        """Let machine code answer the next call like this one, if it can."""
        device = tensors[0].device
        if not self._wanted or (tensors[0].is_cuda and torch.cuda.is_current_stream_capturing()):
            return
        with _defining:
            known = not unrepeatable(plan)
            found = _operator(len(tensors), len(places.results), device.type.upper()) if known else None
        if found is None or (len(self._records) == _MOST_ALIKE and not any(each.calls for each in self._records)):
            self._stop()
            return
        operator, kernel = found
        if self._records and self._records[-1].scratch >= 0 and kernel.add_stream(self._records[-1]):
            return
        if len(self._records) == _MOST_ALIKE:
            return
        try:
            record = kernel.add((self._number, *tensors), {}, _steps(plan, tensors, places), 0, device)
        except Unrepeatable:
            record = None
        if record is None:
            self._stop()
            return
        if record.scratch >= 0:
            kernel.add_stream(record)
        self._records.append(record)
        self.call = partial(operator, self._number)


def _steps(plan: Plan, tensors: tuple[torch.Tensor, ...], places: Places) -> Steps:
    """Raises Unrepeatable."""
    read, written, made, results = places
    device, places_of = tensors[0].device, {place: n for n, place in enumerate(results)}
    outputs = [Output.like(places_of.get(place, -1), each, device) for place, each in enumerate(made)]

    def place_of(place: int) -> int:
        return place + 1 if place < len(tensors) else w.MOST_ARGUMENTS + place - len(tensors)

    steps = of_cuda(plan, list(map(place_of, read)), outputs, device, list(map(place_of, written)))
    steps.outputs += [Empty(n, tensors[0].dtype, device) for n, place in enumerate(results) if place == len(made)]
    if len(steps.outputs) > w.MOST_OUTPUTS:
        raise Unrepeatable("it has more results")
    return steps


@cache
def _operator(inputs: int, outputs: int, key: str) -> tuple[Callable[..., Any], NativeKernel] | None:
    """The operator for so many tensors and results; None where machine code cannot answer it."""
    if shim.unavailable(key) or inputs + 1 > w.MOST_ARGUMENTS or outputs > w.MOST_OUTPUTS:
        return None
    name = f"call_{inputs}_{outputs}"
    tensors = ", ".join(["int site", *[f"Tensor x{n}" for n in range(inputs)]])
    library = torch.library.Library(_NAMESPACE, "FRAGMENT")
    _libraries.append(library)
    if not hasattr(getattr(torch.ops, _NAMESPACE), name):  # for another key
        library.define(f"{name}({tensors}) -> ({', '.join(['Tensor'] * outputs)})")
        library.impl(name, torch.library.fallthrough_kernel, "Autograd")
    overload: Any = getattr(getattr(torch.ops, _NAMESPACE), name).default
    try:
        kernel = NativeKernel(overload, key, lambda keys, site, *tensors: _sites[site].miss(tensors), flags=True)
        kernel.register(__file__)
    except Exception:  # it cannot be compiled here, or PyTorch does not take it
        return None
    kernel.answer(w.BY_RECORDS)
    return overload._op, kernel
