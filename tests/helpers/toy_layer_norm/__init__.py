"""A second implementation of LayerNormalizationGrad, in a folder and with a builder of its own: X_grad alone."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from gradkern.call import Call
from gradkern.cuda.launch import Launch, LaunchPlan, kernel_of
from gradkern.cuda.rows import device_of
from gradkern.strides import is_dense

__all__ = ["build", "configs", "supports"]

NAMES = ("Y_grad", "X", "scale", "mean", "inv_std_dev", "X_grad", "rows", "columns")


def supports(call: Call) -> str | None:
    """Why it does not take the call; None if it does."""
    tensors = {**call.inputs, **call.outputs}
    if set(tensors) != set(NAMES[:6]):
        return "it computes X_grad alone"
    if any(each.dtype != np.float32 or not is_dense(each) for each in tensors.values()):
        return "it takes dense arrays of float32"
    return None


def configs(call: Call) -> list[Mapping[str, Any]]:
    return [{"threads": 128}, {"threads": 32}]


def build(call: Call, config: Mapping[str, Any]) -> LaunchPlan:
    threads, device = config["threads"], device_of(call)
    rows, columns = prod(call.axes["rows"]), prod(call.axes["columns"])
    name = f"toy_layer_norm_{threads}"
    kernel = kernel_of(
        device, "helpers.toy_layer_norm.kernel:build", threads, name=name, arguments=len(NAMES), threads=threads
    )
    changing = [NAMES.index(each) for each in (*call.inputs, *call.outputs)]
    return LaunchPlan(name, Launch(kernel, -(-rows // threads), threads, [0] * 6 + [rows, columns], changing))
