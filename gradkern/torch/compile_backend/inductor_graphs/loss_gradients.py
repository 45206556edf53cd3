"""Stage 2, in the graph of both passes: what else is done to the gradient of logits is done by the loss's operator.

The gradient of logits that are a result, too, is added: Inductor would add it in a pass of its own. The operator sees
at each call whether it is zero: see zero_gradients. And where the logits are c tanh(x / c), as in Gemma 2, it gives the
gradient of x.
"""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.cross_entropy import BACKWARD, BACKWARD_ADDED
from gradkern.torch.compile_backend.dynamo_graph.graph import only_user

_aten = torch.ops.aten
_VIEWS = _aten.view.default, _aten._unsafe_view.default
_SAME = *_VIEWS, _aten.alias.default, torch.ops.prims.convert_element_type.default


def take(graph: fx.Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=BACKWARD):
        last = node
        while (user := only_user(last)) is not None and user.target in _VIEWS:
            last = user
        other = None if user is None else _added(user, last)
        taken = [user] if user is not None and other is not None else []
        cap, behind = _uncapped(taken[0] if taken else last, node.args[1])
        taken += behind
        if not taken:
            continue
        shape = node.meta["val"].shape
        with graph.inserting_before(node):
            if other is not None and other.meta["val"].shape != shape:
                rows = graph.call_function(_aten.view.default, (other, list(shape)))
                rows.meta["val"] = other.meta["val"].view(shape)
                other = rows
        node.target, node.args = BACKWARD_ADDED, (*node.args, other, cap)
        taken[-1].replace_all_uses_with(last)
        for each in reversed(taken):
            graph.erase_node(each)


def _added(addition: fx.Node, one: fx.Node) -> Any:
    """The gradient of a result that is added to this, if it is all that is computed and both are alike."""
    if addition.target is not _aten.add.Tensor or addition.kwargs or len(addition.args) != 2:
        return None
    others: list[Any] = [each for each in addition.args if each is not one]
    if len(others) != 1 or not isinstance(others[0], fx.Node) or "tangents" not in str(others[0].target):
        return None
    x, y = one.meta["val"], others[0].meta["val"]
    alike = x.shape == y.shape and x.dtype == y.dtype and x.is_contiguous() and y.is_contiguous()
    return others[0] if alike and all(isinstance(each, int) for each in x.shape) else None


def _uncapped(gradient: fx.Node, logits: Any) -> tuple[float, list[fx.Node]]:
    """c of logits that are c tanh(x / c), and the calls that make the gradient of x of theirs; 0 and none."""
    capped = _source(logits)
    t, cap = capped.args if capped.target is _aten.mul.Tensor else (None, None)
    tanh = _source(t) if isinstance(t, fx.Node) else None
    if tanh is None or tanh.target is not _aten.tanh.default or not isinstance(cap, int | float) or cap <= 0:
        return 0.0, []
    wanted = [(_aten.mul.Tensor, cap), (_aten.mul.Tensor, tanh), (_aten.div.Tensor, cap)]
    calls, last = list[fx.Node](), gradient
    while wanted:
        user = only_user(last)
        if user is None:
            return 0.0, []
        if user.target not in _SAME:
            target, with_this = wanted.pop(0)
            rest = [each for each in user.args if each is not last]
            fits = rest == [cap] if with_this is cap else len(rest) == 1 and _is_slope(rest[0], tanh)
            if user.target is not target or not fits:
                return 0.0, []
        calls.append(user)
        last = user
    x, y = gradient.meta["val"], last.meta["val"]
    return (float(cap), calls) if (x.shape, x.dtype) == (y.shape, y.dtype) else (0.0, [])


def _source(node: fx.Node) -> fx.Node:
    while node.target in _SAME:
        node = node.args[0]  # pyright: ignore[reportAssignmentType]
    return node


def _is_slope(node: Any, tanh: Any) -> bool:
    """Whether this is 1 - tanh^2."""
    if not isinstance(node, fx.Node) or node.target is not _aten.sub.Tensor or node.args[0] != 1:
        return False
    square: Any = node.args[1]
    return square.target is _aten.mul.Tensor and all(_source(each) is tanh for each in square.args)
