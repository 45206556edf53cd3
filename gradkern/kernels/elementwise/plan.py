"""From a call to a launch of the element-wise block, or to those of a number that all elements of its arrays add to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.device_code.columns import bits_of, reciprocal
from gradkern.cuda.device_code.kernel_name import kernel_name, operator_words
from gradkern.cuda.launch import Launch, LaunchPlan, kernel_of, named
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.numbers_plan import Numbers, NumbersPlan
from gradkern.cuda.rows import EmptyPlan, device_of
from gradkern.kernels.elementwise.config import (
    ARGUMENTS,
    ARRAYS,
    BITS,
    SUM_ARGUMENTS,
    ElementwiseTypes,
    TotalsConfig,
    arguments_of,
    configs,
    numbers_of,
    widest_vector,
)
from gradkern.kernels.rows.problem import RowsAxis, merged
from gradkern.strides import is_dense, memory_order

_BLOCKS, _THREADS = 8, 256  # of totals: of a multiprocessor, at most, and of a block


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


def totals_plan(call: Call, parts_builder: str, sum_builder: str, *more: Any) -> LaunchesPlan:
    """The plan of a call with arrays of one type and one number. Every array has blocks of its own, as its share of all
    elements is; a launch is of up to 32 arrays.

    parts_builder, sum_builder: "module:function" of (TotalsConfig, the arrays of a launch, *more) and of (threads, the
    output's type, *more, whether the device converts to bfloat16)
    """
    device, (output,) = device_of(call), call.outputs.values()
    for name, tensor in call.inputs.items():
        if not is_dense(tensor, memory_order(tensor)):
            raise Refusal(f"{name}: its elements are not adjacent in memory")
    tensors = list(call.inputs.values())
    dtype, alignment, words = tensors[0].dtype, min(each.alignment for each in tensors), operator_words(call.operator)
    width = min(widest_vector([(dtype.name, alignment, 0)]), 16 // dtype.itemsize)
    config = TotalsConfig(dtype.name, width, threads=_THREADS)
    span, most = width * config.vectors * _THREADS, _BLOCKS * device.processors
    total = sum(each.size for each in tensors)
    blocks = {
        place: min(-(-each.size // span), max(1, most * each.size // total))
        for place, each in enumerate(tensors)
        if each.size
    }
    arrays = 1 if len(tensors) == 1 else ARRAYS
    names = arguments_of("parts", arrays)
    steps, firsts, done = list[tuple[Launch, tuple[int, ...]]](), list[int](), 0  # firsts: parts before each launch's
    output_at, parts_at = len(tensors), len(tensors) + 1  # places among the addresses
    for first in range(0, len(blocks), arrays):
        places = tuple(blocks)[first : first + arrays]
        kernel = kernel_of(
            device, parts_builder, config, arrays, *more,
            name=kernel_name(words, dtype.name, config.name, f"of_{arrays}"), arguments=len(names), threads=_THREADS,
        )  # fmt: skip
        own = [blocks[place] for place in places]
        numbers = numbers_of([tensors[place].size for place in places], own, arrays)
        given = ("parts", *(f"input_{n}" for n in range(len(places))))
        launch = Launch(kernel, sum(own), _THREADS, *named(names, numbers, given))
        steps.append((launch, (parts_at + len(firsts), *places)))
        firsts.append(done)
        done += sum(own)
    kernel = kernel_of(
        device, sum_builder, _THREADS, output.dtype.name, *more, device.capability >= (8, 0),
        name=kernel_name(words, output.dtype.name, "sum"), arguments=len(SUM_ARGUMENTS), threads=_THREADS,
    )  # fmt: skip
    added = Launch(kernel, 1, _THREADS, *named(SUM_ARGUMENTS, {"count": done}, ("parts", "output")))
    launches, places = zip(*steps, (added, (parts_at, output_at)), strict=True)
    offsets = tuple(8 * first for first in firsts or [0])
    return LaunchesPlan(f"{words}_{config.name}", 8 * max(1, done), launches, places, offsets, device)
