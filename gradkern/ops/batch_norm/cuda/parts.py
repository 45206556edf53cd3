"""A batch in parts on a GPU, one pass over memory for each step: statistics or sums of a part as one message; those of
all parts merged; and Y or dX of a part from those of all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gradkern.call import Call, Tensor
from gradkern.cuda.device_code.columns import bits_of
from gradkern.cuda.device_code.kernel_name import kernel_name
from gradkern.cuda.launch import Launch, LaunchPlan, kernel_of, named
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.rows import EmptyPlan, device_of, require_flat
from gradkern.kernels.channels import streaming_plan

NAMES = {  # contract name -> the kernel's
    "dY": "D",
    "X": "X",
    "Scale": "scale",
    "saved_mean": "mean",
    "saved_inv_std": "deviation",
    "B": "bias",
    "Y": "Y",
    "dY2": "D2",
    "dX": "dX",
    "dScale": "scale_sum",
    "dBias": "bias_sum",
    "dZ": "dZ",
}
_TOTALS = {"dScale": "scale_total", "dBias": "bias_total", "counts": "counts"}  # as inputs
_MESSAGES = {"part_statistics": ("mean", "deviation"), "sums": ("scale_total", "bias_total")}
"""Outputs that begin with two arrays of the kernel."""
MERGE_ARGUMENTS = (  # of the kernel that merges: addresses, then numbers; momentum as the bits of a float64
    *("part_statistics", "input_mean", "input_var", "statistics", "sample_statistics", "running_mean", "running_var"),
    *("parts", "channels", "momentum"),
)
_MERGE_THREADS = 64
_RUNNING = "running_mean", "running_var"


def plan(call: Call) -> LaunchPlan | LaunchesPlan | PackedPlan | EmptyPlan:
    """The plan of one of the steps. Raises Refusal for arrays with gaps."""
    if "X" not in call.inputs:
        return _merged(call)
    X = call.inputs["X"]
    is_channel_axis = [axis == 1 for axis in range(len(X.shape))]
    message = next((name for name in _MESSAGES if name in call.outputs), None)
    if message is None:
        names = {**NAMES, "scale": "scale", **{name: _TOTALS[name] for name in _TOTALS if name in call.inputs}}
        elements = call.axes["parts"] if "counts" in call.inputs else call.attributes.get("count")
        return streaming_plan.plan(call, names, is_channel_axis, None, elements)
    require_flat(message, call.outputs[message])
    if not X.size:
        return EmptyPlan("empty", 0, device_of(call), tuple(each.nbytes for each in call.outputs.values()))
    inner, offset = _unpacked(call, message)
    names = {**NAMES, **{each: each for each in _MESSAGES[message]}}
    if message == "sums":
        made = streaming_plan.plan(inner, names, is_channel_axis, None)
    else:
        made = streaming_plan.plan(inner, names, is_channel_axis, None, X.size // X.shape[1], settings={}, message=True)
    assert not isinstance(made, EmptyPlan)  # because the part is not empty
    return PackedPlan(made, offset)


@dataclass(frozen=True, slots=True)
class PackedPlan:
    """A plan whose kernel writes two arrays that form one output: the last is `offset` bytes behind the previous."""

    plan: LaunchPlan | LaunchesPlan
    offset: int

    @property
    def kernel(self) -> str:
        return self.plan.kernel

    @property
    def scratch(self) -> int:
        return self.plan.scratch

    @property
    def launches(self) -> tuple[Launch, ...]:
        return self.plan.launches

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        self.plan(inputs, (*outputs, outputs[-1] + self.offset), stream)


def _unpacked(call: Call, message: str) -> tuple[Call, int]:
    """The call with two outputs of C numbers in place of its last output, the message; and the bytes from the first to
    the second.
    """
    whole, channels = call.outputs[message], call.inputs["X"].shape[1]
    item = whole.dtype.itemsize
    offset = channels * item
    one = Tensor(whole.dtype, (channels,), (item,), whole.alignment)
    two = one._replace(alignment=min(whole.alignment, offset & -offset))
    outputs = {name: each for name, each in call.outputs.items() if name != message}
    return replace(call, outputs={**outputs, **dict(zip(_MESSAGES[message], (one, two), strict=True))}), offset


def _merged(call: Call) -> LaunchPlan:
    """Statistics of all parts: one small launch."""
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
        arguments=len(MERGE_ARGUMENTS),
        threads=_MERGE_THREADS,
    )
    channels = numbers // 2
    momentum = bits_of(call.attributes["momentum"], "float64")
    values = {"parts": parts, "channels": channels, "momentum": momentum}
    grid = channels // _MERGE_THREADS + 1
    arguments = named(MERGE_ARGUMENTS, values, [*call.inputs, *call.outputs])
    return LaunchPlan("merge", Launch(kernel, grid, _MERGE_THREADS, *arguments))
