"""Converts the caller's arrays to flat arrays for kernels, and the plan that does so on every call.

An array that is dense in the kernel's order of axes is viewed flat and in the kernel's element type, without a copy.
Any other input is copied, at the cost of one more pass over it; any other output is written to scratch and copied back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numba import types

from gradkern.call import Call, Tensor
from gradkern.cpu.element_types import OVER, array_type, kernel_dtype
from gradkern.strides import is_dense

Order = tuple[int, ...] | None
Launch = Callable[[list[Any], list[Any]], None]
Over = Sequence[str]
Flatten = Callable[[np.ndarray], Any]


def argument_type(call: Call, name: str, over: Over | None = None, order: Order = None) -> Any:
    """Numba's type of the launch argument of a FlatPlan for this tensor; none if the call has no such tensor."""
    if name in call.outputs:
        marker = _marker(call, name, over, order)
        if marker is not None:
            return next(kind for each, kind in OVER if each is marker)
    tensor = call.inputs.get(name) or call.outputs.get(name)
    return types.none if tensor is None else array_type(tensor.dtype)


def _marker(call: Call, output: str, over: Over | None, order: Order) -> Any:
    """The marker of an output that is written over an input's array; None for an output with its own array."""
    if over is not None and is_dense(call.outputs[output], order):
        for name, (marker, _) in zip(over, OVER, strict=False):
            if (name, output) in call.in_place:
                return marker
    return None


class FlatPlan:
    """A plan whose launch sees flat arrays.

    launch   takes the inputs in the order of the call and behind them the numbers of `Call.scalars`, and the outputs in
             the order of `outputs`: None if not requested, and what OVER has if written over the first, second or third
             input that `over` names
    orders   the launch's memory order of axes, by tensor name; others are in C order
    scratch  bytes that the launch itself allocates
    repeatable  whether the launch does nothing but run kernels (threads.run) on these arrays, on RowSums.partials, and
                on `constants`, arrays that all its calls read
    """

    def __init__(
        self,
        call: Call,
        *,
        kernel: str,
        outputs: Sequence[str],
        launch: Launch,
        over: Over | None = None,
        orders: Mapping[str, Order] | None = None,
        scratch: int = 0,
        repeatable: bool = False,
        constants: Sequence[np.ndarray] = (),
    ) -> None:
        orders = orders or {}
        self.kernel, self.constants = kernel, tuple(constants)
        self._launch = launch
        self._readers = [_reader(tensor, orders.get(name)) for name, tensor in call.inputs.items()]
        self._writers = [_writer(tensor, orders.get(name)) for name, tensor in call.outputs.items()]
        for number, name in enumerate(call.outputs):
            marker = _marker(call, name, over, orders.get(name))
            if marker is not None:
                self._writers[number] = lambda array, marker=marker: marker
        self._places = [outputs.index(name) for name in call.outputs]
        self._nothing: list[Any] = [None] * len(outputs)
        self._copied = [
            (index, orders.get(name))
            for index, (name, tensor) in enumerate(call.outputs.items())
            if not is_dense(tensor, orders.get(name))
        ]
        every = [*call.inputs.items(), *call.outputs.items()]
        self.REPEATABLE = repeatable and all(is_dense(tensor, orders.get(name)) for name, tensor in every)
        self.scratch = scratch + sum(
            tensor.nbytes
            for tensors in (call.inputs, call.outputs)
            for name, tensor in tensors.items()
            if not is_dense(tensor, orders.get(name))
        )

    def __call__(self, inputs: tuple[np.ndarray, ...], outputs: tuple[np.ndarray, ...], stream: Any = None) -> None:
        read = [reader(array) for reader, array in zip(self._readers, inputs, strict=False)]
        read += inputs[len(read) :]
        write = self._nothing.copy()
        for place, writer, array in zip(self._places, self._writers, outputs, strict=True):
            write[place] = writer(array)
        self._launch(read, write)
        for index, order in self._copied:
            target, flat = _in_order(outputs[index], order), write[self._places[index]]
            target[...] = flat.view(target.dtype).reshape(target.shape)


def _reader(tensor: Tensor, order: Order) -> Flatten:
    if not is_dense(tensor, order):
        seen_as = kernel_dtype(tensor.dtype)
        return lambda array: np.array(_in_order(array, order), order="C").reshape(-1).view(seen_as)
    flat = _flat(tensor, order)
    return lambda array: flat(array) if array.flags.writeable else np.asarray(_Writeable(flat(array)))


def _writer(tensor: Tensor, order: Order) -> Flatten:
    if not is_dense(tensor, order):
        size, seen_as = tensor.size, kernel_dtype(tensor.dtype)
        return lambda array: np.empty(size, seen_as)
    return _flat(tensor, order)


def _flat(tensor: Tensor, order: Order) -> Flatten:
    """The view of a dense array. It is made in every call, so it takes only necessary steps."""
    seen_as = kernel_dtype(tensor.dtype)
    if order is not None and order != tuple(range(len(order))):
        return lambda array: array.transpose(order).reshape(-1).view(seen_as)
    if seen_as != tensor.dtype:
        return lambda array: array.reshape(-1).view(seen_as)
    return lambda array: array.reshape(-1)


def _in_order(array: np.ndarray, order: Order) -> np.ndarray:
    return array if order is None else array.transpose(order)


class _Writeable:
    """A read-only array as writeable: Numba has two types for these and would compile every kernel twice."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}
