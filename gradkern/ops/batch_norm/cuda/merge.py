"""Statistics of a batch in parts on a GPU: one small launch."""

from __future__ import annotations

from gradkern.call import Call
from gradkern.cuda.device_code.columns import bits_of
from gradkern.cuda.device_code.kernel_name import kernel_name
from gradkern.cuda.launch import Launch, LaunchPlan, kernel_of, named
from gradkern.cuda.rows import device_of, require_flat
from gradkern.ops.batch_norm.cuda.merge_kernel import ARGUMENTS

__all__ = ["plan"]

_THREADS = 64
_RUNNING = "running_mean", "running_var"


def plan(call: Call) -> LaunchPlan:
    """Raises Refusal for arrays with gaps."""
    for name, tensor in {**call.inputs, **call.outputs}.items():
        require_flat(name, tensor)
    parts, numbers = call.inputs["part_statistics"].shape
    dtype = call.inputs["part_statistics"].dtype.name
    kernel = kernel_of(
        device_of(call),
        "gradkern.ops.batch_norm.cuda.merge_kernel:build",
        dtype,
        next((call.outputs[name].dtype.name for name in _RUNNING if name in call.outputs), dtype),
        call.attributes["epsilon"],
        tuple(call.outputs),
        name=kernel_name("batch_norm_merge", dtype),
        arguments=len(ARGUMENTS),
        threads=_THREADS,
    )
    channels = numbers // 2
    momentum = bits_of(call.attributes["momentum"], "float64")
    values = {"parts": parts, "channels": channels, "momentum": momentum}
    grid = channels // _THREADS + 1
    return LaunchPlan("merge", Launch(kernel, grid, _THREADS, *named(ARGUMENTS, values, [*call.inputs, *call.outputs])))
