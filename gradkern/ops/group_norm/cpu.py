"""Group norm's gradient on the CPU: D with an activation, sums over each channel, and dX."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from gradkern.call import Call
from gradkern.cpu.batch_norm import Apply, Reduce
from gradkern.cpu.batch_norm_elements import Elements
from gradkern.cpu.element_types import arithmetic, array_type
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.ops.group_norm import activation_of
from gradkern.ops.group_norm.cpu_channels import Channels, Wide, empty_plan, gain_and_bias, wide

_FLOAT64 = np.dtype(np.float64)
_SUMS = ("dgamma", "dbeta", "sample_scale_grad", "sample_shift_grad")


def plan(call: Call) -> FlatPlan:
    X, activation = call.inputs["X"], activation_of(call.attributes)
    if X.size == 0:
        return empty_plan(call)
    channels, compute = Channels(call, X), arithmetic(X.dtype)
    runs, number = channels.runs, array_type(compute)
    over, D_type, upstream = ("dY", "X"), argument_type(call, "dY"), None
    if activation != "none":
        over, D_type = ("", "X"), number
        kinds = dict.fromkeys(("scale", "mean", "inv_std", "bias", "out"), number)
        kinds |= {"X": argument_type(call, "X"), "D": argument_type(call, "dY")}
        upstream = Elements(runs, kinds, activation, call.attributes["activation_alpha"])
    read = (D_type, argument_type(call, "X"), types.none, number, number)
    reduce = Reduce(runs, read, types.none, (_FLOAT64, _FLOAT64))
    apply = None
    if "dX" in call.outputs:
        arrays = (D_type, argument_type(call, "X"), number, number, number)
        dX_type, residual_type = argument_type(call, "dX", over, channels.order), argument_type(call, "residual_grad")
        apply = Apply(runs, arrays, dX_type, numbers=number, residual=residual_type)

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        given = dict(zip(call.inputs, read, strict=True))
        upstream_gradient: Any = given["dY"]
        dX = write[0]
        gradients: dict[str, Any] = dict(zip(_SUMS, write[1:], strict=True))
        statistics = {name: given[name].view(call.inputs[name].dtype) for name in ("mean", "inv_std")}
        numbers = {name: channels.of_channels(each) for name, each in statistics.items()}
        numbers |= gain_and_bias(call, given)
        numbers["scale"] = numbers["scale"].astype(compute).astype(_FLOAT64)  # as in dX: terms of one element cancel
        named = {name: channels.flat(each) for name, each in numbers.items()}
        if upstream is not None:
            upstream_gradient = np.empty(X.size, compute)
            upstream({"X": given["X"], "D": given["dY"], **named, "out": upstream_gradient})
        sums = np.empty(runs.channels), np.empty(runs.channels)
        arrays = (upstream_gradient, given["X"])
        reduce((*arrays, named["scale"], named["mean"], named["inv_std"]), None, sums)
        Q, P = (each.reshape(channels.samples, channels.channels) for each in sums)
        with np.errstate(all="ignore"):  # infinities and NaN go where they go, and what a type cannot hold is infinity
            for name, each in _parameter_gradients(call, given, P, Q).items():
                if gradients[name] is not None:
                    gradients[name].view(call.outputs[name].dtype)[...] = each.reshape(-1)
            if apply is not None:
                numbers["level"], numbers["slope"] = (
                    channels.of_groups(numbers["scale"] * each) / channels.count for each in (P, Q)
                )
                numbers["slope"] *= numbers["inv_std"]
                named |= {name: channels.flat(numbers[name]) for name in ("scale", "level", "slope")}
                read_again = *arrays, named["scale"], named["mean"], named["inv_std"]
                apply(read_again, (named["slope"], named["level"]), dX, None, given.get("residual_grad"))

    return FlatPlan(
        call,
        kernel="columns" if runs.columns else "planes",
        outputs=("dX", *_SUMS),
        launch=launch,
        over=over,
        orders=dict.fromkeys(("dY", "X", "residual_grad", "dX"), channels.order),
        scratch=reduce.nbytes + 8 * 12 * runs.channels + (X.size * compute.itemsize if upstream else 0),
    )


def _parameter_gradients(call: Call, given: dict[str, np.ndarray], P: Wide, Q: Wide) -> dict[str, Wide]:
    more = 1 + wide(call, "sample_scale", given)
    gamma, beta = wide(call, "gamma", given, 1.0), wide(call, "beta", given)
    return {
        "dgamma": (more * Q).sum(0),
        "dbeta": (more * P).sum(0),
        "sample_scale_grad": gamma * Q + beta * P,
        "sample_shift_grad": P,
    }
