"""Batch norm's gradient on the CPU: the sums in one pass, unless they are given, and dX in another.

With an activation, a second gradient or a residual one more pass comes first: D, the gradient that comes through the
activation, in the type of the arithmetic. It is dZ itself where that has this type.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from gradkern.call import Call
from gradkern.cpu.batch_norm import Apply, Reduce
from gradkern.cpu.batch_norm_elements import Elements
from gradkern.cpu.element_types import arithmetic, array_type
from gradkern.cpu.flat_plan import FlatPlan, argument_type
from gradkern.cpu.runs import Runs

_READ = ("dY", "X", "Scale", "saved_mean", "saved_inv_std")
_SUMS = ("dScale", "dBias")
_OF_ELEMENTS = dict(
    zip(("D", "X", "scale", "mean", "inv_std", "bias", "D2", "Y"), (*_READ, "B", "dY2", "Y"), strict=True)
)
_FLOAT64 = np.dtype(np.float64)


def plan(call: Call) -> FlatPlan:
    X, outputs = call.inputs["X"], call.outputs
    order, runs = Runs.of_tensor(X, [axis == 1 for axis in range(len(X.shape))])
    runs = runs.by_channel(2 * X.dtype.itemsize)

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
        kinds = {name: argument_type(call, each) for name, each in _OF_ELEMENTS.items()}
        rounded = types.none if self._in_place else argument_type(call, "dZ")
        kinds |= {"out": self.type, "rounded": rounded}
        self._elements = Elements(runs, kinds, call.attributes["activation"], call.attributes["activation_alpha"])

    @staticmethod
    def needed(call: Call) -> bool:
        """Whether D is anything but dY, or an output."""
        return call.attributes.get("activation", "none") != "none" or "dY2" in call.inputs or "dZ" in call.outputs

    def __call__(self, inputs: dict[str, np.ndarray], dZ: Any) -> np.ndarray:
        D = dZ if self._in_place else np.empty(self._size, self._dtype)
        given = {name: inputs.get(each) for name, each in _OF_ELEMENTS.items()}
        self._elements({**given, "out": D, "rounded": None if self._in_place else dZ})
        return D
