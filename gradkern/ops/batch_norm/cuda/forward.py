"""BatchNormalization in training on a GPU: the streaming kernel, one pass for the statistics and one, in reverse order,
for Y, in one launch.
"""

from __future__ import annotations

from math import inf

from gradkern.call import Call, Refusal
from gradkern.cuda.device_code.columns import bits_of
from gradkern.cuda.launch import LaunchPlan
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.rows import EmptyPlan, device_of
from gradkern.kernels.channels import streaming_plan
from gradkern.kernels.channels.activation_alpha import with_alpha
from gradkern.strides import overlaps_itself

_NAMES = {  # contract name -> the kernel's
    **{name: name for name in ("X", "Z", "Y", "scale", "input_mean", "input_var", "running_mean", "running_var")},
    "B": "bias",
    "saved_mean": "mean",
    "saved_inv_std": "deviation",
}
_COPIES = {"running_mean": "input_mean", "running_var": "input_var"}  # for an empty batch


def plan(call: Call) -> LaunchPlan | LaunchesPlan | EmptyPlan:
    """Raises Refusal for arrays with gaps."""
    for name, tensor in call.outputs.items():
        if overlaps_itself(tensor):
            raise Refusal(f"{name}: elements of it share memory")
    X, attributes = call.inputs["X"], call.attributes
    if not X.size or not call.outputs:
        inputs = list(call.inputs)
        copies = tuple(inputs.index(_COPIES[name]) if _COPIES.get(name) in inputs else None for name in call.outputs)
        sizes = tuple(each.nbytes for each in call.outputs.values())
        return EmptyPlan("empty", 0, device_of(call), sizes, copies=copies)
    m = X.size // X.shape[1]
    correction = 1.0 if not attributes["unbiased"] else m / (m - 1) if m > 1 else inf  # inf * 0 is NaN for one element
    numbers = {"epsilon": attributes["epsilon"], "momentum": attributes["momentum"], "correction": correction}
    settings = {name: bits_of(value, X.dtype.name) for name, value in numbers.items()}
    is_channel_axis = [axis == 1 for axis in range(len(X.shape))]
    activation = with_alpha(attributes)
    return streaming_plan.plan(call, _NAMES, is_channel_axis, None, m, settings, activation=activation)
