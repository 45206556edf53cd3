"""FlattenAndUnpad on a GPU: a copy of rows. A row whose index is out of range is 0."""

from __future__ import annotations

from math import prod

from gradkern.call import Call, Refusal
from gradkern.cuda.device_code.columns import reciprocal
from gradkern.cuda.device_code.kernel_name import kernel_name
from gradkern.cuda.launch import Launch, LaunchPlan, kernel_of, named
from gradkern.cuda.rows import EmptyPlan, device_of, require_flat

ARGUMENTS = ("input", "indices", "output", "rows", "vectors", "columns", "multiplier", "shift")  # of the kernel
_THREADS = 256


def plan(call: Call) -> LaunchPlan | EmptyPlan:
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
    builder = "gradkern.ops.gather.cuda.unpad_kernel:build"
    kernel = kernel_of(device, builder, size, _THREADS, name=name, arguments=len(ARGUMENTS), threads=_THREADS)
    multiplier, shift = reciprocal(columns)
    rows = call.axes["d0"] * call.axes["d1"]
    numbers = {"rows": rows, "vectors": vectors, "columns": columns, "multiplier": multiplier, "shift": shift}
    launch = Launch(
        kernel, -(-vectors // _THREADS), _THREADS, *named(ARGUMENTS, numbers, (*call.inputs, *call.outputs))
    )
    return LaunchPlan(name, launch)
