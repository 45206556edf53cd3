"""Group norms on the CPU: the sum with a residual, the statistics of each channel, merged to those of groups, and the
output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradkern.call import Call
from gradkern.cpu.batch_norm_elements import Elements
from gradkern.cpu.batch_norm_statistics import Statistics
from gradkern.cpu.element_types import arithmetic, array_type
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.ops.group_norm import activation_of
from gradkern.ops.group_norm.cpu_channels import Channels, Wide, empty_plan, gain_and_bias, wide

_OF_CHANNELS = ("scale", "mean", "inv_std", "bias")


def plan(call: Call) -> FlatPlan:
    data, X = next(iter(call.inputs.items()))
    if X.size == 0:
        return empty_plan(call)
    output = next((name for name in ("Y", "output") if name in call.outputs), None)
    channels, saved = Channels(call, X), arithmetic(X.dtype)
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
                numbers = {**rounded, **gain_and_bias(call, given)}
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

    def __init__(self, call: Call, channels: Channels) -> None:
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
            bias = bias + wide(self._call, name, given)
        out = np.empty_like(given["X"]) if S is None else S
        named = {name: self._channels.flat(each) for name, each in {**numbers, "bias": bias}.items()}
        self._elements({"X": given["X"], "Z": given["skip"] if self.whole else None, **named, "out": out})
        return out


def _of_groups(means: Wide, variances: Wide, channels: Channels, epsilon: float) -> dict[str, Wide]:
    """Mean and inverse deviation of each group of each sample, from those of its channels."""
    means, variances = (each.reshape(channels.samples, channels.groups, -1) for each in (means, variances))
    mean = means.mean(2, keepdims=True)
    variance = (variances + (means - mean) ** 2).mean(2)
    return {"mean": mean[..., 0], "inv_std": 1 / np.sqrt(variance + epsilon)}
