"""The registry's contracts as ONNX has them: schemas for onnx.defs, and classes for the reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import onnx
from onnx import defs, helper
from onnx.reference.op_run import OpRun

from gradkern.contract.registry import operators as contracts
from gradkern.contract.schema import Attribute, Operator
from gradkern.dispatch.run import run
from gradkern.onnx.arrays import namespace
from gradkern.onnx.table import Entry
from gradkern.onnx.training_ops import TRAINING

_NAMES = {"float32": "float", "float64": "double"}
_KINDS = {"int": "INT", "float": "FLOAT", "string": "STRING", "ints": "INTS", "floats": "FLOATS", "type": "INT"}


def schemas() -> list[defs.OpSchema]:
    """A schema for every operator of the registry but those of ONNX's own domain: it has its own.

    >>> for schema in gradkern.onnx.schemas():
    ...     onnx.defs.register_schema(schema)

    Shape inference then derives the types of outputs and, of those that are like an input, the shapes.
    """
    return [_schema(name, each) for name, each in contracts().items() if each.domain != "ai.onnx"]


def operators() -> list[type[OpRun]]:
    """Classes for `ReferenceEvaluator(model, new_ops=operators())`: the registry's operators, and those that ONNX
    Runtime puts into training graphs beside them. Arrays are NumPy's; updates in place write into the arrays given.
    """
    registry = {(each.domain.replace("ai.onnx", ""), name): each for name, each in contracts().items()}
    mine = [_of_registry(name, domain, each) for (domain, name), each in registry.items() if domain]
    return mine + [
        _of_table(name, domain, each) for (domain, name), each in TRAINING.items() if (domain, name) not in registry
    ]


def _schema(name: str, operator: Operator) -> defs.OpSchema:
    option = defs.OpSchema.FormalParameterOption

    def parameter(each: Any) -> defs.OpSchema.FormalParameter:
        kind = option.Variadic if each.variadic else option.Optional if each.optional else option.Single
        return defs.OpSchema.FormalParameter(each.name, each.type, each.doc, param_option=kind)

    types = {key: sorted({_tensor(row[key]) for row in operator.combinations}) for key in operator.types}
    schema = defs.OpSchema(
        name,
        operator.domain,
        operator.since_version,
        operator.doc,
        inputs=[parameter(each) for each in operator.inputs],
        outputs=[parameter(each) for each in operator.outputs],
        type_constraints=[(key, types[key], doc) for key, doc in operator.types.items()],
        attributes=[_attribute(key, each) for key, each in operator.attributes.items()],
    )
    schema.set_type_and_shape_inference_function(lambda context: _infer(operator, context))
    return schema


def _tensor(name: str) -> str:
    return f"tensor({_NAMES.get(name, name)})"


def _attribute(name: str, each: Attribute) -> defs.OpSchema.Attribute:
    kind = getattr(defs.OpSchema.AttrType, _KINDS[each.type])
    if isinstance(each.default, int | float | str) and each.type in ("int", "float", "string"):
        default = float(each.default) if each.type == "float" else each.default
        return defs.OpSchema.Attribute(name, helper.make_attribute(name, default), each.doc)
    return defs.OpSchema.Attribute(name, kind, each.doc, required=each.required)


def _infer(operator: Operator, context: Any) -> None:
    if operator.variadic is not None:
        said = {name: context.get_attribute(name) for name, each in operator.attributes.items() if each.type == "int"}
        given = {name: each.i for name, each in said.items() if each is not None}
        operator = operator.repeated(context.get_num_inputs() - operator.variadic, given).chosen(given)
    given = {each.name: context.get_input_type(at) for at, each in enumerate(operator.inputs) if context.has_input(at)}
    codes = {each.type: given[each.name].tensor_type.elem_type for each in operator.inputs if each.name in given}
    names = {key: np.dtype(helper.tensor_dtype_to_np_dtype(code)).name for key, code in codes.items() if code}
    for name, each in operator.attributes.items():
        attribute = context.get_attribute(name) if each.binds else None
        if attribute is not None:
            names[str(each.binds)] = np.dtype(helper.tensor_dtype_to_np_dtype(attribute.i)).name
    rows = [row for row in operator.combinations if all(row[key] == name for key, name in names.items())]
    for at, each in enumerate(operator.outputs):
        if at < context.get_num_outputs() and context.has_output(at) and rows:
            kind = onnx.TypeProto()
            if each.like in given:
                kind.CopyFrom(given[str(each.like)])
            kind.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(rows[0][each.type]))
            context.set_output_type(at, kind)


def _results(node: onnx.NodeProto, results: Sequence[Any]) -> tuple[Any, ...]:
    """As many as the node has outputs. The evaluator takes no None; an empty array is in its place."""
    padded = [*results, *[None] * len(node.output)][: len(node.output)]
    return tuple(np.empty(0) if each is None else np.asarray(each) if np.isscalar(each) else each for each in padded)


def _of_registry(name: str, domain: str, operator: Operator) -> type[OpRun]:
    def compute(self: Any, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:
        given = {key: value for key, value in attributes.items() if value is not None}
        for key, each in operator.attributes.items():
            if each.type == "type" and key in given:
                given[key] = np.dtype(helper.tensor_dtype_to_np_dtype(given[key])).name
        outputs = operator.repeated(len(inputs) - (operator.variadic or 0), given).outputs
        wanted = [each.name for each, name in zip(outputs, self.onnx_node.output, strict=False) if name]
        found = run(name, *inputs, outputs=wanted, **given)
        return _results(self.onnx_node, [getattr(found, each.name, None) for each in outputs])

    return type(name, (OpRun,), {"op_domain": domain, "op_schema": _schema(name, operator), "_run": compute})


def _of_table(name: str, domain: str, entry: Entry) -> type[OpRun]:
    def compute(self: Any, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:
        return _results(self.onnx_node, entry.compute(namespace(inputs), inputs, attributes))

    return cast("type[OpRun]", type(name, (OpRun,), {"op_domain": domain, "_run": compute}))
