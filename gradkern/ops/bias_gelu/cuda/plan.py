"""GELU and its gradients on a GPU: from a call to a launch of the kernel."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from gradkern.call import Call
from gradkern.cuda.device import Device
from gradkern.cuda.launch import LaunchPlan
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.rows import EmptyPlan, device_of, require_flat, row_stride, size_of
from gradkern.kernels.channels.tiles_config import LINE, VECTOR, with_fold
from gradkern.kernels.channels.tiles_plan import has_long_rows, parameters_at_once, tiles_plan
from gradkern.ops.bias_gelu.cuda.config import BiasGeluConfig, choose

_NAMES = {  # contract name -> the kernel's
    "dY": "D",
    "X": "X",
    "A": "X",
    "B": "first_parameter",
    "dX": "dX",
    "C": "dX",
    "dB": "first_sum",
}

LINES = 2 * LINE  # bytes: rows that are not whole lines are folded to a multiple
LEAST_ROWS = 64  # of the kernel: with fewer, many rows of its tiles are beyond the last


def plan(call: Call) -> LaunchPlan | LaunchesPlan | EmptyPlan:
    """The plan of one of the two GELUs, or of a gradient, on `call.device`."""
    device = device_of(call)
    tensors = {**call.inputs, **call.outputs}
    rows, columns = size_of(call.axes["rows"]), size_of(call.axes["columns"])
    for name in tensors.keys() & {"B", "dB"}:
        require_flat(name, tensors[name])
    row_axes = len(call.axes["rows"])
    strides = {
        _NAMES[name]: row_stride(name, tensor, row_axes) for name, tensor in tensors.items() if name not in ("B", "dB")
    }
    if rows == 0 or columns == 0 or not call.outputs:
        return EmptyPlan("empty", 0, device, tuple(each.nbytes for each in call.outputs.values()))

    config, fold = _config(call, rows, columns, strides, device)
    config = choose(config, columns * fold, -(-rows // fold), device.processors)
    name = ("fast_gelu" if config.fast else "gelu") + ("_forward" if config.forward else "")
    given = [_NAMES[each] for each in tensors]
    builder = "gradkern.ops.bias_gelu.cuda.kernel:build"
    return tiles_plan(name, builder, config, (rows, columns), fold, strides, given, device)


def _fold(rows: int, columns: int, itemsize: int, width: int, dX_alone: bool) -> int:
    """Rows of the array in a row of the kernel, such that it is a whole number of vectors, or of cache lines.

    For dB whole vectors are enough: with lines, folded rows would be few and wide, with many partial sums. GELU itself
    reads half as much and was 5 % slower with lines.
    """
    vectors, lines = (each // gcd(columns, each) for each in (width, LINES // itemsize))
    unaligned = columns * itemsize % LINE != 0
    return lines if unaligned and dX_alone and width * itemsize == VECTOR and rows >= LEAST_ROWS * lines else vectors


def _config(call: Call, rows: int, columns: int, strides: dict[str, int], device: Device) -> tuple[BiasGeluConfig, int]:
    """The config without threads, and the number of folded rows: vectors as wide as alignment allows."""
    data = [tensor for name, tensor in {**call.inputs, **call.outputs}.items() if name not in ("B", "dB")]
    dtype, B = data[0].dtype, call.inputs["B"]
    itemsize = dtype.itemsize
    packed = all(stride == columns * itemsize for stride in strides.values())
    width = VECTOR // itemsize
    while width > 1 and any(each.alignment % (width * itemsize) for each in data):
        width //= 2
    sums = "dB" in call.outputs
    fold = _fold(rows, columns, itemsize, width, dX_alone="dY" in call.inputs and not sums)
    config = BiasGeluConfig(
        operator=call.operator,
        data=dtype.name,
        parameter=B.dtype.name,
        outputs=tuple("dX" if name == "C" else name for name in call.outputs),
        width=width,
        parameters_at_once=parameters_at_once(width, columns, [B]),
        native_bfloat16=device.capability >= (8, 0),
    )
    if not packed or rows < fold or columns * fold >= 1 << 31:
        while columns % width or any(rows > 1 and stride % (width * itemsize) for stride in strides.values()):
            width //= 2
        config, fold = config.with_width(width), 1
    elif sums:
        config, fold = with_fold(config, columns, rows, device.processors)
    long_rows = has_long_rows(rows, fold * columns, [fold * stride for stride in strides.values()])
    return replace(config, folded=fold > 1, fold=fold if sums else 1, long_rows=long_rows), fold
