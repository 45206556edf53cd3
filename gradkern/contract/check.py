"""The contract, checked: a call's arrays and attributes against the registry's entry. What passes becomes a Call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from gradkern.arrays.kind import View, dtype_of
from gradkern.call import HOST, Call, Tensor
from gradkern.contract.attributes import attribute_values, dimension, per_dimension
from gradkern.contract.axes import match, rank_of
from gradkern.contract.host import HostValue, type_of_number
from gradkern.contract.request import Request, Views
from gradkern.contract.schema import Operator, Output, axis_of, shape_of
from gradkern.errors import ArgumentError, DTypeError, GradkernError, OutputError, ShapeError
from gradkern.policy import Policy
from gradkern.strides import (
    c_strides,
    channels_as_in,
    channels_last,
    channels_last_strides,
    dense_like,
    overlaps_itself,
)

_ADDRESS_SPACE = 1 << 63
"""Bytes that addresses and indices of 64 bits reach. Larger arrays can be described, but not be there."""

Resolve = Callable[[Mapping[str, Any], Mapping[str, Any], Collection[str]], Mapping[str, Any]]


def check(request: Request, views: Views, policy: Policy, resolve: Resolve | None) -> Call:
    """The checked call, with the type, shape and strides of every wanted output.

    Raises a GradkernError that names operator, argument, what was expected and what came.
    """
    name, operator = request.binder.name, request.binder.operator
    try:
        tensors = {key: view.tensor for key, view in views.inputs.items()}
        values = attribute_values(operator, request.attributes, {*tensors, *(each.name for each in request.host)})
        values |= {each.name: each.value for each in request.host if not each.is_scalar}
        operator = operator.chosen(values)
        types = types_of(operator, tensors, request.host, values, views.out)
        for key, attribute in operator.attributes.items():
            if attribute.axis_of is not None:
                rank = rank_of(attribute.axis_of, tensors, values)
                values[key] = dimension(key, values[key], attribute.axis_of, rank)
        axes = match(operator, tensors, values, {key: view.tensor.shape for key, view in views.out.items()})
        for key, tensor in tensors.items():
            if tensor.nbytes > _ADDRESS_SPACE:
                raise ShapeError(f"input {key} has shape {tensor.shape}, which is more bytes than can be addressed")
        per_dimension(operator, values, axes)
        if resolve is not None:
            given = (each.name for each in request.host)
            resolved = resolve(axes, values, {*tensors, *given, *request.wanted})
            axes |= {key: size for key, size in resolved.items() if key in operator.axes}
            values |= {key: value for key, value in resolved.items() if key not in operator.axes}
        for source, target in request.binder.aliases:
            there = source in tensors and target in request.wanted and tensors[source].size
            if there and (source, target) not in views.in_place:
                raise OutputError(f"out {target} is another array than input {source}, whose memory that output is")
        outputs = {
            each.name: _given(each, _new(operator, each, types, axes, tensors, views.device), views)
            for each in operator.outputs
            if each.name in request.wanted
        }
        for key, tensor in outputs.items():
            if tensor.nbytes > _ADDRESS_SPACE:
                raise ShapeError(f"output {key} has shape {tensor.shape}, which is more bytes than can be addressed")
    except GradkernError as error:
        raise type(error)(f"{name}: {error}") from None
    variables = {each.name: each.type for each in operator.inputs}
    scalars = {each.name: types[variables[each.name]] for each in request.host if each.is_scalar}
    return Call(name, tensors, outputs, values, axes, views.in_place, views.device, policy, scalars)


def types_of(
    operator: Operator,
    tensors: Mapping[str, Tensor],
    host: Collection[HostValue],
    values: Mapping[str, Any],
    out: Mapping[str, View],
) -> dict[str, str]:
    """The type of every type variable, by name."""
    types: dict[str, str] = {}
    first: dict[str, str] = {}
    dtypes = {key: tensor.dtype for key, tensor in tensors.items()}
    dtypes |= {each.name: dtype_of(each.type) for each in host if each.type is not None}
    for each in operator.inputs:
        if each.name not in dtypes:
            continue
        dtype = dtypes[each.name]
        variable = each.type
        allowed = {row[variable]: None for row in operator.combinations}
        if dtype.name not in allowed:
            wider = "float32" in allowed and dtype.name in ("float16", "bfloat16")
            remedy = "; convert it to float32, which loses nothing" if wider else ""
            raise DTypeError(f"input {each.name} has type {dtype.name}; {variable} allows {', '.join(allowed)}{remedy}")
        if not dtype.isnative:
            raise DTypeError(
                f"input {each.name} has type {dtype.name} in foreign byte order; expected the machine's own"
            )
        if types.setdefault(variable, dtype.name) != dtype.name:
            raise DTypeError(
                f"input {each.name} has type {dtype.name}, but input {first[variable]} has {types[variable]}; "
                f"both are of type {variable}"
            )
        first.setdefault(variable, each.name)
    for key, attribute in operator.attributes.items():
        variable, default = attribute.binds, str(attribute.default)
        if variable is not None:
            arrays = [out[each.name] for each in operator.outputs if each.type == variable and each.name in out]
            named = values[key] or types.get(variable) or (arrays[0].tensor.dtype.name if arrays else None)
            if types.setdefault(variable, named or types.get(default, default)) != named and named is not None:
                raise DTypeError(
                    f"attribute {key} is {named}, but input {first[variable]} has type {types[variable]}; "
                    f"both are of type {variable}"
                )
    rows = [row for row in operator.combinations if all(row[variable] == name for variable, name in types.items())]
    numbers = {each.name for each in host if each.type is None}
    for variable in {each.type: None for each in operator.inputs if each.name in numbers and rows}:
        widest = type_of_number(row[variable] for row in rows)
        rows = [row for row in rows if row[variable] == widest]
    if not rows:
        came = ", ".join(f"{variable}={name}" for variable, name in types.items())
        known = "; ".join(", ".join(f"{key}={value}" for key, value in row.items()) for row in operator.combinations)
        raise DTypeError(f"the types {came} are not registered together; registered are {known}")
    return dict(rows[0])  # with the types of outputs alone: they follow from the others


def _new(
    operator: Operator,
    output: Output,
    types: Mapping[str, str],
    axes: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    device: str,
) -> Tensor:
    """What a new array for an output is, as contract and inputs say."""
    dtype = dtype_of(types[output.type])
    # Every allocator of device memory aligns to 256 bytes or more; on the host nothing depends on it.
    alignment = dtype.itemsize if device == HOST else 16
    if output.like is not None:
        if output.like not in tensors:
            raise ArgumentError(f"output {output.name} is wanted; it is like input {output.like}, which is not given")
        model = tensors[output.like]
        return Tensor(dtype, model.shape, dense_like(model, model.shape, dtype), alignment)
    unknown = next((each for each in map(axis_of, output.shape or ()) if axes.get(each) is None), None)
    if unknown is not None:
        ways = [f"input {each.name}" for each in operator.inputs if unknown in map(axis_of, each.sizes)]
        if operator.axes[unknown].equals is not None:
            ways += [f"attribute {operator.axes[unknown].equals}", f"an array for {output.name} in out"]
        raise ArgumentError(
            f"output {output.name} is wanted, and nothing gives its {unknown}; expected {' or '.join(ways)}"
        )
    shape = shape_of(output.shape or (), axes)
    if output.order_of is not None and output.order_of in tensors:
        strides = channels_as_in(tensors[output.order_of], shape, dtype.itemsize)
    else:
        strides = c_strides(shape, dtype.itemsize)
    return Tensor(dtype, shape, strides, alignment)


def _given(output: Output, new: Tensor, views: Views) -> Tensor:
    """The `out` array in place of a new one, where there is one; refused where it cannot take the result."""
    name = output.name
    if name not in views.out:
        return new
    tensor, (dtype, shape, *_) = views.out[name].tensor, new
    if tensor.dtype != dtype or not tensor.dtype.isnative:
        raise OutputError(f"out {name} has type {_type(tensor.dtype)}; expected {dtype.name}")
    if tensor.shape != shape:
        raise OutputError(f"out {name} has shape {tensor.shape}; expected {shape}")
    if overlaps_itself(tensor):
        raise OutputError(f"out {name} has strides {tensor.strides}, by which its elements share memory")
    return tensor


def scattered_outputs(operator: Operator, call: Call) -> tuple[str, ...]:
    """The `out` arrays with gaps, or in another order than a new array may have: C order, that of the input they are
    like, or channels last where that is the input's order too, or its sizes of 1 leave it open. Those that are an
    input's own array are as providers know inputs to be.
    """
    found: list[str] = []
    in_place = {target for _, target in call.in_place}
    for each in operator.outputs:
        tensor = call.outputs.get(each.name)
        if tensor is not None and each.name not in in_place:
            orders = [c_strides(tensor.shape, tensor.dtype.itemsize)]
            if each.like is not None:
                orders.append(dense_like(call.inputs[each.like], tensor.shape, tensor.dtype))
            if each.order_of is not None and channels_last(call.inputs[each.order_of]) is not False:
                orders.append(channels_last_strides(tensor.shape, tensor.dtype.itemsize))
            if _order(tensor.shape, tensor.strides) not in [_order(tensor.shape, strides) for strides in orders]:
                found.append(each.name)
    return tuple(found)


def _order(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """The strides that matter: those of axes with more than one element; of an empty array, none."""
    return () if 0 in shape else tuple(stride for size, stride in zip(shape, strides, strict=True) if size != 1)


def _type(dtype: np.dtype) -> str:
    return dtype.name if dtype.isnative else f"{dtype.name} in foreign byte order"
