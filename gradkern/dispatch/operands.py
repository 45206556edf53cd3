"""The arrays of one call: what its signature holds of them, their addresses, and those that share memory.

Each array is read once. The signature, the plan and the execution use what was read then: another thread may set an
array's shape meanwhile, and an object of the caller's may describe itself differently the next time.

This is done at every call, so the most common arrays have fast paths: NumPy arrays, and plain tensors on a GPU. All
others are read through their views.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from gradkern.arrays.host import NUMPY
from gradkern.arrays.kind import Kind, View, dtype_of, may_overlap, overlap, same_memory
from gradkern.arrays.torch_guards import of_tensors
from gradkern.arrays.view import device_arrays, view
from gradkern.call import Tensor
from gradkern.contract.binder import Binder
from gradkern.contract.request import Pairs, Views
from gradkern.errors import DeviceError, OutputError
from gradkern.strides import c_strides

_NONE: Pairs = frozenset()
_ndarray = np.ndarray


Operands = tuple[tuple[Any, ...], tuple[Any, ...], Kind, tuple[str, ...], tuple[Any, ...], Pairs]
"""The arrays as a warm call needs them:

keys          all a plan may know of every input (None for an optional one not given), then of the arrays in `out`:
              Tensors, or tuples with the same facts
buffers       of the inputs given, what the plan runs on
kind          whose arrays they are
out_names     of the arrays in `out`, in contract order
out_buffers
in_place      the (input, output) pairs that are one array

A plain tuple: one with names costs as much to make as two attributes of a tensor cost to read.
"""


def read(binder: Binder, arrays: tuple[Any, ...], out: Mapping[str, Any] | None) -> Operands:
    """The operands of a call. Arrays of equal keys and kind have equal views."""
    given, missing = binder.given(arrays)
    if missing is not None:
        binder.require(arrays)
    described: list[Any] = []
    seen: list[Any] = []
    for array in given:
        if type(array) is not _ndarray:
            break
        array = array.view()
        seen.append(array)
        dtype = array.dtype
        described.append((dtype, array.shape, array.strides, dtype.itemsize if array.flags.aligned else 1))
    else:
        keys = tuple(described) if missing is None else _with_gaps(tuple(described), missing)
        if out:
            return _with_out(binder, keys, tuple(seen), NUMPY, out)
        return keys, tuple(seen), NUMPY, (), (), _NONE
    torch = sys.modules.get("torch")
    if torch is not None and type(given[0]) in (torch.Tensor, torch.nn.Parameter) and given[0].is_cuda:
        operands = _of_tensors(binder, arrays, given, missing, out)
        if operands is not None:
            return operands
    binder.require(arrays)
    views = _input_views(binder, arrays)
    keys = tuple([None if each is None else each.tensor for each in views])
    there = [each for each in views if each is not None]
    buffers, kind = tuple([each.buffer for each in there]), there[0].kind
    if out:
        return _with_out(binder, keys, buffers, kind, out)
    return keys, buffers, kind, (), (), _NONE


def _with_out(
    binder: Binder, keys: tuple[Any, ...], buffers: tuple[Any, ...], kind: Kind, out: Mapping[str, Any]
) -> Operands:
    given, in_place = _out_views(binder, keys, buffers, kind, out)
    names = out_names(binder, given)
    if len(names) != len(given):
        binder.wanted(names, out)  # raises, naming the one that is no output
    keys = (*keys, *[given[name].tensor for name in names])
    return (keys, buffers, kind, names, tuple([given[name].buffer for name in names]), in_place)


def _of_tensors(
    binder: Binder,
    arrays: tuple[Any, ...],
    given: tuple[Any, ...],
    missing: tuple[bool, ...] | None,
    out: Mapping[str, Any] | None,
) -> Operands | None:
    """The operands where all are plain tensors on one GPU; None where one needs a closer look.

    An `out` array at an input's address is taken to be that input: the contract is checked when the plan is made, and
    the plan compares the rest of the memory (Prepared.refuse_overlap).
    """
    if not out:
        found = of_tensors(given)
        if found is None:
            return None
        keys = found[0] if missing is None else _with_gaps(found[0], missing)
        return keys, found[1], device_arrays().torch_kind(found[2]), (), (), _NONE
    names = out_names(binder, out)
    found = of_tensors((*given, *[out[name] for name in names]))
    if found is None or len(names) != len(out):
        return None
    keys, addresses, index = found
    read, written = addresses[: len(given)], addresses[len(given) :]
    in_place = _NONE
    if len(set(addresses)) < len(addresses):
        sources = [source for source, each in zip(binder.inputs, arrays, strict=True) if each is not None]
        in_place = frozenset(
            (source, name)
            for source, address in zip(sources, read, strict=True)
            for name, other in zip(names, written, strict=True)
            if address == other
        )
    keys = keys if missing is None else _with_gaps(keys, missing)
    return (keys, read, device_arrays().torch_kind(index), names, written, in_place)


def _with_gaps(keys: tuple[Any, ...], missing: tuple[bool, ...]) -> tuple[Any, ...]:
    """The keys of the arrays that are given, and of what follows them, with None for each that is missing."""
    rest = iter(keys)
    return (*[None if each else next(rest) for each in missing], *rest)


def _input_views(binder: Binder, arrays: tuple[Any, ...]) -> tuple[View | None, ...]:
    """Views of the inputs, in contract order, all on one device; None for an optional one not given."""
    views: list[Any] = []
    places: set[str] = set()
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


def views_of(binder: Binder, operands: Operands) -> Views:
    """Views of the inputs and of `out`: what a plan is made from. Raises OutputError where an `out` array overlaps
    another array that it may not.
    """
    keys, buffers, kind, names, out_buffers, _ = operands
    inputs = _views(binder, keys, buffers, kind)
    out: dict[str, View] = {}
    pairs: list[tuple[str, str]] = []
    for name, key, buffer in zip(names, keys[len(binder.inputs) :], out_buffers, strict=True):
        one = View(_tensor(key), buffer, kind.device, kind)
        pairs += _pairs(binder, name, one, inputs, out)
        out[name] = one
    return Views(inputs, out, frozenset(pairs))


def _views(binder: Binder, keys: tuple[Any, ...], buffers: tuple[Any, ...], kind: Kind) -> dict[str, View]:
    """Of the inputs that are given."""
    named = [(name, key) for name, key in zip(binder.inputs, keys, strict=False) if key is not None]
    return {
        name: View(_tensor(key), buffer, kind.device, kind) for (name, key), buffer in zip(named, buffers, strict=True)
    }


def _tensor(key: tuple[Any, ...]) -> Tensor:
    """What a key describes: it is a Tensor, or says as much of one of PyTorch's."""
    if isinstance(key, Tensor):
        return key
    dtype, shape, strides, alignment = key
    if isinstance(dtype, np.dtype):
        return Tensor(*key)
    dtype, shape = dtype_of(str(dtype).removeprefix("torch.")), tuple(shape)
    strides = c_strides(shape, dtype.itemsize) if strides is None else tuple([x * dtype.itemsize for x in strides])
    return Tensor(dtype, shape, strides, alignment)


def out_names(binder: Binder, out: Mapping[str, Any]) -> tuple[str, ...]:
    """The names in `out` in contract order."""
    return tuple([name for name in binder.outputs if name in out])


def _out_views(
    binder: Binder, keys: tuple[Any, ...], buffers: tuple[Any, ...], kind: Kind, out: Mapping[str, Any]
) -> tuple[dict[str, View], Pairs]:
    """Views of the `out` arrays, and the (input, output) pairs that are one array. Any other overlap is an error.

    keys describe the inputs, as Tensors do.
    """
    found: dict[str, View] = {}
    inputs = list(zip([key for key in keys if key is not None], buffers, strict=True))
    pairs: list[tuple[str, str]] = []
    for name, array in out.items():
        one = view(array, f"{binder.name}: out {name}")
        if one.device != kind.device:
            first = binder.inputs[binder.first]
            raise DeviceError(f"{binder.name}: out {name} is on {one.device}, but input {first} on {kind.device}")
        if not one.writable:
            raise OutputError(f"{binder.name}: out {name} is read-only")
        near = any(may_overlap(one.tensor, one.buffer, key, buffer) for key, buffer in inputs)
        if near or found:
            pairs += _pairs(binder, name, one, _views(binder, keys, buffers, kind) if near else {}, found)
        found[name] = one
    return found, frozenset(pairs)


def _pairs(
    binder: Binder, name: str, one: View, inputs: Mapping[str, View], others: Mapping[str, View]
) -> list[tuple[str, str]]:
    """The pairs of an `out` array with the inputs that are the same array, where that is permitted. Raises OutputError
    where it overlaps another array, one of `others` in `out` for instance.
    """
    pairs: list[tuple[str, str]] = []
    permitted = binder.operator.in_place_pairs
    for source, each in inputs.items():
        if not overlap(one, each):
            continue
        if not same_memory(one, each):
            raise OutputError(f"{binder.name}: out {name} overlaps input {source} without being that array")
        if (source, name) not in permitted:
            allowed = sorted(pair[0] for pair in permitted if pair[1] == name)
            may = f"it may be that of {' or '.join(allowed)}" if allowed else "it may be that of no input"
            raise OutputError(f"{binder.name}: out {name} is the array of input {source}; {may}")
        pairs.append((source, name))
    for other, each in others.items():
        if overlap(one, each):
            raise OutputError(f"{binder.name}: out {name} overlaps out {other}")
    return pairs
