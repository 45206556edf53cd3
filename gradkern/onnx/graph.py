"""A model, read and checked as a whole: what every node is computed by, in an order that allows it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnx.inliner
from onnx import defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from gradkern.call import Tensor
from gradkern.contract.attributes import attribute_values
from gradkern.contract.check import types_of
from gradkern.contract.registry import operators
from gradkern.contract.schema import Operator
from gradkern.errors import ArgumentError, AttributeValueError, GradkernError, GraphError, UnknownOperatorError, nearest
from gradkern.onnx.session import Session
from gradkern.onnx.table import Entry
from gradkern.onnx.training_ops import TRAINING


@dataclass
class Node:
    """One node, and what can compute it, the first of these that is there and has a provider for the device.

    operator, given   the registry's, and the attributes as its contract has them
    entry, options    that of training_ops, and the attributes as its function takes them
    evaluator         of onnx.reference, for the node alone
    reason            why the registry's operator of this name does not compute it, or what it leaves out
    """

    name: str
    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    operator: Operator | None = None
    given: dict[str, Any] = field(default_factory=dict[str, Any])
    entry: Entry | None = None
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    evaluator: ReferenceEvaluator | None = None
    reason: str = ""


@dataclass(frozen=True)
class Graph:
    """inputs and types: by name, declared and derived; types has the values whose type is known."""

    nodes: tuple[Node, ...]
    inputs: Mapping[str, Any]
    outputs: tuple[str, ...]
    initializers: dict[str, np.ndarray]
    types: Mapping[str, str] = field(default_factory=dict[str, str])


def load(model: str | os.PathLike[str] | onnx.ModelProto) -> Session:
    """A session for a model, from its file or as ModelProto. The whole graph is checked first.

    Raises GraphError for a file that is no ONNX model, external data that is missing or outside of the file's folder, a
    value that nothing gives, one that two nodes give, and a cycle; UnknownOperatorError for an operator that nothing
    here computes; AttributeValueError, DTypeError and ArgumentError for what an operator's contract refuses.
    """
    proto = _inlined(_read(model))
    for kind, given in (("input", proto.graph.input), ("initializer", proto.graph.initializer)):
        twice = [name for name, count in Counter(each.name for each in given).items() if count > 1]
        if twice:
            raise GraphError(f"the graph has the {kind} {twice[0]} twice")
    values = [*proto.graph.input, *proto.graph.value_info, *proto.graph.output]
    types = {each.name: name for each in values if (name := _element(each.name, each.type)) is not None}
    arrays = {each.name: _array(each) for each in proto.graph.initializer}
    types.update((name, array.dtype.name) for name, array in arrays.items())
    shapes = {each.name: _shape(each.type) for each in values}
    opsets = {onnx_domain(each.domain): each.version for each in proto.opset_import}
    every = [new for each in proto.graph.node for new in _over_rows(each, opsets.get("", 13))]
    nodes = [_resolved(each, opsets, types, shapes) for each in _sorted(proto.graph, every)]
    for node in nodes:
        if node.op == "Constant" and node.evaluator is not None:  # its array is the same in every run
            arrays[node.outputs[0]] = cast(Any, node.evaluator.run(None, {}))[0]
    nodes = [node for node in nodes if node.op != "Constant"]
    inputs = {each.name: each.type for each in proto.graph.input}
    outputs = tuple(each.name for each in proto.graph.output)
    return Session(Graph(tuple(nodes), inputs, outputs, arrays, types))


def onnx_domain(domain: str) -> str:
    """The empty domain for both names of ONNX's own."""
    return "" if domain == "ai.onnx" else domain


def _read(model: Any) -> onnx.ModelProto:
    if isinstance(model, onnx.ModelProto):
        outside = [each.name for each in model.graph.initializer if each.data_location == onnx.TensorProto.EXTERNAL]
        if outside:
            raise GraphError(f"initializer {outside[0]} is external data; give the model's file, next to which it is")
        return model
    if not isinstance(model, str | os.PathLike):
        raise ArgumentError(f"model is a {type(model).__name__}; expected the path of a file, or an onnx.ModelProto")
    path = Path(model)
    try:
        with path.open("rb") as file:
            begin = file.read(8)
        if begin[4:8] == b"ORTM":
            raise GraphError(f"{path} is in ONNX Runtime's own format, not ONNX; take the .onnx file it was made from")
        proto = onnx.load(path, format="protobuf")
    except (GradkernError, OSError):
        raise
    except Exception as error:  # of protobuf and of onnx's checks of external data: they have no common base
        raise GraphError(f"{path} is no ONNX model that can be read: {error}") from error
    if not proto.ir_version or not proto.HasField("graph"):
        raise GraphError(f"{path} is no ONNX model: it has no graph")
    return proto


def _inlined(proto: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return onnx.inliner.inline_local_functions(proto) if proto.functions else proto
    except Exception as error:  # of onnx's checks and of its inliner
        raise GraphError(f"the model's functions cannot be inlined: {error}") from error


def _array(tensor: onnx.TensorProto) -> np.ndarray:
    try:
        return numpy_helper.to_array(tensor)
    except Exception as error:
        raise GraphError(f"initializer {tensor.name} cannot be read: {error}") from error


def _element(name: str, proto: Any) -> str | None:
    """The registry's name of the type of a tensor's elements, or of those of a sequence of tensors."""
    if proto.HasField("sequence_type"):
        proto = proto.sequence_type.elem_type
    code = proto.tensor_type.elem_type
    return None if code in (0, onnx.TensorProto.STRING) else _type_name(code, f"type of {name}")


def _type_name(code: Any, what: str) -> str:
    """The registry's name of the type with this number of TensorProto.DataType."""
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(code)).name
    except (KeyError, TypeError) as error:
        raise GraphError(f"{what} is {code!r}, which is none of TensorProto.DataType") from error


def _shape(proto: Any) -> tuple[int | str | None, ...] | None:
    if not proto.tensor_type.HasField("shape"):
        return None
    return tuple(
        each.dim_value if each.HasField("dim_value") else each.dim_param or None for each in proto.tensor_type.shape.dim
    )


def _sorted(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """The nodes so that each comes after those that give its inputs; the file's where that is one."""
    given = {"": None} | {each.name: None for each in (*graph.input, *graph.initializer)}
    maker: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in maker or name in given:
                raise GraphError(
                    f"{_called(node)}: output {name} has its value already; each has one node that gives it"
                )
            maker[name] = index
    for node in nodes:
        for name in node.input:
            if name not in maker and name not in given:
                hint = nearest(name, [*maker, *given])
                raise GraphError(
                    f"{_called(node)}: nothing gives {name}{hint}: no input of the graph, initializer or node"
                )
    for each in graph.output:
        if each.name not in maker and each.name not in given:
            raise GraphError(f"nothing gives {each.name}, an output of the graph")
    needs = {index: {maker[name] for name in node.input if name in maker} for index, node in enumerate(nodes)}
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        around = " -> ".join(_called(nodes[index]) for index in error.args[1])
        raise GraphError(f"the graph has a cycle: {around}") from None
    in_order = all(index > need for index, several in needs.items() for need in several)
    return [nodes[index] for index in (range(len(nodes)) if in_order else order)]


def _over_rows(node: onnx.NodeProto, opset: int) -> list[onnx.NodeProto]:
    """The node. Before opset 13 Softmax and its kind are of all axes from `axis` on at once: nodes that say so."""
    old = opset < 13 and node.op_type in ("Softmax", "LogSoftmax", "Hardmax") and onnx_domain(node.domain) == ""
    axis = next((each.i for each in node.attribute if each.name == "axis"), 1)
    if not old or axis == -1 or not (node.input and node.output):
        return [node]
    x, y = node.input[0], node.output[0]
    shape, flat, rows = (f"{y}/{each}" for each in ("shape", "flat", "rows"))
    return [
        helper.make_node("Shape", [x], [shape], node.name),
        helper.make_node("Flatten", [x], [flat], node.name, axis=axis),
        helper.make_node(node.op_type, [flat], [rows], node.name, axis=1),
        helper.make_node("Reshape", [rows, shape], [y], node.name),
    ]


def _called(node: onnx.NodeProto) -> str:
    return (
        f"{node.op_type} {node.name}".strip()
        if node.name
        else f"{node.op_type} of {', '.join(filter(None, node.output)) or 'no output'}"
    )


def _value(attribute: onnx.AttributeProto) -> Any:
    try:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            return value.decode()
        if attribute.type == attribute.TENSOR:
            return numpy_helper.to_array(value)
        several = isinstance(value, list)
        return [each.decode() if isinstance(each, bytes) else each for each in value] if several else value
    except Exception as error:  # of protobuf, NumPy and Unicode
        raise GraphError(f"attribute {attribute.name} cannot be read: {error}") from error


def _resolved(
    proto: onnx.NodeProto, opsets: Mapping[str, int], types: dict[str, str], shapes: Mapping[str, Any]
) -> Node:
    """The node with what computes it. Adds the types of its outputs, where they follow."""
    domain, called = onnx_domain(proto.domain), _called(proto)
    if any(each.type in (each.GRAPH, each.GRAPHS) for each in proto.attribute):
        raise UnknownOperatorError(f"{called}: operators with graphs of their own (If, Loop, Scan) are not computed")
    node = Node(called, proto.op_type, domain, tuple(proto.input), tuple(proto.output), {})
    found: dict[str, str | None] = {}
    try:
        if not any(proto.output):
            raise GraphError("it has no output")
        node.attributes = {each.name: _value(each) for each in proto.attribute}
        schema = _schema(node, opsets)
        operator, entry = operators().get(node.op), TRAINING.get((domain, node.op))
        refused: GradkernError | None = None
        if operator is not None and onnx_domain(operator.domain) == domain and _has_version(operator, schema):
            try:
                operator = operator.repeated(len(node.inputs) - (operator.variadic or 0), node.attributes)
                found = _by_registry(node, operator, schema, types, shapes)
                node.operator = operator
            except GradkernError as error:
                refused, node.reason = error, str(error)
        if entry is not None and (schema is None or node.attributes.keys() <= entry.attributes):
            found = _by_table(node, entry, types) | found
            node.entry = entry
        elif schema is not None:
            found = _by_onnx(node, proto, opsets, types) | found
        elif refused is not None:
            raise refused
        elif node.operator is None:
            raise UnknownOperatorError(_unknown(node))
    except GradkernError as error:
        raise type(error)(f"{called}: {error}") from None
    types.update((name, kind) for name, kind in found.items() if name and kind and name not in types)
    return node


def _unknown(node: Node) -> str:
    known = [name for domain, name in TRAINING if domain == node.domain]
    known += [name for name, each in operators().items() if onnx_domain(each.domain) == node.domain]
    return f"unknown operator {node.op!r} of domain {node.domain or 'ai.onnx'!r}{nearest(node.op, known)}"


def _has_version(operator: Operator, schema: Any) -> bool:
    """What ONNX has no schema of is ONNX Runtime's own, in any opset: LayerNormalization before 17."""
    last = operator.until_version
    version = schema.since_version if schema is not None else operator.since_version
    return operator.since_version <= version and (last is None or version <= last)


def _schema(node: Node, opsets: Mapping[str, int]) -> Any:
    """ONNX's own schema of the operator; None where it has none."""
    if node.domain not in opsets:
        raise GraphError(f"the model imports no operators of domain {node.domain or 'ai.onnx'!r}")
    try:
        return defs.get_schema(node.op, opsets[node.domain], node.domain)
    except defs.SchemaError:
        return None


def _by_registry(
    node: Node, operator: Operator, schema: Any, types: Mapping[str, str], shapes: Mapping[str, Any]
) -> dict[str, str | None]:
    """schema: ONNX's. Its defaults hold: BatchNormalization is that of inference there, the registry's of training."""
    given = dict(zip((each.name for each in operator.inputs), node.inputs, strict=False))
    _check_count(node, len(operator.inputs), len(operator.outputs))
    missing = [each.name for each in operator.inputs if not each.optional and not given.get(each.name)]
    if missing:
        raise ArgumentError(f"input {missing[0]} is missing")
    unknown = sorted(node.attributes.keys() - operator.attributes.keys())
    if unknown and "Grad" not in node.op:  # ONNX Runtime gives gradients all attributes of the forward operator
        raise AttributeValueError(f"unknown attribute {unknown[0]}; it has {', '.join(operator.attributes)}")
    node.reason = f"it has no use for attribute {', '.join(unknown)}" if unknown else ""
    defaults = {each.name: each.default_value for each in schema.attributes.values()} if schema is not None else {}
    node.given = {name: _value(each) for name, each in defaults.items() if each.type and name in operator.attributes}
    node.given |= {name: value for name, value in node.attributes.items() if name not in unknown}
    for name, attribute in operator.attributes.items():
        if attribute.type == "type" and isinstance(node.given.get(name), int):  # a number of TensorProto.DataType
            node.given[name] = _type_name(node.given[name], f"attribute {name}")
    if "input_size" in operator.attributes and "X" not in given:
        node.given["input_size"] = _declared(node, shapes)[2:]
    values = attribute_values(operator, node.given, given)
    known = {key: types[name] for key, name in given.items() if name in types}
    rows = types_of(operator, {key: Tensor(np.dtype(kind), (), (), 1) for key, kind in known.items()}, (), values, {})
    complete = all(key in known for key, name in given.items() if name)
    outputs = dict(zip(node.outputs, operator.outputs, strict=False))
    return {name: rows[each.type] if complete else None for name, each in outputs.items()}


def _check_count(node: Node, inputs: int, outputs: int) -> None:
    if len(node.inputs) > inputs:
        raise ArgumentError(f"{len(node.inputs)} inputs given; it takes {inputs}")
    if len(node.outputs) > outputs:
        raise ArgumentError(f"{len(node.outputs)} outputs wanted; it has {outputs}")


def _by_table(node: Node, entry: Entry, types: Mapping[str, str]) -> dict[str, str | None]:
    if not entry.accepts(len(node.inputs)):
        raise ArgumentError(f"it does not take {len(node.inputs)} inputs")
    unknown = sorted(node.attributes.keys() - entry.attributes)
    if unknown and "Grad" not in node.op:
        raise AttributeValueError(f"unknown attribute {unknown[0]}; it has {', '.join(sorted(entry.attributes))}")
    node.options = {name: value for name, value in node.attributes.items() if name not in unknown}
    result = entry.result
    return {node.outputs[0]: result if isinstance(result, str) else types.get(node.inputs[result])}


def _declared(node: Node, shapes: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape that the model declares for the first output, but for the batch."""
    shape = shapes.get(node.outputs[0])
    if shape is None or not all(isinstance(each, int) for each in shape[1:]):
        raise GraphError(
            f"the model does not say the shape of {node.outputs[0]}, which does not follow from the inputs"
        )
    return shape


def _by_onnx(
    node: Node, proto: onnx.NodeProto, opsets: Mapping[str, int], types: Mapping[str, str]
) -> dict[str, str | None]:
    proto, given = onnx.NodeProto(), proto
    proto.CopyFrom(given)
    proto.domain = node.domain  # not ai.onnx: the tools below do not take that for ONNX's own
    context = onnx.checker.C.CheckerContext()
    context.opset_imports, context.ir_version = dict(opsets), onnx.IR_VERSION
    try:
        onnx.checker.check_node(proto, context)
    except onnx.checker.ValidationError as error:
        raise GraphError(str(error).splitlines()[0]) from None
    declared = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(types.get(name, "float32"))), None)
        for name in dict.fromkeys(filter(None, node.inputs))
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in filter(None, node.outputs)]
    graph = helper.make_graph([proto], "node", declared, outputs)
    try:
        node.evaluator = ReferenceEvaluator(graph, dict(opsets))
    except Exception as error:  # it raises what comes up
        raise UnknownOperatorError(f"onnx.reference does not compute it: {error}") from error
    if len(declared) != len({name for name in node.inputs if name in types}):
        return {}
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*each) for each in opsets.items()])
    inferred = onnx.shape_inference.infer_shapes(model)
    return {each.name: _element(each.name, each.type) for each in inferred.graph.output}
