"""Reading Dynamo's graph: torch-level calls in the order of the program, in-place ones among them."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch._C._functorch import is_functorch_wrapped_tensor  # pyright: ignore[reportMissingImports]
from torch._C._nn import pad  # pyright: ignore[reportMissingImports]  functional.pad in Dynamo's graph
from torch.fx.experimental.symbolic_shapes import statically_known_true  # pyright: ignore[reportMissingImports]
from torch.fx.node import map_arg  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

_CALLED: dict[Any, str] = {
    operator.add: "add",
    operator.iadd: "add_",
    torch.add: "add",
    torch.relu: "relu",
    torch.relu_: "relu",
    functional.relu: "relu",
    functional.relu_: "relu",
    functional.leaky_relu: "leaky_relu",
    functional.leaky_relu_: "leaky_relu",
    functional.silu: "silu",
    functional.hardtanh: "hardtanh",
    functional.relu6: "relu6",
    functional.hardswish: "hardswish",
    functional.elu: "elu",
    functional.gelu: "gelu",
}
_CASTS = {"to", "type", "type_as", "float", "double", "half", "bfloat16"}
_PRODUCTS = {
    *(functional.linear, operator.matmul, torch.matmul, torch.mm, torch.bmm, torch.addmm, torch.baddbmm),
    *(torch.conv1d, torch.conv2d, torch.conv3d, functional.scaled_dot_product_attention),
}
_MOVES = {
    *("view", "reshape", "flatten", "unflatten", "permute", "transpose", "contiguous", "squeeze", "unsqueeze"),
    *(operator.getitem, torch.roll, torch.flatten, torch.reshape, torch.permute, torch.transpose, pad),
}
"""Functions and methods whose result has elements of their first argument, and zeros."""
_METHODS = {"add": "add", "add_": "add_", "relu": "relu", "relu_": "relu"}


def value(node: Any) -> torch.Tensor | None:
    """The node's tensor, without data; None where it has none, or one that torch.func has wrapped."""
    found = node.meta.get("example_value") if isinstance(node, fx.Node) else None
    return found if isinstance(found, torch.Tensor) and not is_functorch_wrapped_tensor(found) else None


def called(node: fx.Node | None) -> str:
    """What an elementwise call is, however it is written; "" for others."""
    if node is None:
        return ""
    if node.op == "call_function":
        return _CALLED.get(node.target, "")
    return _METHODS.get(str(node.target), "") if node.op == "call_method" else ""


def result(target: Any, given: Any, named: Any = None, found: Mapping[fx.Node, Any] = MappingProxyType({})) -> Any:
    """What a call gives, without data. found: values of nodes that differ from those that they have."""
    (first, *rest), named = map_arg(
        (given, named or {}), lambda node: found[node] if node in found else node.meta["example_value"]
    )
    return getattr(first, target)(*rest, **named) if isinstance(target, str) else target(first, *rest, **named)


def calls(graph: fx.Graph, *targets: Any) -> list[fx.Node]:
    """The calls of these functions, in the order of the program."""
    return [each for each in graph.nodes if each.op == "call_function" and each.target in targets]


def only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def arguments(node: fx.Node, *names: str, **defaults: Any) -> dict[str, Any]:
    """A call's arguments by name."""
    return {**defaults, **dict(zip((*names, *defaults), node.args, strict=False)), **node.kwargs}


def same_kind(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Whether both exist and have one shape, type and device."""
    if one is None or other is None:
        return False
    return (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)


def memory_format(tensor: torch.Tensor) -> Any:
    """torch.contiguous_format or channels last; None of a tensor that is neither."""
    formats = [torch.contiguous_format, *{4: [torch.channels_last], 5: [torch.channels_last_3d]}.get(tensor.dim(), [])]
    found: Any = (each for each in formats if same_strides(tensor, torch.empty_like(tensor, memory_format=each)))
    return next(found, None)


def same_strides(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Of symbols no guard is made."""
    return all(map(statically_known_true, [a == b for a, b in zip(one.stride(), other.stride(), strict=True)]))


def replaces(node: fx.Node, made: torch.Tensor) -> bool:
    """Whether `replace` can give this the strides of what the node computes."""
    found = node.meta["example_value"]
    return same_strides(made, found) or memory_format(found) is not None


def replace(node: fx.Node, made: fx.Node, value: torch.Tensor | None = None) -> None:
    """Replace the node with `made`. value: its result, without data, if its strides may differ from eager's."""
    found = node.meta["example_value"]
    if value is not None and not same_strides(value, found):
        with node.graph.inserting_after(made):
            made = node.graph.call_method("contiguous", (made,), {"memory_format": memory_format(found)})
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    node.graph.erase_node(node)


def where(node: fx.Node) -> str:
    """The name of the module that made the call; "" outside of any."""
    stack: Any = node.meta.get("nn_module_stack") or {}
    path = list(stack.values())[-1][0] if stack else ""  # such as L['self']._modules['layer1'].bn
    words = [each.strip("'\"]") for each in path.replace("[", ".").split(".")[2:]]
    return ".".join(each for each in words if each != "_modules")


def is_cast(node: Any) -> bool:
    """Whether the call gives its input in a type, and changes nothing else."""
    if not isinstance(node, fx.Node) or node.op != "call_method" or node.target not in _CASTS:
        return False
    x, y = value(node.args[0]), value(node)
    only = all(isinstance(each, torch.dtype | torch.Tensor | str | fx.Node) for each in node.args[1:])
    return only and node.kwargs.keys() <= {"dtype"} and x is not None and y is not None and x.device == y.device


def type_read(node: fx.Node) -> torch.dtype | None:
    """The type that the call's result may be given: its own, or the one of 16 bits that all that reads it casts it to,
    as products do under autocast. None where it is no tensor.
    """
    y = value(node)
    if y is None or y.dtype is not torch.float32:
        return None if y is None else y.dtype
    found = _read_as(node)
    return found.pop() if len(found) == 1 else y.dtype


def _read_as(node: fx.Node) -> set[torch.dtype]:
    """The types of what is computed from it; float32 where what reads it may compute with float32."""
    found = set[torch.dtype]()
    for user in node.users:
        read = value(user)
        if read is None and user.op.startswith("call_") and (user.target == "size" or user.target is getattr):
            continue
        if user.target in _MOVES and user.args[0] is node and read is not None:
            found |= _read_as(user)
        else:
            casts = is_cast(user) or user.target in _PRODUCTS
            found.add(read.dtype if read is not None and casts and read.itemsize == 2 else torch.float32)
    return found
