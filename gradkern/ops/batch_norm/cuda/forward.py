"""BatchNormalization in training on a GPU: the streaming kernel, one pass for the statistics and one, in reverse order,
for Y, in one launch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from gradkern.call import Call, Refusal
from gradkern.cuda.device import Device, activate, check, driver
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


def plan(call: Call) -> LaunchPlan | LaunchesPlan | EmptyBatchPlan | EmptyPlan:
    """Raises Refusal for arrays with gaps."""
    for name, tensor in call.outputs.items():
        if overlaps_itself(tensor):
            raise Refusal(f"{name}: elements of it share memory")
    X, attributes = call.inputs["X"], call.attributes
    if not X.size or not call.outputs:
        return EmptyBatchPlan.of(call, device_of(call))
    m = X.size // X.shape[1]
    correction = 1.0 if not attributes["unbiased"] else m / (m - 1) if m > 1 else inf  # inf * 0 is NaN for one element
    numbers = {"epsilon": attributes["epsilon"], "momentum": attributes["momentum"], "correction": correction}
    settings = {name: bits_of(value, X.dtype.name) for name, value in numbers.items()}
    is_channel_axis = [axis == 1 for axis in range(len(X.shape))]
    activation = with_alpha(attributes)
    return streaming_plan.plan(call, _NAMES, is_channel_axis, None, m, settings, activation=activation)


@dataclass(frozen=True, slots=True)
class EmptyBatchPlan:
    """The plan of an empty batch: statistics are zero, and running statistics do not change. For each output its bytes,
    and the input that it is a copy of.
    """

    device: Device
    outputs: tuple[tuple[int, int | None], ...]
    kernel: str = "empty"
    scratch: int = 0

    @classmethod
    def of(cls, call: Call, device: Device) -> EmptyBatchPlan:
        inputs = list(call.inputs)
        sources = {name: inputs.index(each) for name, each in _COPIES.items() if each in inputs}
        return cls(device, tuple((tensor.nbytes, sources.get(name)) for name, tensor in call.outputs.items()))

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        with activate(self.device):
            for address, (size, source) in zip(outputs, self.outputs, strict=True):
                if size and source is None:
                    check(driver.cuMemsetD8Async(address, 0, size, stream), "writing zeros")
                elif size and source is not None and inputs[source] != address:
                    check(driver.cuMemcpyDtoDAsync(address, inputs[source], size, stream), "copying statistics")
