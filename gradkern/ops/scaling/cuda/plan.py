"""Products of arrays with numbers on a GPU: elements of the element-wise block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradkern.call import Call
from gradkern.cuda.launch import LaunchPlan
from gradkern.cuda.numbers_plan import NumbersPlan
from gradkern.cuda.rows import EmptyPlan
from gradkern.kernels.elementwise.plan import elementwise_plan, floats_of
from gradkern.ops.scaling.cuda.several import SeveralPlan, several_plan

_BUILDER = "gradkern.ops.scaling.cuda.kernel:build"


def plan(call: Call) -> LaunchPlan | NumbersPlan | EmptyPlan | SeveralPlan:
    """The plan of one of the four operators on `call.device`."""
    name = {"Scale": "scale", "MixedPrecisionScale": "S"}.get(call.operator, "")
    if name == "S" and (call.attributes.get("fuse_outputs") or len(call.inputs) - (name in call.inputs) > 1):
        return several_plan(call, _BUILDER)

    def number(values: Mapping[str, Any]) -> list[float]:
        return [values[name]]

    divides = bool(call.attributes.get("scale_down"))
    return elementwise_plan(call, _BUILDER, number if name else floats_of, on_device=name, more=(divides,))
