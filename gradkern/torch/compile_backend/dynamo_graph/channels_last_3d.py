"""Stage 1: 3-D convolutions of 16 bits, and the operators between them, with channels last in memory.

cuDNN computes such convolutions with channels last and transposes all other tensors, before and after each of them:
in a step of a 3-D U-Net that took a third of the time. Inductor chooses the order for 2-D convolutions alone. Here what
comes to a convolution with channels first is brought into the other order once, all that only passes it on keeps that,
and whatever else reads it, the model's results among them, gets the order that it would have had.
"""

from __future__ import annotations

import operator
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch._C._nn import pad  # pyright: ignore[reportMissingImports]  functional.pad in Dynamo's graph
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph import group_norm, instance_norm
from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion, off_gpu, unwanted
from gradkern.torch.compile_backend.dynamo_graph.graph import arguments, calls, value
from gradkern.torch.compile_backend.dynamo_graph.proof import memory, name_of

_NAME = "channels_last_3d"
_CONVS = (torch.conv3d, torch.conv_transpose3d)
_UNSURE = {
    *(functional.instance_norm, functional.group_norm, functional.interpolate, pad),
    *(functional.avg_pool3d, functional.adaptive_avg_pool3d),
}
"""Functions of those below whose result may have channels first in Inductor's graphs, on a GPU or of few channels."""
_FUNCTIONS = {
    *_CONVS,
    *_UNSURE,
    *(operator.add, operator.iadd, operator.sub, operator.isub, operator.mul, operator.imul, operator.truediv),
    *(torch.add, torch.sub, torch.mul, torch.div, torch.cat, torch.relu, torch.relu_, torch.sigmoid, torch.tanh),
    *(functional.relu, functional.relu_, functional.leaky_relu, functional.leaky_relu_, functional.elu),
    *(functional.silu, functional.gelu, functional.mish, functional.softplus, functional.prelu, functional.sigmoid),
    *(functional.batch_norm, functional.dropout, functional.dropout3d, functional.max_pool3d),
}
_METHODS = {"add", "add_", "sub", "mul", "mul_", "div", "relu", "relu_", "sigmoid", "float", "half", "bfloat16"}
"""Functions whose result has the memory order of their input."""


def arrange(graph: fx.Graph, fusion: Fusion) -> set[fx.Node]:
    """Rewrite the graph if it has two such convolutions or more; where it cannot be, that is reported. Returns the
    nodes that have channels last now.
    """
    convs = calls(graph, *_CONVS)
    if len(convs) < 2:
        return set()
    reason = next(filter(None, map(_reason, convs)), "") or _hindrance(graph, fusion)
    reason = reason or fusion.against(_NAME, value(convs[0]), _doubt(graph))
    if reason:
        fusion.report(_NAME, convs[0], value(convs[0]), reason)
        return set()
    fusion.report(_NAME, convs[0], value(convs[0]))
    return _turned(graph, fusion)


def _reason(conv: fx.Node) -> str:
    """Why a convolution is not faster with channels last; "" if it is."""
    call = arguments(conv, "input", "weight")
    x, y = value(call["input"]), value(conv)
    if x is None or y is None:
        return "an argument is no tensor of the graph"
    reason = off_gpu(y) or ("it is not of a batch" if y.dim() != 5 else "")
    wide = y.device.type == "cuda" and y.dtype not in (torch.float16, torch.bfloat16)
    return reason or ("it is not of 16 bits" if wide else unwanted(y))


def _keeps(node: fx.Node) -> bool:
    """Whether the order of the result is that of what is given."""
    if node.op == "call_function":
        return node.target in _FUNCTIONS
    is_cast = node.target == "to" and "memory_format" not in node.kwargs
    return node.op == "call_method" and (is_cast or node.target in _METHODS)


def _is_volume(node: fx.Node) -> bool:
    found = value(node)
    return found is not None and found.dim() == 5


def _hindrance(graph: fx.Graph, fusion: Fusion) -> str:
    """What would have the order changed back and forth, or depends on it; "" without such. A copy in
    another order stands for a volume: nothing may write the one and read the other.
    """
    convolved = _convolved(graph)
    for node in graph.nodes:
        volumes = [each for each in node.all_input_nodes if _is_volume(each)]
        others = [each for each in node.all_input_nodes if each not in volumes]
        if node.op == "output" and (len(memory(volumes)) < len(volumes) or memory(volumes) & memory(others)):
            return "two results share memory"
        if node.op not in ("call_function", "call_method") or not volumes or _keeps(node):
            continue
        if _is_volume(node) and node in convolved:
            return f"of {name_of(node)} it is not known that it keeps the order"
        if memory(node) & memory(volumes) and fusion.proof.writes_after(node, memory(volumes)):
            return f"what {name_of(node)} gives is written into"
        written = fusion.proof.written(node)
        if written is None or written & memory(volumes):
            return f"{name_of(node)} may write into what has another order"
    return ""


def _convolved(graph: fx.Graph) -> set[fx.Node]:
    """What a convolution behind it is computed from."""
    found: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node in found or (node.op == "call_function" and node.target in _CONVS):
            found.update(node.all_input_nodes)
    return found


def _doubt(graph: fx.Graph) -> str:
    """Norms that Inductor would compute, whose reductions of channels last cost what the convolutions gain."""
    for target, left in ((functional.group_norm, group_norm.left), (functional.instance_norm, instance_norm.left)):
        reason = next(filter(None, map(left, filter(_is_volume, calls(graph, target)))), "")
        if reason:
            name = target.__name__.replace("_", " ")
            return f"Inductor's {name}s are slow with channels last, and of one {reason}"
    return ""


def _turned(graph: fx.Graph, fusion: Fusion) -> set[fx.Node]:
    """Insert the changes of order. Returns the nodes that have channels last now."""
    last: set[fx.Node] = set()
    unsure: set[fx.Node] = set()  # of those: what may have channels first all the same, and what has their order
    for node in list(graph.nodes):
        volumes = [each for each in node.all_input_nodes if _is_volume(each)]
        if node.op == "call_function" and node.target in _CONVS:
            x: Any = arguments(node, "input")["input"]
            if x not in last - unsure:
                with graph.inserting_before(node):  # no copy, if x has that order
                    node.replace_input_with(x, _ordered(graph, x, torch.channels_last_3d))
            last.add(node)
        elif _keeps(node):
            # of several, the others are broadcast, or come to the order of the first, as what is written has its own
            written = fusion.proof.written(node) or frozenset()
            first = [each for each in volumes if memory(each) & written] or volumes
            if _is_volume(node) and last.intersection(first):
                last.add(node)
                if node.target in _UNSURE or unsure.intersection(first):
                    unsure.add(node)
        else:
            for each in filter(_had_channels_first, last.intersection(volumes)):
                with graph.inserting_before(node):
                    node.replace_input_with(each, _ordered(graph, each, torch.contiguous_format))
    return last


def _had_channels_first(node: fx.Node) -> bool:
    found = value(node)
    return found is not None and not found.is_contiguous(memory_format=torch.channels_last_3d)


def _ordered(graph: fx.Graph, x: fx.Node, order: torch.memory_format) -> fx.Node:
    # Not `contiguous`: it leaves the strides of one channel, and a convolution takes those for channels first.
    made = graph.call_method("to", (x,), {"memory_format": order})
    made.meta = dict(x.meta)
    return made
