"""Stage 1: norms over the last axis, found by what they compute, however a model spells them.

A norm is a call of F.layer_norm or F.rms_norm, or elementwise calls around the mean of squares of what is normalized,
as transformers' models have them: with casts between any of the calls, with `weight` or `1 + weight`, before the result
is cast or after. An operator rounds once, at the end; of 16 bits a model in other words rounds in between, too.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch.fx.experimental.symbolic_shapes import statically_known_true  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.graph import arguments, is_cast, only_user, value
from gradkern.torch.operators import wide

_FUNCTIONS: dict[Any, str] = {
    **dict.fromkeys((functional.layer_norm, torch.layer_norm), "layer_norm"),
    **dict.fromkeys((functional.rms_norm, torch.rms_norm), "rms_norm"),
}
_NAMES = {each: each for each in ("add", "sub", "mul", "div", "pow", "square", "mean", "var", "sqrt", "rsqrt")}
_NAMES |= {"radd": "add", "rmul": "mul", "multiply": "mul", "subtract": "sub", "truediv": "div", "divide": "div"}
_CALLED: dict[Any, str] = {
    getattr(module, name): kind
    for name, kind in _NAMES.items()
    for module in (operator, torch)
    if hasattr(module, name)
}


@dataclass(frozen=True)
class Norm:
    """A norm over the last axis.

    kind    "layer_norm" or "rms_norm"
    nodes   the calls, in the order of the program; only they use what all but the last of them compute
    x       what is normalized
    reason  why no operator computes it; "" if one may

    weight and bias have a value for each column; they are None of a norm without.
    """

    kind: str
    nodes: tuple[fx.Node, ...]
    x: Any
    eps: Any
    weight: Any = None
    bias: Any = None
    reason: str = ""

    @property
    def end(self) -> fx.Node:
        return self.nodes[-1]


def norms(graph: fx.Graph) -> list[Norm]:
    """Those of a graph, in the order of the program."""
    found = [_extended(each) for node in graph.nodes if isinstance(each := _of(node), Norm)]
    return sorted(found, key=lambda each: each.end)


def others(graph: fx.Graph) -> dict[fx.Node, str]:
    """Calls of square roots that look like a norm's, and what makes it another one."""
    found = {node: _of(node) for node in graph.nodes}
    return {node: each for node, each in found.items() if each and isinstance(each, str)}


def _of(node: fx.Node) -> Norm | str:
    """The norm whose standard deviation, or its inverse, or call of PyTorch's function this is; or what makes it
    another; "" of all else.
    """
    if node.op == "call_function" and node.target in _FUNCTIONS:
        return _of_function(node, _FUNCTIONS[node.target])
    kind = _kind(node)
    if kind not in ("rsqrt", "pow", "sqrt") or node.kwargs or (kind == "pow" and node.args[1:] != (-0.5,)):
        return ""
    try:
        return _spelled(node)
    except _UnlikeError as error:
        return str(error) or ("it is none of a row" if kind == "rsqrt" else "")


def _of_function(node: fx.Node, kind: str) -> Norm:
    names = {"weight": None, "bias": None, "eps": 1e-5} if kind == "layer_norm" else {"weight": None, "eps": None}
    call = arguments(node, "input", "normalized_shape", **names)
    x, nodes = call["input"], [node]
    while _is_widening(x) and only_user(x) is nodes[-1]:
        nodes.append(x)
        x = x.args[0]
    tensor = value(x)
    of_arithmetic = torch.float32 if tensor is None else wide(tensor)
    eps = torch.finfo(of_arithmetic).eps if call["eps"] is None else call["eps"]
    reason = "" if len(call["normalized_shape"]) == 1 else "it normalizes over several axes"
    return Norm(kind, tuple(nodes[::-1]), x, eps, call["weight"], call.get("bias"), reason)


class _UnlikeError(Exception):
    """The calls are no norm, or another one, for that reason."""


@dataclass
class _Reading:
    """Reads calls backwards, and keeps those that it has read."""

    nodes: set[fx.Node] = field(default_factory=set)

    def call(self, node: Any, *kinds: str) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        """What this call computes, one of these kinds, with its arguments."""
        found = _kind(node)
        if found not in kinds:
            raise _UnlikeError
        self.nodes.add(node)
        return found, node.args, dict(node.kwargs)

    def plain(self, node: Any, *kinds: str) -> tuple[str, tuple[Any, ...]]:
        """The same, of a call with no arguments by name."""
        found, args, named = self.call(node, *kinds)
        if named:
            raise _UnlikeError
        return found, args

    def source(self, node: Any) -> Any:
        """What was cast to a type as wide or wider, if this is such casts; else itself."""
        while _is_widening(node):
            self.nodes.add(node)
            node = node.args[0]
        return node

    def mean(self, node: Any, kinds: tuple[str, ...] = ("mean",)) -> Any:
        """What this is the mean or variance of, over the last axis."""
        kind, args, named = self.call(self.source(node), *kinds)
        x, *more = args
        names = ("dim", "keepdim") if kind == "mean" else ("dim", "unbiased", "keepdim")
        given = {**dict(zip(names, more, strict=False)), **named}
        dim = given.pop("dim", given.pop("axis", None))
        dims = dim if isinstance(dim, list | tuple) else [dim]
        found = value(x)
        if found is None or len(dims) != 1 or dims[0] not in (-1, found.dim() - 1):
            raise _UnlikeError("it is not over the last axis alone")
        if kind == "var" and given.pop("unbiased", True) and given.pop("correction", 1):
            raise _UnlikeError("its variance is the unbiased one")
        if given.pop("keepdim", False) is not True or given:
            raise _UnlikeError
        return x

    def centred(self, node: Any) -> tuple[Any, Any]:
        """What a mean was subtracted from, and that mean's node."""
        _, (x, mean) = self.plain(self.source(node), "sub")
        if self.source(x) is not self.source(self.mean(mean)):
            raise _UnlikeError
        return self.source(x), mean

    def squared(self, node: Any) -> Any:
        """What this is the square of."""
        kind, args = self.plain(self.source(node), "pow", "square", "mul")
        if (kind == "pow" and args[1] != 2) or (kind == "mul" and args[0] is not args[1]):
            raise _UnlikeError
        return args[0]


def _kind(node: Any) -> str:
    if not isinstance(node, fx.Node):
        return ""
    if node.op == "call_function":
        return _CALLED.get(node.target, "")
    name = str(node.target)
    writes = name.endswith("_") and not name.startswith("__")  # such as mul_, and not __mul__
    return _NAMES.get(name.strip("_"), "") if node.op == "call_method" and not writes else ""


def _is_widening(node: Any) -> bool:
    """Whether it is a cast to a type as wide as that of its input, or wider."""
    if not is_cast(node):
        return False
    x, y = (each.meta["example_value"].dtype for each in (node.args[0], node))
    return x.is_floating_point and torch.promote_types(x, y) is y


def _spelled(node: fx.Node) -> Norm:
    """The norm whose last step before weight and bias multiplies or divides by what this call gives."""
    reading = _Reading({node})
    _, total = reading.plain(reading.source(node.args[0]), "add")
    if len(total) != 2:
        raise _UnlikeError
    variance, eps = total[::-1] if _is_number(total[0]) else total
    mean = reading.source(variance)
    if _kind(mean) not in ("mean", "var"):
        raise _UnlikeError
    quotient = _product(node, reading)
    factor = _factor(quotient, node, reading)
    if _kind(mean) == "var":
        x, centre = reading.mean(mean, ("var",)), reading.centred(factor)
        is_layer_norm, same = True, reading.source(x) is centre[0]
    else:
        squares = reading.source(reading.squared(reading.mean(mean)))
        factor = reading.source(factor)
        is_layer_norm = _kind(squares) == "sub"
        x = squares
        if is_layer_norm:
            x, centre = reading.centred(squares)
            same = factor is squares or reading.centred(factor) == (x, centre)
        else:
            same = factor is squares
    source = reading.source(x)
    found = value(source)
    if not same or found is None:
        raise _UnlikeError("what it divides is not what its mean is of")
    nodes = _alone(reading.nodes, quotient)
    if any(_too_wide(each, found) for each in nodes):
        raise _UnlikeError("it computes in a wider type")
    return Norm("layer_norm" if is_layer_norm else "rms_norm", nodes, source, eps)


def _is_number(each: Any) -> bool:
    return isinstance(each, float | int) and not isinstance(each, bool)


def _product(inverse: fx.Node, reading: _Reading) -> fx.Node:
    """What the data are multiplied by, or divided by, the inverse or its cast in."""
    node = only_user(inverse)
    while is_cast(node):
        reading.nodes.add(node)  # pyright: ignore[reportArgumentType]
        node = only_user(node)  # pyright: ignore[reportArgumentType]
    if _kind(inverse) == "sqrt" and _kind(node) == "div" and node is not None:
        return node
    if _kind(inverse) != "sqrt" and _kind(node) == "mul" and node is not None:
        return node
    raise _UnlikeError("others use its mean of squares or standard deviation")


def _factor(product: fx.Node, inverse: fx.Node, reading: _Reading) -> Any:
    """What is multiplied or divided there."""
    _, args = reading.plain(product, "mul", "div")
    others = [each for each in args if each is not inverse and each not in reading.nodes]
    if len(args) != 2 or len(others) != 1 or (_kind(product) == "div" and others[0] is not args[0]):
        raise _UnlikeError
    return others[0]


def _alone(nodes: set[fx.Node], end: fx.Node) -> tuple[fx.Node, ...]:
    """In the order of the program, without casts of the input that others use, too."""
    kept = {each for each in nodes if each is end or not is_cast(each) or each.users.keys() <= nodes}
    if not all(each is end or each.users.keys() <= kept for each in kept):
        raise _UnlikeError("others use its mean of squares or standard deviation")
    return tuple(sorted(kept))


def _too_wide(node: fx.Node, x: torch.Tensor) -> bool:
    found = value(node)
    return found is None or torch.promote_types(found.dtype, wide(x)) is not wide(x)


def _extended(norm: Norm) -> Norm:
    """With the casts, the weight and the bias behind it: up to the last call whose result has the type of x, if there
    is one.
    """
    x = value(norm.x)
    best = norm
    while x is not None:
        after = only_user(norm.end)
        if after is None or after.op == "output" or value(after) is None:
            break
        following = _with(norm, after, x)
        if following is None or _too_wide(after, x):
            break
        norm = following
        if value(norm.end).dtype == x.dtype or value(best.end).dtype != x.dtype:  # pyright: ignore[reportOptionalMemberAccess]
            best = norm
    return best


def _with(norm: Norm, after: fx.Node, x: torch.Tensor) -> Norm | None:
    """The norm with the call behind it; None where that is nothing of a norm's."""
    nodes = (*norm.nodes, after)
    if is_cast(after):
        return replace(norm, nodes=nodes) if after.args[0] is norm.end else None
    if _kind(after) not in ("mul", "add") or after.kwargs or len(after.args) != 2:
        return None
    others = [each for each in after.args if each is not norm.end]
    if len(others) != 1 or not _is_of_columns(others[0], x):
        return None
    if _kind(after) == "mul" and norm.weight is None and norm.bias is None:
        return replace(norm, nodes=nodes, weight=others[0])
    if _kind(after) == "add" and norm.bias is None and norm.kind == "layer_norm":
        return replace(norm, nodes=nodes, bias=others[0])
    return None


def _is_of_columns(node: Any, x: torch.Tensor) -> bool:
    found = value(node)
    return found is not None and found.dim() == 1 < x.dim() and statically_known_true(found.shape[0] == x.shape[-1])
