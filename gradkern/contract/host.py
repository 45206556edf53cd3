"""The inputs of a call that are in the host's memory: numbers and lists, taken out of its arrays."""

# Callers may pass what its type does not allow; it is looked at nevertheless.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import numbers
import operator as operators
from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import numpy as np

from gradkern.arrays.view import view
from gradkern.call import HOST, Tensor
from gradkern.contract.attributes import bounded
from gradkern.contract.binder import AttributeKey, Binder
from gradkern.contract.schema import Input
from gradkern.errors import ArgumentError, AttributeValueError, DataError, DeviceError, DTypeError, ShapeError

WIDEST = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8", "uint32", "bool")


class HostValue(NamedTuple):
    """An input on the host, as a call has it.

    type       the registry's name of it; None for Python's numbers: they take the type that the others determine
    value      of a list a tuple, part of the call's signature; else a number, None where the input is only described
    """

    name: str
    type: str | None
    value: Any
    is_scalar: bool


def host_values(
    binder: Binder, arrays: tuple[Any, ...], attributes: dict[str, Any], complete: bool = True
) -> tuple[tuple[Any, ...], dict[str, Any], tuple[HostValue, ...]]:
    """The arrays with None in the place of each input on the host, the attributes with the numbers that are given for
    inputs of their name, and these inputs in contract order. Nothing waits for a device.

    Raises a GradkernError for what is not on the host or has no such values; and for what is missing, of the other
    inputs too, where the arrays are complete.
    """
    if complete:
        binder.require(arrays, host=True)
    left, found = list(arrays), list[HostValue]()
    for index, each in binder.host_inputs:
        value = arrays[index]
        if value is None:
            continue
        if each.is_list:
            found.append(_list(binder, each, value, binder.where(index)))
        elif isinstance(value, bool | int | float) and each.name in binder.operator.attributes:
            attributes = {**attributes, each.name: value}
        else:
            scalar = _scalar(binder, each, value, binder.where(index))
            if scalar is None:
                continue
            found.append(scalar)
        left[index] = None
    return tuple(left), attributes, tuple(found)


def host_key(values: Iterable[HostValue]) -> AttributeKey:
    """What a plan depends on: the types of all, the values of lists."""
    return tuple([(each.name, (each.type, None if each.is_scalar else each.value)) for each in values])


def scalars_of(values: Iterable[HostValue]) -> tuple[Any, ...]:
    """The numbers. An execution gets them after its buffers."""
    return tuple([each.value for each in values if each.is_scalar])


def _scalar(binder: Binder, each: Input, value: Any, where: str) -> HostValue | None:
    """A number; None for an array on a device, where the contract takes one."""
    if isinstance(value, Tensor):
        return None if each.memory == "any" else HostValue(each.name, value.dtype.name, None, True)
    if isinstance(value, np.dtype):
        return HostValue(each.name, value.name, None, True)
    if isinstance(value, bool | int | float):
        _check_numbers(binder, each, (value,), f"{where} is {value!r}")
        return HostValue(each.name, None, value, True)
    seen = view(np.asarray(cast(Any, value)) if isinstance(value, np.generic) else value, where)
    if seen.device != HOST:
        if each.memory == "any":
            return None
        raise DeviceError(f"{where} is on {seen.device}; expected it in the host's memory, as nothing waits for it")
    if seen.tensor.shape:
        raise ShapeError(f"{where} has shape {seen.tensor.shape}; expected (), a single number")
    _check_type(binder, each, seen.tensor.dtype.name, where)
    number = seen.buffer.item()
    attribute = binder.operator.attributes.get(each.name)
    if attribute is not None:
        try:
            bounded(where, attribute, number)
        except AttributeValueError as error:
            raise DataError(str(error)) from None
    return HostValue(each.name, seen.tensor.dtype.name, number, True)


def _list(binder: Binder, each: Input, value: Any, where: str) -> HostValue:
    if isinstance(value, Tensor):
        raise ArgumentError(f"{where} is only described; its values are part of the plan, so give them")
    if isinstance(value, list | tuple):
        values, kind = tuple(cast(Iterable[Any], value)), None
        _check_numbers(binder, each, values, f"{where} is {values}")
    else:
        seen = view(value, where)
        if seen.device != HOST:
            raise DeviceError(f"{where} is on {seen.device}; expected it in the host's memory, as its values are read")
        if len(seen.tensor.shape) != 1:
            raise ShapeError(f"{where} has shape {seen.tensor.shape}; expected rank 1, a list of numbers")
        _check_type(binder, each, seen.tensor.dtype.name, where)
        values, kind = tuple(seen.buffer.tolist()), seen.tensor.dtype.name
    values = tuple([number if isinstance(number, int | float) else operators.index(number) for number in values])
    if each.gives is not None and any(size < 0 for size in values):
        raise DataError(f"{where} is {values}; expected sizes, 0 or more")
    return HostValue(each.name, kind, values, False)


def _check_type(binder: Binder, each: Input, kind: str, where: str) -> None:
    allowed = dict.fromkeys(row[each.type] for row in binder.operator.combinations)
    if kind not in allowed:
        raise DTypeError(f"{where} has type {kind}; {each.type} allows {', '.join(allowed)}")


def _check_numbers(binder: Binder, each: Input, values: Iterable[Any], came: str) -> None:
    """Refuse what cannot be a number of a type that the contract allows."""
    allowed = dict.fromkeys(row[each.type] for row in binder.operator.combinations)
    for value in values:
        kinds = ("bool",) if isinstance(value, bool) else ("float",) if isinstance(value, float) else ("float", "int")
        number = isinstance(value, bool | float | numbers.Integral)
        if not number or not any(kind in name for kind in kinds for name in allowed):
            raise DTypeError(f"{came}; {each.type} allows {', '.join(allowed)}")
        if isinstance(value, numbers.Integral) and not -(1 << 63) <= int(value) < 1 << 63:
            raise DataError(f"{came}; expected whole numbers of 64 bits")


def type_of_number(allowed: Iterable[str]) -> str:
    """The type of a Python number where these are allowed."""
    return min(allowed, key=WIDEST.index)
