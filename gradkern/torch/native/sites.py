"""Calls of one place in compiled code answered from machine code: a function of Python's own kind, without arguments to
convert, a dispatcher or results to make.

Such a call has the memory for its results among its arguments, as that of a Triton kernel has, where Inductor's code
makes it faster than PyTorch's C functions do.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any, NamedTuple

import torch  # pyright: ignore[reportMissingImports]

from gradkern.call import Plan, Tensor
from gradkern.system import locks
from gradkern.torch.native import shim
from gradkern.torch.native import words as w
from gradkern.torch.native.recording import Output, Steps, Unrepeatable, of_cuda, unrepeatable, words_of
from gradkern.torch.native.records import Record, Records

_MOST_ALIKE = 16
_numbers = count()
_sites: weakref.WeakValueDictionary[int, NativeSite] = weakref.WeakValueDictionary()
_defining = locks.reentrant_lock()  # records are made once


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
    """A place in compiled code. `by_python(*tensors, memory=...)` answers the calls that no record does.

    call   answers a call with these tensors, followed by memory for the results; None as long as there is no record
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

    def miss(self, tensors: tuple[torch.Tensor, ...], memory: tuple[torch.Tensor, ...]) -> Any:
        """Answer a call that no record does. Where most are such calls, as with sizes that come and go, Python answers
        all from now on: by the way through machine code a call costs more.
        """
        self._misses += 1
        if self._misses > 4 * _MOST_ALIKE and self._misses > sum(each.calls for each in self._records):
            self._stop()
        return self.by_python(*tensors, memory=memory)

    def _stop(self) -> None:
        self._wanted, self.call = False, None

    def teach(self, tensors: tuple[torch.Tensor, ...], plan: Plan, places: Places) -> None:
        """Let machine code answer the next call like this one, if it can."""
        device = tensors[0].device
        if not self._wanted or (tensors[0].is_cuda and torch.cuda.is_current_stream_capturing()):
            return
        with _defining:
            records = None if unrepeatable(plan) else _records(len(tensors), len(places.results), device.type.upper())
        if records is None or (len(self._records) == _MOST_ALIKE and not any(each.calls for each in self._records)):
            self._stop()
            return
        if self._records and self._records[-1].scratch >= 0 and records.add_stream(self._records[-1]):
            return
        if len(self._records) == _MOST_ALIKE:
            return
        try:
            record = records.add((self._number, *tensors), _steps(plan, tensors, places), 0, device)
        except Unrepeatable:
            record = None
        if record is None:
            self._stop()
            return
        if record.scratch >= 0:
            records.add_stream(record)
        self._records.append(record)
        self.call = self.call or _function(self._number, records.address, len(tensors), len(places.results))


def living() -> list[NativeSite]:
    """Those of all compiled code in this process."""
    return list(_sites.values())


def _steps(plan: Plan, tensors: tuple[torch.Tensor, ...], places: Places) -> Steps:
    """Raises Unrepeatable."""
    read, written, made, results = places
    if len(made) > w.MOST_OUTPUTS:
        raise Unrepeatable("it has more results")
    device, places_of = tensors[0].device, {place: n for n, place in enumerate(results)}
    outputs = [Output.like(places_of.get(place, -1), each, device) for place, each in enumerate(made)]

    def place_of(place: int) -> int:
        return place + 1 if place < len(tensors) else w.MOST_ARGUMENTS + place - len(tensors)

    return of_cuda(plan, list(map(place_of, read)), outputs, device, list(map(place_of, written)))


@cache
def _records(inputs: int, results: int, key: str) -> Records | None:
    """Of all places with so many tensors and results; None where machine code cannot answer them."""
    if shim.unavailable(key) or inputs + 1 > w.MOST_ARGUMENTS or results > w.MOST_OUTPUTS:
        return None
    try:
        _method()
        shim.handle_in_object()
    except Exception:  # it cannot be compiled here, or this PyTorch has its tensors in another way
        return None
    return Records([w.ARGUMENTS["word"], *[w.ARGUMENTS["tensor"]] * inputs], key, flags=True)


class _Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_METH_FASTCALL = 0x80


@cache
def _method() -> _Method:
    from gradkern.torch.native.loaded import fill_function

    return _Method(b"fill", fill_function(), _METH_FASTCALL, None)


def _function(number: int, block: int, inputs: int, results: int) -> Callable[..., Any]:
    """A function of CPython's: it is bound to the words of the place, and keeps what answers where no record does."""

    def by_python(*arguments: torch.Tensor) -> Any:
        return _sites[number].miss(arguments[:inputs], arguments[inputs:])

    words = {
        w.SITE_BLOCK: block,
        w.SITE_NUMBER: number,
        w.SITE_INPUTS: inputs,
        w.SITE_RESULTS: results,
        w.SITE_HANDLE: shim.handle_in_object(),
        w.SITE_PYTHON: id(by_python),
    }
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
    return make(ctypes.byref(_method()), bytes(words_of([words[place] for place in range(len(words))])), by_python)
