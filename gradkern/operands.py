"""The arrays of one call: views of inputs and of `out`, and which of them are the same memory. Done at every call."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from gradkern.arrays import HOST, NUMPY, Kind, View, device_arrays, overlap, same_memory, span, view
from gradkern.binding import Binder
from gradkern.errors import DeviceError, OutputError

__all__ = ["Operands", "input_views", "out_views", "read"]


class Operands(NamedTuple):
    """The inputs as a warm call needs them: what the signature holds of them, and what the plan runs on."""

    keys: tuple[Any, ...]  # View.key of each; None for an optional one not given
    buffers: tuple[Any, ...]  # of those given
    device: str
    kind: Kind


def read(binder: Binder, arrays: tuple[Any, ...]) -> Operands:
    """The operands of a call; NumPy arrays, which need no more than a look, without making their views."""
    keys = []
    for array in arrays:
        if type(array) is not np.ndarray:
            break
        dtype = array.dtype
        keys.append((dtype, array.shape, array.strides, dtype.itemsize if array.flags.aligned else 1))
    else:
        return Operands(tuple(keys), arrays, HOST, NUMPY)
    torch = sys.modules.get("torch")
    if torch is not None and type(arrays[0]) is torch.Tensor and arrays[0].is_cuda:
        operands = _read_tensors(arrays, torch)
        if operands is not None:
            return operands
    views = input_views(binder, arrays)
    return Operands(
        tuple([None if each is None else each.key for each in views]),
        tuple([each.buffer for each in views if each is not None]),
        *next((each.device, each.kind) for each in views if each is not None),
    )


def _read_tensors(arrays: tuple[Any, ...], torch: Any) -> Operands | None:
    """The operands where all are plain tensors on one GPU; None where one needs a closer look."""
    here = device_arrays()
    index = arrays[0].get_device()
    keys, buffers = [], []
    for array in arrays:
        if (
            type(array) is not torch.Tensor
            or array.requires_grad
            or array.get_device() != index
            or array.layout is not torch.strided
            or array.is_neg()
        ):
            return None
        address = array.data_ptr()
        key = here.torch_key(array.dtype, array.shape, array.stride(), here.alignment(address))
        if key is None:
            return None
        keys.append(key)
        buffers.append(address)
    kind = here.torch_kind(index)
    return Operands(tuple(keys), tuple(buffers), kind.device, kind)


def input_views(binder: Binder, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """Views of the inputs, in contract order, all on one device; None for an optional one not given."""
    views: list[Any] = []
    places = set()
    for index, array in enumerate(arrays):
        each = None if array is None else view(array, binder.where(index))
        views.append(each)
        if each is not None:
            places.add(each.device)
    if len(places) > 1:
        named = zip(binder.inputs, views, strict=True)
        text = ", ".join(f"input {name} on {each.device}" for name, each in named if each is not None)
        raise DeviceError(f"{binder.name}: the arrays are on different devices: {text}")
    return tuple(views)


_NOTHING: tuple[dict[str, View], frozenset[tuple[str, str]]] = ({}, frozenset())


def out_views(
    binder: Binder, arrays: tuple[Any, ...], operands: Operands, out: Mapping[str, Any] | None
) -> tuple[dict[str, View], frozenset[tuple[str, str]]]:
    """Views of the `out` arrays, and the (input, output) pairs that are one array. Any other overlap is an error."""
    if not out:
        return _NOTHING
    found: dict[str, View] = {}
    spans = [
        span(key, buffer)
        for key, buffer in zip([key for key in operands.keys if key is not None], operands.buffers, strict=True)
    ]
    pairs: list[tuple[str, str]] = []
    for name, array in out.items():
        one = view(array, f"{binder.name}: out {name}")
        if one.device != operands.device:
            first = binder.inputs[0]
            raise DeviceError(f"{binder.name}: out {name} is on {one.device}, but input {first} on {operands.device}")
        if not one.writable:
            raise OutputError(f"{binder.name}: out {name} is read-only")
        start, end = span(one.key, one.buffer)
        for other_start, other_end in spans:
            if start < other_end and other_start < end:
                pairs += _shared(binder, name, one, input_views(binder, arrays))
                break
        for other, each in found.items():
            if overlap(one, each):
                raise OutputError(f"{binder.name}: out {name} overlaps out {other}")
        found[name] = one
    return found, frozenset(pairs)


def _shared(binder: Binder, name: str, one: View, views: tuple[View | None, ...]) -> list[tuple[str, str]]:
    """The pairs of an `out` array with the inputs that are the same array, where that is permitted."""
    pairs = []
    permitted = binder.operator.in_place_pairs
    for source, each in zip(binder.inputs, views, strict=True):
        if each is None or not overlap(one, each):
            continue
        if not same_memory(one, each):
            raise OutputError(f"{binder.name}: out {name} overlaps input {source} without being that array")
        if (source, name) not in permitted:
            allowed = sorted(pair[0] for pair in permitted if pair[1] == name)
            may = f"it may be that of {' or '.join(allowed)}" if allowed else "it may be that of no input"
            raise OutputError(f"{binder.name}: out {name} is the array of input {source}; {may}")
        pairs.append((source, name))
    return pairs
