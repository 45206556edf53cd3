"""A linear layer with its cross entropy on the CPU: matrix products of NumPy's around CrossEntropy's own kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gradkern.call import Call, Plan, Tensor
from gradkern.cpu.element_types import arithmetic
from gradkern.ops.cross_entropy import cpu
from gradkern.ops.cross_entropy.parts import chunks
from gradkern.ops.cross_entropy.roles import empty_is_nan
from gradkern.strides import c_strides


@dataclass
class LinearPlan:
    """Parts of the rows in turn. Logits and their gradients are rounded to the type of the data, as on a GPU; gradients
    of W and B are added up in the type of the arithmetic.
    """

    call: Call
    kernel: str = "products"
    scratch: int = 0

    @np.errstate(all="ignore")  # infinities and NaN go where they go, and what a type cannot hold is infinity in it
    def __call__(self, inputs: tuple[np.ndarray, ...], outputs: tuple[np.ndarray, ...], stream: Any = None) -> None:
        call = self.call
        given, made = dict(zip(call.inputs, inputs, strict=True)), dict(zip(call.outputs, outputs, strict=True))
        T = call.inputs["X"].dtype
        wide = arithmetic(T)
        X, W = (np.asarray(given[name]).astype(wide) for name in ("X", "W"))
        rows, classes = len(X), len(W)
        if not rows or not classes:
            for name, array in made.items():
                array[...] = np.nan if name == "loss" and empty_is_nan(call) else 0
            return
        weights = cpu.label_weights(call, given, classes)
        losses, factors = np.empty(rows, wide), cpu.row_factors(call, given, weights).astype(wide)
        dW, dB = np.zeros(W.shape, wide), np.zeros(classes, wide)
        for begin, end in chunks(rows, classes * T.itemsize, call.attributes["logits_bytes"]):
            part = slice(begin, end)
            logits = np.ascontiguousarray((X[part] @ W.T).astype(T).astype(wide))
            if "B" in given:
                logits += given["B"].astype(wide)
            arrays = {"X": logits, "labels": np.ascontiguousarray(given["labels"][part]), "dY": factors[part]}
            if "weight" in given:
                arrays["weight"] = given["weight"].astype(wide)
            self._rows_plan(arrays)(tuple(arrays.values()), (losses[part], logits), stream)
            logits = logits.astype(T).astype(wide)
            if "dX" in made:
                made["dX"][part] = (logits @ W).astype(T)
            if "dW" in made:
                dW += logits.T @ X[part]
            if "dB" in made:
                dB += logits.sum(0)
        results = {"dW": dW, "dB": dB, "loss": cpu.reduced(call, losses, weights)}
        for name, array in made.items():
            if name in results:
                array[...] = np.asarray(results[name]).astype(array.dtype)

    def _rows_plan(self, arrays: dict[str, np.ndarray]) -> Plan:
        """Of the losses of these rows and the gradient of their logits, in place."""
        tensors = {
            name: Tensor(each.dtype, each.shape, c_strides(each.shape, each.itemsize), each.itemsize)
            for name, each in arrays.items()
        }
        return cpu.plan(
            replace(
                self.call,
                operator="CrossEntropy",
                inputs=tensors,
                outputs={"loss": tensors["dY"], "dX": tensors["X"]},
                attributes={**self.call.attributes, "reduction": "none"},
                axes={"N": arrays["X"].shape[0], "C": arrays["X"].shape[1], "spatial": ()},
                in_place=frozenset({("X", "dX")}),
            )
        )


def plan(call: Call) -> LinearPlan:
    return LinearPlan(call)
