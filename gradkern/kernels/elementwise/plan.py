"""From a call to a launch of the element-wise block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.device_code.columns import bits_of, reciprocal
from gradkern.cuda.device_code.kernel_name import kernel_name, operator_words
from gradkern.cuda.launch import Launch, LaunchPlan, kernel_of, named
from gradkern.cuda.numbers_plan import Numbers, NumbersPlan
from gradkern.cuda.rows import EmptyPlan, device_of
from gradkern.kernels.elementwise.config import ARGUMENTS, BITS, ElementwiseTypes, configs, widest_vector
from gradkern.kernels.rows.problem import RowsAxis, merged
from gradkern.strides import is_dense, memory_order


def floats_of(values: Mapping[str, Any]) -> list[float]:
    """The attributes that are floats, in contract order."""
    return [each for each in values.values() if isinstance(each, float)]


def elementwise_plan(
    call: Call,
    builder: str,
    numbers: Numbers = floats_of,
    bits: str = "",
    on_device: str = "",
    more: Sequence[Any] = (),
) -> LaunchPlan | NumbersPlan | EmptyPlan:
    """The plan of a call with arrays of one shape.

    builder    "module:function" of (ElementwiseTypes, ElementwiseConfig) that calls elementwise_kernel
    numbers    at most three; of calls that have numbers on the host a single one
    bits       the input that has a bit for each element
    on_device  the input that is the only number, where it is in the device's memory
    more       constants that the builder takes besides
    """
    device = device_of(call)
    inputs = {name: each for name, each in call.inputs.items() if name != on_device}
    size = next(iter(call.outputs.values())).size
    if size == 0:
        return EmptyPlan("empty", 0, device, (0,) * len(call.outputs))
    if bits and not is_dense(inputs[bits]):
        raise Refusal(f"{bits}: its words are not adjacent; pass a contiguous copy")
    arrays = {name: each for name, each in {**inputs, **call.outputs}.items() if name != bits}
    columns, strides = _layout(arrays, in_order=bool(bits))
    held = [call.inputs[on_device].dtype.name] if on_device in call.inputs else []
    constant = numbers(call.attributes) if not held and not call.scalars else ()
    types = ElementwiseTypes(
        call.operator,
        tuple(BITS if name == bits else each.dtype.name for name, each in inputs.items()),
        tuple(each.dtype.name for each in call.outputs.values()),
        tuple(call.outputs),
        tuple(held) or ("",) * max(len(call.scalars) > 0, len(constant)),
        columns > 0,
        device.capability >= (8, 0),
    )
    places = [(each.dtype.name, each.alignment, strides.get(name, 0)) for name, each in arrays.items()]
    config = next(configs(types, widest_vector(places, columns)))
    grid = -(-size // config.block)
    if grid >= 1 << 31 or (columns and size // config.width >= 1 << 31):
        raise Refusal(f"{size} elements are more than a launch can have")
    kernel = kernel_of(
        device,
        builder,
        types,
        config,
        *more,
        name=kernel_name(operator_words(call.operator), *types.inputs[:1], config.name),
        arguments=len(ARGUMENTS),
        threads=config.threads,
    )
    of_arrays = {name: f"input_{n}" for n, name in enumerate(inputs)}
    of_arrays |= {name: f"output_{n}" for n, name in enumerate(call.outputs)}
    constants = {f"{of_arrays[name]}_stride": stride for name, stride in strides.items()} | {"size": size}
    if columns:
        vectors = columns // config.width
        constants |= dict(zip(("columns", "multiplier", "shift"), (vectors, *reciprocal(vectors)), strict=True))
    constants |= {f"number_{n}": bits_of(each, types.compute) for n, each in enumerate(constant)}
    changing = [of_arrays.get(name, "number_0") for name in call.inputs]
    changing += [*["number_0"] * bool(call.scalars), *(of_arrays[name] for name in call.outputs)]
    launch = Launch(kernel, grid, config.threads, *named(ARGUMENTS, constants, changing))
    name = f"{operator_words(call.operator)}_{config.name}"
    if call.scalars:
        return NumbersPlan(name, launch, tuple(call.scalars), call.attributes, numbers, types.compute)
    return LaunchPlan(name, launch)


def _layout(arrays: Mapping[str, Tensor], in_order: bool) -> tuple[int, dict[str, int]]:
    """The elements of a row, and bytes from row to row of each array; 0 where all elements are adjacent in an order of
    axes that all arrays have. in_order: that is C order.
    """
    tensors = list(arrays.values())
    order = range(len(tensors[-1].shape)) if in_order else memory_order(tensors[-1])
    if all(is_dense(each, order) for each in tensors):
        return 0, {}
    axes = [RowsAxis(tensors[0].shape[n], tuple(each.strides[n] for each in tensors)) for n in order]
    whole = merged([axis for axis in axes if axis.size > 1])
    adjacent = tuple(each.dtype.itemsize for each in tensors)
    aligned = all(each.alignment >= each.dtype.alignment for each in tensors)
    if len(whole) != 2 or whole[1].strides != adjacent or min(whole[0].strides) < 0 or not aligned:
        raise Refusal(f"{', '.join(arrays)}: neither adjacent in one order of memory nor rows at one distance")
    return whole[1].size, dict(zip(arrays, whole[0].strides, strict=True))
