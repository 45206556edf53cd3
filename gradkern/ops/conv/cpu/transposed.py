"""ConvTranspose and ConvTransposeGrad on the CPU, by the plans of Conv and ConvGrad: see ops.conv.transposed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gradkern.call import Call, Plan, Tensor
from gradkern.cpu.element_types import arithmetic
from gradkern.ops.conv.cpu import plan as convolution
from gradkern.ops.conv.transposed import NAMES, convolution_of
from gradkern.strides import c_strides

__all__ = ["SELECTS_BY_NAME", "plan"]

SELECTS_BY_NAME = True  # of Policy.kernel


def plan(call: Call) -> Plan:
    """The plan of the kernels the policy pins, else of the fastest that take the call."""
    return _Output(call) if "Y" in call.outputs else _Gradients(call)


class _Output:
    """Y is dX of the convolution. With a bias it is added in the arithmetic type, before the one rounding."""

    def __init__(self, call: Call) -> None:
        self._dtype = call.inputs["X"].dtype
        self._widened = "B" in call.inputs and arithmetic(self._dtype) != self._dtype
        inputs = {name: call.inputs[name] for name in ("X", "W")} | {"Y": call.outputs["Y"]}
        copies = {name: self._wide(each) if self._widened else each for name, each in inputs.items()}
        ours = convolution_of(replace(call, inputs={name: copies[name] for name in ("X", "W")}))
        dX = copies["Y"]
        # The kernel of dX looks at X's type and shape alone; dX stands for it.
        given = {"dY": copies["X"], "X": dX, "W": copies["W"]}
        self._plan = convolution.plan(replace(ours, operator="ConvGrad", inputs=given, outputs={"dX": dX}))
        self.kernel = self._plan.kernel
        self.scratch = self._plan.scratch + self._widened * sum(each.nbytes for each in copies.values())

    def _wide(self, tensor: Tensor) -> Tensor:
        dtype = arithmetic(self._dtype)
        return Tensor(dtype, tensor.shape, c_strides(tensor.shape, dtype.itemsize), dtype.itemsize)

    def __call__(self, inputs: tuple[np.ndarray, ...], outputs: tuple[np.ndarray, ...], stream: Any = None) -> None:
        (data, weights, *bias), (Y,) = inputs, outputs
        result = Y
        if self._widened:
            dtype = arithmetic(self._dtype)
            data, weights = (np.ascontiguousarray(each, dtype) for each in (data, weights))
            result = np.empty(Y.shape, dtype)
        self._plan((data, result, weights), (result,), stream)
        with np.errstate(all="ignore"):  # overflow and NaN are results, here as in kernels
            if bias:
                result += bias[0].astype(result.dtype).reshape(-1, *[1] * (Y.ndim - 2))
            if result is not Y:
                Y[...] = result


class _Gradients:
    """dX is Y of the convolution, dW its dW with X and dY exchanged, and dB the sum of dY."""

    def __init__(self, call: Call) -> None:
        pins = _pins(call.policy.kernel)
        names, ours = list(call.outputs), convolution_of(call)
        self._steps: list[tuple[Plan, tuple[int, ...], int]] = []
        for place, name in enumerate(names):
            result = {NAMES.get(name, name): call.outputs[name]}
            each = replace(ours, outputs=result, policy=replace(call.policy, kernel=pins.get(name, pins.get(""))))
            if name == "dX":
                inputs = {key: ours.inputs[key] for key in ("X", "W")}
                self._steps.append((convolution.plan(replace(each, operator="Conv", inputs=inputs)), (0, 2), place))
            elif name == "dW":
                inputs = {key: ours.inputs[key] for key in ("dY", "X", "W")}
                self._steps.append(
                    (convolution.plan(replace(each, operator="ConvGrad", inputs=inputs)), (1, 0, 2), place)
                )
            else:
                self._steps.append((convolution.channel_sums(call), (0,), place))
        kernels = {name: made.kernel for name, (made, _, _) in zip(names, self._steps, strict=True) if name != "dB"}
        same = len({*kernels.values()}) <= 1
        self.kernel = next(iter(kernels.values()), "sums") if same else "; ".join(map(": ".join, kernels.items()))
        self.scratch = max((made.scratch for made, _, _ in self._steps), default=0)

    def __call__(self, inputs: tuple[np.ndarray, ...], outputs: tuple[np.ndarray, ...], stream: Any = None) -> None:
        for made, places, place in self._steps:
            made(tuple(inputs[each] for each in places), (outputs[place],), stream)


def _pins(pinned: str | None) -> dict[str, str]:
    """The kernel of each gradient, or of "" for all: "direct", or as a plan's `kernel` "dX: direct; dW: pointwise"."""
    if pinned is None or ": " not in pinned:
        return {} if pinned is None else {"": pinned}
    return dict(each.split(": ", 1) for each in pinned.split("; "))
