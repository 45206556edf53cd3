"""Products of arrays with numbers on a GPU: elements of the element-wise block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradkern.call import Call
from gradkern.cuda.launch import LaunchPlan
from gradkern.cuda.numbers_plan import NumbersPlan
from gradkern.cuda.rows import EmptyPlan
from gradkern.kernels.elementwise.plan import elementwise_plan, floats_of
from gradkern.ops.scaling.several import SeveralPlan, several

__all__ = ["plan"]


def plan(call: Call) -> LaunchPlan | NumbersPlan | EmptyPlan | SeveralPlan:
    """The plan of one of the four operators on `call.device`."""
    return (call.operator == "MixedPrecisionScale" and several(call, _plan, _part)) or _plan(call)


def _part(address: int, first: int, call: Call) -> int:
    return address + first * call.outputs["Y"].dtype.itemsize


def _plan(call: Call) -> LaunchPlan | NumbersPlan | EmptyPlan:
    name = {"Scale": "scale", "MixedPrecisionScale": "S"}.get(call.operator, "")

    def number(values: Mapping[str, Any]) -> list[float]:
        return [values[name]]

    divides = bool(call.attributes.get("scale_down"))
    builder = "gradkern.ops.scaling.cuda.kernel:build"
    return elementwise_plan(call, builder, number if name else floats_of, on_device=name, more=(divides,))
