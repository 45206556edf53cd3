"""Group norms and their gradient on the CPU. Each channel of each sample is one of batch norm's channels, with its own
numbers.

The norm takes the sum with a residual, the statistics of each channel, merged to those of groups, and the output; the
gradient D, with an activation, sums over each channel, and dX.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numba import types

from gradkern.call import Call, Tensor
from gradkern.cpu.batch_norm import Apply, Reduce
from gradkern.cpu.batch_norm_elements import Elements
from gradkern.cpu.batch_norm_statistics import Statistics
from gradkern.cpu.element_types import arithmetic, array_type
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.runs import Runs
from gradkern.ops.group_norm import activation_of

_FLOAT64 = np.dtype(np.float64)
_SUMS = ("dgamma", "dbeta", "sample_scale_grad", "sample_shift_grad")
_OF_CHANNELS = ("scale", "mean", "inv_std", "bias")
Wide = np.ndarray[Any, np.dtype[np.float64]]
"""In float64, of shape (N, C), (N, 1) or (1, C)."""


def plan(call: Call) -> FlatPlan:
    """The plan of one of the norms, or of their gradient."""
    if next(iter(call.inputs.values())).size == 0:
        return _empty_plan(call)
    return _gradient(call) if "dY" in call.inputs else _norm(call)


def _gradient(call: Call) -> FlatPlan:
    X, activation = call.inputs["X"], activation_of(call.attributes)
    channels, compute = _Channels(call, X), arithmetic(X.dtype)
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
        numbers |= _gain_and_bias(call, given)
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
    more = 1 + _wide(call, "sample_scale", given)
    gamma, beta = _wide(call, "gamma", given, 1.0), _wide(call, "beta", given)
    return {
        "dgamma": (more * Q).sum(0),
        "dbeta": (more * P).sum(0),
        "sample_scale_grad": gamma * Q + beta * P,
        "sample_shift_grad": P,
    }


def _norm(call: Call) -> FlatPlan:
    data, X = next(iter(call.inputs.items()))
    output = next((name for name in ("Y", "output") if name in call.outputs), None)
    channels, saved = _Channels(call, X), arithmetic(X.dtype)
    over = None if "skip" in call.inputs else (data, "")
    statistics = Statistics(channels.runs, X.dtype)
    elements, kinds = None, {**dict.fromkeys(_OF_CHANNELS, array_type(saved)), "X": array_type(X.dtype)}
    if output:
        kinds["out"] = argument_type(call, output, over, channels.order)
        alpha = call.attributes.get("activation_alpha", 0.0)
        elements = Elements(channels.runs, kinds, activation_of(call.attributes), alpha)
    total = _Sum(call, channels) if "skip" in call.inputs else None

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        given = dict(zip(call.inputs, read, strict=True))
        Y, S, *found = write
        normalized = given[data] if total is None else total(given, S)
        with np.errstate(all="ignore"):  # infinities and NaN go where they go, and what a type cannot hold is infinity
            of_groups = _of_groups(*statistics(normalized), channels, call.attributes["epsilon"])
            for name, each in zip(("mean", "inv_std"), found, strict=True):
                if each is not None:
                    each.view(call.outputs[name].dtype)[...] = of_groups[name].reshape(-1)
            if elements is not None:
                rounded = {name: channels.of_channels(each.astype(saved)) for name, each in of_groups.items()}
                numbers = {**rounded, **_gain_and_bias(call, given)}
                named = {name: channels.flat(each) for name, each in numbers.items()}
                elements({"X": normalized, **named, "out": Y})

    whole = ("skip",) if total is not None and total.whole else ()
    return FlatPlan(
        call,
        kernel="forward_columns" if channels.runs.columns else "forward_planes",
        outputs=(output or "Y", "S", "mean", "inv_std"),
        launch=launch,
        over=over,
        orders=dict.fromkeys((data, *whole, "Y", "output", "S"), channels.order),
        scratch=statistics.nbytes + 8 * 8 * channels.runs.channels,
    )


class _Sum:
    """S, in the output's array, or in another where it is not wanted.

    whole: skip has a number for each element, not only for each channel of each sample.
    """

    def __init__(self, call: Call, channels: _Channels) -> None:
        X, skip = call.inputs["X"], call.inputs["skip"]
        self._call, self._channels = call, channels
        self.whole = skip.size == X.size
        kinds = {**dict.fromkeys(_OF_CHANNELS, array_type(arithmetic(X.dtype))), "X": array_type(X.dtype)}
        kinds |= {"out": array_type(X.dtype)} | ({"Z": array_type(X.dtype)} if self.whole else {})
        self._elements = Elements(channels.runs, kinds, "none")

    def __call__(self, given: Mapping[str, np.ndarray], S: np.ndarray | None) -> np.ndarray:
        numbers = {"scale": np.ones((1, 1)), "mean": np.zeros((1, 1)), "inv_std": np.ones((1, 1))}
        bias = np.zeros((1, 1))
        for name in ("bias",) if self.whole else ("bias", "skip"):
            bias = bias + _wide(self._call, name, given)
        out = np.empty_like(given["X"]) if S is None else S
        named = {name: self._channels.flat(each) for name, each in {**numbers, "bias": bias}.items()}
        self._elements({"X": given["X"], "Z": given["skip"] if self.whole else None, **named, "out": out})
        return out


def _of_groups(means: Wide, variances: Wide, channels: _Channels, epsilon: float) -> dict[str, Wide]:
    """Mean and inverse deviation of each group of each sample, from those of its channels."""
    means, variances = (each.reshape(channels.samples, channels.groups, -1) for each in (means, variances))
    mean = means.mean(2, keepdims=True)
    variance = (variances + (means - mean) ** 2).mean(2)
    return {"mean": mean[..., 0], "inv_std": 1 / np.sqrt(variance + epsilon)}


class _Channels:
    """Of a call with this data.

    order   of its axes in memory, as the kernels see them
    runs    of the channels of all samples
    count   elements of a group
    """

    def __init__(self, call: Call, X: Tensor) -> None:
        last = call.attributes.get("channels_last", 0)
        channel_axis = len(X.shape) - 1 if last else 1
        self.order, self.runs = Runs.of_tensor(X, [axis in (0, channel_axis) for axis in range(len(X.shape))])
        self.samples, self.channels = call.axes["N"], call.axes["C"]
        self.groups = call.axes.get("G", self.channels)
        self.count = prod(call.axes["spatial"]) * (self.channels // self.groups)
        self._compute = arithmetic(X.dtype)

    def of_groups(self, numbers: Wide) -> Wide:
        """The sum over the channels of each group, for each of these."""
        grouped = numbers.reshape(self.samples, self.groups, -1)
        return np.repeat(grouped.sum(2), self.channels // self.groups, 1)

    def of_channels(self, statistics: np.ndarray) -> Wide:
        """Statistics of groups, for each channel."""
        wide = statistics.astype(np.float64).reshape(self.samples, self.groups)
        return np.repeat(wide, self.channels // self.groups, 1)

    def flat(self, numbers: Wide) -> np.ndarray:
        """In the type of arithmetic, one for each channel of each sample, for a kernel."""
        return np.broadcast_to(numbers, (self.samples, self.channels)).astype(self._compute).reshape(-1)


def _empty_plan(call: Call) -> FlatPlan:
    """Of a call without elements: every output is 0, or empty."""

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        for each in write:
            each[...] = 0

    return FlatPlan(call, kernel="empty", outputs=tuple(call.outputs), launch=launch)


def _wide(call: Call, name: str, given: Mapping[str, np.ndarray], default: float = 0.0) -> Wide:
    """A parameter in float64; `default` where the call does not have it."""
    if name not in given:
        return np.full((1, 1), default)
    return given[name].view(call.inputs[name].dtype).astype(np.float64).reshape(-1, call.axes["C"])


def _gain_and_bias(call: Call, given: Mapping[str, np.ndarray]) -> dict[str, Wide]:
    """What xh is multiplied by, and what is added, before the activation."""
    more = 1 + _wide(call, "sample_scale", given)
    scale = _wide(call, "gamma" if "gamma" in given else "scale", given, 1.0)
    bias = _wide(call, next((name for name in ("beta", "B", "bias") if name in given), ""), given)
    return {"scale": scale * more, "bias": bias * more + _wide(call, "sample_shift", given)}
