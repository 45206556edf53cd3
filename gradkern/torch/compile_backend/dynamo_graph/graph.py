"""Reading Dynamo's graph: torch-level calls in the order of the program, in-place ones among them."""

from __future__ import annotations

import operator
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

__all__ = ["arguments", "called", "calls", "memory_of", "only_user", "same_kind", "value", "where", "written_between"]

_IN_PLACE = {getattr(operator, name) for name in dir(operator) if name.startswith("i") and name[1:] in dir(operator)}
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
    functional.gelu: "gelu",
}
_METHODS = {"add": "add", "add_": "add_", "relu": "relu", "relu_": "relu"}


def value(node: Any) -> torch.Tensor | None:
    """What the node stands for, without data; None where it is no tensor."""
    found = node.meta.get("example_value") if isinstance(node, fx.Node) else None
    return found if isinstance(found, torch.Tensor) else None


def called(node: fx.Node | None) -> str:
    """What an elementwise call is, however it is written; "" for others."""
    if node is None:
        return ""
    if node.op == "call_function":
        return _CALLED.get(node.target, "")
    return _METHODS.get(str(node.target), "") if node.op == "call_method" else ""


def calls(graph: fx.Graph, *targets: Any) -> list[fx.Node]:
    """The calls of these functions, in the order of the program."""
    return [each for each in graph.nodes if each.op == "call_function" and each.target in targets]


def only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def arguments(node: fx.Node, *names: str, **defaults: Any) -> dict[str, Any]:
    """A call's arguments by name."""
    return {**defaults, **dict(zip((*names, *defaults), node.args, strict=False)), **node.kwargs}


def same_kind(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Whether both are there and of one shape, type and device."""
    return (
        one is not None
        and other is not None
        and one.shape == other.shape
        and one.dtype == other.dtype
        and one.device == other.device
    )


def memory_of(node: fx.Node) -> int | None:
    """What tells apart the memory of nodes that are tensors."""
    found = value(node)
    return None if found is None else found.untyped_storage()._cdata


def written_between(first: fx.Node, last: fx.Node, *read: fx.Node, besides: tuple[fx.Node, ...] = ()) -> bool:
    """Whether a call between the two, besides these, may write into the memory of a tensor that is read."""
    memory = {memory_of(each) for each in read}
    node = first.next
    while node is not last:
        if node not in besides and _writes(node) and any(memory_of(each) in memory for each in node.all_input_nodes):
            return True
        node = node.next
    return False


def _writes(node: fx.Node) -> bool:
    """Whether a call may write into its arguments."""
    if node.op not in ("call_function", "call_method"):
        return False
    target = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return (
        target in _IN_PLACE
        or target is operator.setitem
        or (name.endswith("_") and not name.endswith("__"))
        or name == "__setitem__"
        or node.kwargs.get("inplace") is True
        or "out" in node.kwargs
        or (node.op == "call_function" and any(each is True for each in node.args))  # inplace, by its place
    )


def where(node: fx.Node) -> str:
    """The name of the module that made the call; "" outside of any."""
    stack: Any = node.meta.get("nn_module_stack") or {}
    path = list(stack.values())[-1][0] if stack else ""  # such as L['self']._modules['layer1'].bn
    words = [each.strip("'\"]") for each in path.replace("[", ".").split(".")[2:]]
    return ".".join(each for each in words if each != "_modules")
