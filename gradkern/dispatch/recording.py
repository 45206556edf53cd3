"""The calls of a real run, described so that another process can plan them ahead of time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradkern.arrays.kind import HOST
from gradkern.call import Call, Tensor
from gradkern.contract import registry
from gradkern.contract.schema import shape_of
from gradkern.dispatch.plan_cache import plan_cache
from gradkern.policy import differences
from gradkern.strides import c_strides

_ALIGNMENT = 16  # of new arrays on a GPU, at least


def recorded() -> list[dict[str, Any]]:
    """The calls that this process has planned, each as a line of `gradkern warmup --calls FILE` has it.

    >>> file.writelines(json.dumps(call) + "\\n" for call in gradkern.recorded())
    """
    return [_described(plan.call) for plan in plan_cache.entries()]


def usual(dtype: Any, shape: tuple[int, ...], device: str) -> Tensor:
    """A new array in C order: what a line need not describe."""
    return Tensor(dtype, shape, c_strides(shape, dtype.itemsize), dtype.itemsize if device == HOST else _ALIGNMENT)


def _described(call: Call) -> dict[str, Any]:
    operator = registry.operators()[call.operator].chosen(call.attributes)
    tensors = {**call.inputs, **call.outputs}
    types = {
        each.type: tensors[each.name].dtype.name
        for each in (*operator.inputs, *operator.outputs)
        if each.name in tensors
    }
    line: dict[str, Any] = {"op": call.operator, "axes": dict(call.axes), "types": types, "outputs": list(call.outputs)}
    strides, alignment = {}, {}
    for each in operator.inputs:
        tensor = call.inputs.get(each.name)
        if tensor is None:
            continue
        shape = shape_of(each.shape, call.axes)
        if tensor.shape == shape:  # its other shapes are planned alike
            new = usual(tensor.dtype, shape, call.device)
            if tensor.strides != new.strides:
                strides[each.name] = tensor.strides
            if tensor.alignment != new.alignment:
                alignment[each.name] = tensor.alignment
    attributes = {name: value for name, value in call.attributes.items() if value is not None}
    usually = {each.name for each in operator.inputs_of(call.axes, call.attributes)}
    optional: Mapping[str, Any] = {
        "attributes": attributes,
        "inputs": [*call.inputs, *call.scalars] if {*call.inputs, *call.scalars} != usually else [],
        "scalars": list(call.scalars),
        "strides": strides,
        "alignment": alignment,
        "policy": differences(call.policy),
    }
    return line | {key: value for key, value in optional.items() if value}
