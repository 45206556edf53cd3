"""Group norm's gradient on the CPU: D with an activation, sums over each channel, and dX."""

from __future__ import annotations

from math import prod
from typing import Any

import numba
import numpy as np
from numba import types

from gradkern.call import Call
from gradkern.cpu import threads
from gradkern.cpu.batch_norm import Reduce
from gradkern.cpu.batch_norm_elements import Elements
from gradkern.cpu.compile import AS_WRITTEN, kernel
from gradkern.cpu.element_types import arithmetic, array_type, destination, load, store, zeros
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.runs import RUNS_TYPES, column_task, plane_task
from gradkern.cpu.threads import QUEUE, take
from gradkern.ops.group_norm import activation_of
from gradkern.ops.group_norm.cpu_channels import Channels, Wide, empty_plan, gain_and_bias, wide

__all__ = ["plan"]

_FLOAT64 = np.dtype(np.float64)
_SUMS = ("dgamma", "dbeta", "sample_scale_grad", "sample_shift_grad")
_NUMBERS = ("scale", "mean", "inv_std", "level", "slope")


@numba.njit(**AS_WRITTEN)
def _gradient(d: float, x: float, gain: float, mu: float, r: float, level: float, slope: float) -> float:
    """slope: the second sum's mean, times r."""
    return r * ((gain * d - level) - (x - mu) * slope)


@kernel
def _planes(
    queue: Any, D: Any, X: Any, residual: Any, dX: Any, scale: Any, mean: Any, inv_std: Any, levels: Any, slopes: Any,
    channel_offsets: Any, reduced_offsets: Any, length: int, channels_per_task: int, reduced_per_task: int,
    run_per_task: int, repeats: int,
) -> None:  # fmt: skip
    """dX of runs of elements of one channel; see runs. residual may be None."""
    target = destination(dX, D, X)
    task = take(queue)
    while task >= 0:
        _, first_channel, last_channel, first, last, begin, end = plane_task(
            task, channel_offsets.size, reduced_offsets.size, length, channels_per_task, reduced_per_task, run_per_task
        )
        for index in range(first, last):
            for channel in range(first_channel, last_channel):
                offset = channel_offsets[channel] + reduced_offsets[index]
                gain, mu, r = load(scale, channel), load(mean, channel), load(inv_std, channel)
                level, slope = load(levels, channel), load(slopes, channel)
                for at in range(offset + begin, offset + end):
                    value = _gradient(load(D, at), load(X, at), gain, mu, r, level, slope)
                    if residual is not None:
                        value += load(residual, at)
                    store(target, at, value)
        task = take(queue)


@kernel
def _columns(
    queue: Any, D: Any, X: Any, residual: Any, dX: Any, scale: Any, mean: Any, inv_std: Any, levels: Any, slopes: Any,
    channel_offsets: Any, reduced_offsets: Any, length: int, channels_per_task: int, reduced_per_task: int,
    run_per_task: int, repeats: int,
) -> None:  # fmt: skip
    """The same for columns, each its own channel."""
    target = destination(dX, D, X)
    task = take(queue)
    while task >= 0:
        _, channel_index, first, last, begin, width = column_task(
            task, channel_offsets.size, reduced_offsets.size, length, reduced_per_task, run_per_task
        )
        columns = width // repeats
        gain, mu, r, level, slope = zeros(X, width), zeros(X, width), zeros(X, width), zeros(X, width), zeros(X, width)
        for column in range(width):
            channel = channel_index * length + begin + column % columns
            gain[column], mu[column], r[column] = load(scale, channel), load(mean, channel), load(inv_std, channel)
            level[column], slope[column] = load(levels, channel), load(slopes, channel)
        for index in range(first, last):
            offset = channel_offsets[channel_index] + reduced_offsets[index] + begin
            for column in range(min(width, D.size - offset)):
                at = offset + column
                value = _gradient(
                    load(D, at), load(X, at), load(gain, column), load(mu, column), load(r, column),
                    load(level, column), load(slope, column),
                )  # fmt: skip
                if residual is not None:
                    value += load(residual, at)
                store(target, at, value)
        task = take(queue)


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
        arrays = (D_type, argument_type(call, "X"), argument_type(call, "residual_grad"))
        dX_type = argument_type(call, "dX", over, channels.order)
        apply = (_columns if runs.columns else _planes)(QUEUE, *arrays, dX_type, *(number,) * 5, *RUNS_TYPES)
    tasks, nbytes = prod(runs.parts), 3 * X.nbytes

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
                flat = [channels.flat(numbers[name]) for name in _NUMBERS]
                residual = given.get("residual_grad")
                threads.run(apply, tasks, nbytes, *arrays, residual, dX, *flat, *runs.arguments)

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
