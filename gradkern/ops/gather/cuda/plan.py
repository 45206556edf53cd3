"""The gradients of gathers and slices on a GPU: sums of rows with equal keys, of the segment block; or one pass that
writes every element of dX, zero or an element of dY. FlattenAndUnpad is a copy of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.device_code.columns import reciprocal
from gradkern.cuda.device_code.kernel_name import kernel_name, operator_words
from gradkern.cuda.launch import Launch, LaunchPlan, kernel_of, named
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.rows import EmptyPlan, device_of, require_flat
from gradkern.kernels.elementwise.config import widest_vector
from gradkern.kernels.segments.plan import Keys, segments_plan
from gradkern.ops.gather import ranges_of
from gradkern.ops.gather.cuda.config import OF_AXIS, SliceConfig, arguments
from gradkern.ops.gather.keys import gather_of
from gradkern.strides import is_aligned, is_dense, memory_order

ARGUMENTS = ("input", "indices", "output", "rows", "vectors", "columns", "multiplier", "shift")
"""Of the kernel of FlattenAndUnpad."""
_THREADS = 256
_VECTOR = 16  # bytes of one access, at most


def plan(call: Call) -> LaunchesPlan | LaunchPlan | EmptyPlan:
    """The plan of one of the operators on `call.device`."""
    if "Slice" in call.operator:
        return _slice_plan(call)
    if call.operator == "FlattenAndUnpad":
        return _kept_rows(call)
    gather = gather_of(call)
    keys = Keys(gather.sizes, gather.strides, gather.bounds, gather.steps, gather.dropped)
    builder = "gradkern.ops.gather.cuda.kernel:build"
    return segments_plan(call, builder, gather.source, keys, gather.count, gather.rows, gather.columns)


@dataclass(frozen=True, slots=True)
class _Axis:
    """Of dX: element first + step k is the k-th of `count` of dY, `stride` bytes behind the one before."""

    size: int
    first: int
    count: int
    step: int
    stride: int


def _slice_plan(call: Call) -> LaunchPlan | EmptyPlan:
    (dY,), ((name, dX),) = call.inputs.values(), call.outputs.items()
    device = device_of(call)
    if dY.size == 0:
        return EmptyPlan("empty", 0, device, (dX.nbytes,))
    if not is_dense(dX, memory_order(dX)):
        raise Refusal(f"{name}: its elements are not adjacent in memory; pass a contiguous array")
    axes, offset = _axes(call, dY, dX)
    *others, last = axes
    if not is_aligned(dY) or any(0 < abs(each.stride) < abs(last.stride) for each in others if each.count > 1):
        raise Refusal(f"{next(iter(call.inputs))}: it is not in the memory order of {name}; pass a contiguous copy")
    size, kind = dX.dtype.itemsize, dX.dtype.name
    written = min(_VECTOR // size, widest_vector([(kind, dX.alignment, 0)], last.size))
    read = 1
    if last.step == 1 and last.stride == size:
        distances = (offset, last.first * size, *(each.stride for each in others))
        read = min(written, widest_vector([(kind, dY.alignment, each) for each in distances], last.count))
    vectors = dX.size // written
    config = SliceConfig(size, written, read, len(axes), _THREADS)
    grid = -(-vectors // (config.vectors * config.threads))
    if max(vectors, *(each.size for each in axes)) >= 1 << 31:
        raise Refusal(f"{name}: {vectors} vectors of {size * written} bytes are more than its kernel counts")
    names = arguments(config.axes)
    kernel = kernel_of(
        device, "gradkern.ops.gather.cuda.copy_kernel:build_slice", config,
        name=kernel_name(operator_words(call.operator), config.name), arguments=len(names), threads=config.threads,
    )  # fmt: skip
    numbers = {"offset": offset, "vectors": vectors}
    for n, axis in enumerate(axes):
        length = axis.size // (written if n == len(axes) - 1 else 1)
        of_axis = (length, *reciprocal(length), axis.first, axis.count, axis.step, *reciprocal(axis.step), axis.stride)
        numbers |= {f"{each}_{n}": value for each, value in zip(OF_AXIS, of_axis, strict=True)}
    launch = Launch(kernel, grid, config.threads, *named(names, numbers, ("dY", "dX")))
    return LaunchPlan(f"{operator_words(call.operator)}_{config.name}", launch)


def _axes(call: Call, dY: Tensor, dX: Tensor) -> tuple[list[_Axis], int]:
    """The axes of dX, from the slowest to the fastest, and the distance of the first element of dY that dX has, in
    bytes. Neighbours are one axis where they can be. Steps are positive: of an axis that was read backwards the
    elements of dY count from the end.
    """
    axes, offset, ranges = list[_Axis](), 0, ranges_of(call.attributes, dX.shape)
    for n in memory_order(dX):
        size, each, stride = dX.shape[n], ranges[n], dY.strides[n] if dY.shape[n] > 1 else 0
        if size == 1:
            continue
        if each.step < 0:
            each, offset, stride = each[::-1], offset + (len(each) - 1) * stride, -stride
        axis = _Axis(size, each.start, len(each), each.step if len(each) > 1 else 1, stride)
        before = axes[-1] if axes else axis
        adjacent = before.step == 1 and (before.count == 1 or before.stride == size * stride)
        if axes and axis.count == size and adjacent and before.size * size < 1 << 31:
            axes[-1] = _Axis(before.size * size, before.first * size, before.count * size, 1, stride)
        else:
            axes.append(axis)
    return axes or [_Axis(1, 0, 1, 1, 0)], offset


def _kept_rows(call: Call) -> LaunchPlan | EmptyPlan:
    """Of FlattenAndUnpad. A row whose index is out of range is 0."""
    device, output = device_of(call), call.outputs["output"]
    if output.size == 0:
        return EmptyPlan("empty", 0, device, (0,))
    for name, tensor in {**call.inputs, **call.outputs}.items():
        require_flat(name, tensor)
    nbytes = prod(call.axes["after"]) * output.dtype.itemsize
    size = min(16, nbytes & -nbytes, call.inputs["input"].alignment, output.alignment)
    columns = nbytes // size
    vectors = call.axes["total"] * columns
    if vectors >= 1 << 31:
        raise Refusal(f"{vectors} vectors of {size} bytes are more than its kernel counts")
    name = kernel_name("flatten_and_unpad", f"{size}_bytes")
    builder = "gradkern.ops.gather.cuda.copy_kernel:build_rows"
    kernel = kernel_of(device, builder, size, _THREADS, name=name, arguments=len(ARGUMENTS), threads=_THREADS)
    multiplier, shift = reciprocal(columns)
    rows = call.axes["d0"] * call.axes["d1"]
    numbers = {"rows": rows, "vectors": vectors, "columns": columns, "multiplier": multiplier, "shift": shift}
    launch = Launch(
        kernel, -(-vectors // _THREADS), _THREADS, *named(ARGUMENTS, numbers, (*call.inputs, *call.outputs))
    )
    return LaunchPlan(name, launch)
