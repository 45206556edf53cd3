"""Batch norm and its gradient on the CPU, of a batch or of one in parts.

The norm takes the statistics in two passes, unless they are given, and the output in another; the gradient the sums in
one pass, unless they are given, and dX in another. With an activation, a second gradient or a residual one more pass
comes before these: D, the gradient that comes through the activation, in the type of the arithmetic. It is dZ itself
where that has this type. Statistics of a part are one message; those of all parts are merged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numba import types

from gradkern.call import Call
from gradkern.cpu.batch_norm import Apply, Reduce
from gradkern.cpu.batch_norm_elements import Elements
from gradkern.cpu.batch_norm_statistics import Statistics
from gradkern.cpu.element_types import arithmetic, array_type
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.runs import Runs

_READ = ("dY", "X", "Scale", "saved_mean", "saved_inv_std")
_SUMS = ("dScale", "dBias")
_OF_UPSTREAM = dict(
    zip(("D", "X", "scale", "mean", "inv_std", "bias", "D2", "Y"), (*_READ, "B", "dY2", "Y"), strict=True)
)
_OVER = ("X", "Z")
_OUTPUTS = ("Y", "running_mean", "running_var", "saved_mean", "saved_inv_std")
_OF_ELEMENTS = {"X": "X", "scale": "scale", "bias": "B", "Z": "Z", "mean": "saved_mean", "inv_std": "saved_inv_std"}
_RUNNING = {"input_mean": "running_mean", "input_var": "running_var"}
_FLOAT64 = np.dtype(np.float64)
_Order = tuple[int, ...] | None


def plan(call: Call) -> FlatPlan | MergePlan:
    """The plan of the norm, of its gradient, or of one of their steps."""
    if "X" not in call.inputs:
        return MergePlan(call)
    X = call.inputs["X"]
    order, runs = Runs.of_tensor(X, [axis == 1 for axis in range(len(X.shape))])
    if "dY" in call.inputs:
        return _gradient(call, order, runs.by_channel(2 * X.dtype.itemsize))
    return (_statistics if "part_statistics" in call.outputs else _norm)(call, order, runs)


def _gradient(call: Call, order: _Order, runs: Runs) -> FlatPlan:
    outputs = call.outputs
    upstream = _Upstream(call, runs) if _Upstream.needed(call) else None
    over = ("dY", "X") if upstream is None else ("", "X")  # D is in another array than dY's
    types_read = [argument_type(call, name) for name in _READ]
    if upstream is not None:
        types_read[0] = upstream.type
    wanted = "dX" in outputs
    every = wanted or "sums" in outputs
    summed = [name for name in _SUMS if name not in call.inputs and (every or name in outputs)]
    count = call.attributes.get("count", runs.count)
    in_one = wanted and len(summed) == len(_SUMS) and count is not None and runs.whole_channels
    reduce = None
    if summed and not in_one:
        totals = [_FLOAT64 if name in summed else None for name in _SUMS]
        reduce = Reduce(runs, types_read, types.none, totals)
    apply = Apply(runs, types_read, argument_type(call, "dX", over, order), in_one) if wanted else None

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        inputs = dict(zip(call.inputs, read, strict=True))
        arrays: list[Any] = [inputs.get(name) for name in _READ]
        dX, *gradients, dZ, message = write
        if upstream is not None:
            arrays[0] = upstream(inputs, dZ)
        sums: list[Any]
        if summed:
            sums = [np.empty(runs.channels) if name in summed else None for name in _SUMS]
        else:
            sums = [inputs[name].astype(_FLOAT64) if name in inputs else None for name in _SUMS]
        if reduce is not None:
            reduce(arrays, None, sums)
        if apply is not None:
            apply(arrays, sums, dX, inputs["counts"].sum(dtype=_FLOAT64) if count is None else count)
        with np.errstate(over="ignore"):  # what a type cannot hold is infinity in it
            for name, gradient, total in zip(_SUMS, gradients, sums, strict=True):
                if gradient is not None:
                    gradient.view(outputs[name].dtype)[...] = total
            if message is not None:
                message[...] = np.concatenate([each for each in sums if each is not None])

    scratch = (reduce.nbytes if reduce else 0) + 8 * runs.channels * (len(summed) or len(_SUMS))
    return FlatPlan(
        call,
        kernel="columns" if runs.columns else "planes",
        outputs=("dX", *_SUMS, "dZ", "sums"),
        launch=launch,
        over=over,
        orders=dict.fromkeys(("dY", "X", "Y", "dY2", "dX", "dZ"), order),
        scratch=scratch + (upstream.nbytes if upstream else 0),
    )


class _Upstream:
    """D, and dZ where it is wanted."""

    def __init__(self, call: Call, runs: Runs) -> None:
        X = call.inputs["X"]
        self._dtype = arithmetic(X.dtype)
        self._size = X.size
        self._in_place = X.dtype == self._dtype and "dZ" in call.outputs
        self.type = array_type(self._dtype)
        self.nbytes = 0 if self._in_place else self._size * self._dtype.itemsize
        kinds = {name: argument_type(call, each) for name, each in _OF_UPSTREAM.items()}
        rounded = types.none if self._in_place else argument_type(call, "dZ")
        kinds |= {"out": self.type, "rounded": rounded}
        self._elements = Elements(runs, kinds, call.attributes["activation"], call.attributes["activation_alpha"])

    @staticmethod
    def needed(call: Call) -> bool:
        """Whether D is anything but dY, or an output."""
        return call.attributes.get("activation", "none") != "none" or "dY2" in call.inputs or "dZ" in call.outputs

    def __call__(self, inputs: dict[str, np.ndarray], dZ: Any) -> np.ndarray:
        D = dZ if self._in_place else np.empty(self._size, self._dtype)
        given = {name: inputs.get(each) for name, each in _OF_UPSTREAM.items()}
        self._elements({**given, "out": D, "rounded": None if self._in_place else dZ})
        return D


def _norm(call: Call, order: _Order, runs: Runs) -> FlatPlan:
    X, is_given = call.inputs["X"], "saved_mean" in call.inputs
    saved = arithmetic(X.dtype)
    statistics = Statistics(runs, X.dtype) if X.size and not is_given else None
    elements = None
    if X.size and "Y" in call.outputs:
        kinds = {name: argument_type(call, each) for name, each in _OF_ELEMENTS.items()}
        kinds |= dict.fromkeys(("mean", "inv_std"), array_type(saved))
        kinds["out"] = argument_type(call, "Y", _OVER, order)
        activation = call.attributes.get("activation", "none"), call.attributes.get("activation_alpha", 0.0)
        elements = Elements(runs, kinds, *activation)

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        inputs = dict(zip(call.inputs, read, strict=True))
        Y, *others = write
        given = {name: inputs.get(each) for name, each in _OF_ELEMENTS.items()}
        if not is_given:
            of = {to: inputs[name].view(call.inputs[name].dtype) for name, to in _RUNNING.items() if name in inputs}
            with np.errstate(all="ignore"):  # infinities and NaN go where they go; what a type cannot hold is infinity
                found = _found(statistics and statistics(inputs["X"]), runs, of, call.attributes)
                for name, output in zip(_OUTPUTS[1:], others, strict=True):
                    if output is not None:
                        output.view(call.outputs[name].dtype)[...] = found[name]
                given |= {name: found[_OF_ELEMENTS[name]].astype(saved) for name in ("mean", "inv_std")}
        if elements is not None:
            elements({**given, "out": Y})

    name = "from_statistics" if is_given else "forward"
    return FlatPlan(
        call,
        kernel=f"{name}_columns" if runs.columns else f"{name}_planes",
        outputs=_OUTPUTS,
        launch=launch,
        over=_OVER,
        orders=dict.fromkeys((*_OVER, "Y"), order),
        scratch=0 if is_given else (statistics.nbytes if statistics else 0) + 6 * 8 * runs.channels,
    )


def _found(
    of_batch: tuple[np.ndarray, np.ndarray] | None,
    runs: Runs,
    running: Mapping[str, np.ndarray],
    attributes: Mapping[str, Any],
) -> dict[str, np.ndarray]:
    """All statistics; `of_batch`, mean and variance, is none where the batch is nothing."""
    outputs = {name: each.astype(np.float64) for name, each in running.items()}
    if of_batch is None:
        return {**outputs, **dict.fromkeys(("saved_mean", "saved_inv_std"), np.zeros(runs.channels))}
    mean, variance = of_batch
    sample = variance * runs.count / np.float64(runs.count - attributes["unbiased"])
    for name, new in {"running_mean": mean, "running_var": sample}.items():
        if name in outputs:
            outputs[name] = outputs[name] * attributes["momentum"] + new * (1 - attributes["momentum"])
    return {**outputs, "saved_mean": mean, "saved_inv_std": 1 / np.sqrt(variance + attributes["epsilon"])}


def _statistics(call: Call, order: _Order, runs: Runs) -> FlatPlan:
    """Two passes."""
    X = call.inputs["X"]
    statistics = Statistics(runs, X.dtype) if X.size else None
    channels = X.shape[1]

    def launch(read: list[np.ndarray], write: list[Any]) -> None:
        (message,) = write
        message[...] = 0
        if statistics is not None:
            with np.errstate(all="ignore"):  # infinities and NaN go where they go
                message[:channels], message[channels:-1] = statistics(read[0])
            message[-1] = runs.count

    return FlatPlan(
        call,
        kernel="statistics_columns" if runs.columns else "statistics_planes",
        outputs=("part_statistics",),
        launch=launch,
        orders={"X": order},
        scratch=(statistics.nbytes if statistics else 0) + 4 * 8 * channels,
    )


class MergePlan:
    """Means, variances and numbers of elements of all parts, merged, and running statistics moved towards them. Few
    numbers of any strides: NumPy passes over them, in float64.
    """

    kernel = "merge"

    def __init__(self, call: Call) -> None:
        self._epsilon, self._momentum = call.attributes["epsilon"], call.attributes["momentum"]
        self._inputs, self._outputs = tuple(call.inputs), tuple(call.outputs)
        self.scratch = 8 * 4 * call.inputs["part_statistics"].size

    def __call__(self, inputs: tuple[np.ndarray, ...], outputs: tuple[np.ndarray, ...], stream: Any = None) -> None:
        given, found = (dict(zip(*each, strict=True)) for each in ((self._inputs, inputs), (self._outputs, outputs)))
        wide = given["part_statistics"].astype(np.float64)
        channels = wide.shape[1] // 2
        means, variances, counts = wide[:, :channels], wide[:, channels:-1], wide[:, -1:]
        total = counts.sum()
        with np.errstate(all="ignore"):  # infinities and NaN go where they go
            mean = (means * counts).sum(0) / (total or 1)
            squares = ((variances + (means - mean) ** 2) * counts).sum(0)  # of what each element is from the mean
            inverse = 1 / np.sqrt(squares / total + self._epsilon) if total else np.zeros(channels)
            sample = squares / max(total - 1, 1)
            for name, spread in (("statistics", inverse), ("sample_statistics", sample)):
                if name in found:
                    found[name][:channels], found[name][channels:-1], found[name][-1] = mean, spread, total
            for before, name, new in (("input_mean", "running_mean", mean), ("input_var", "running_var", sample)):
                if name in found:
                    old = given[before].astype(np.float64)
                    found[name][...] = old * self._momentum + new * (1 - self._momentum)
