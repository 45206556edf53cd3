"""Stage 2, in the graph of both passes: the gradient of logits that are a result, too, is added by the loss's operator.

Inductor would add it in a pass of its own. The operator sees at each call whether it is zero: see zero_gradients.
"""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.cross_entropy import BACKWARD, BACKWARD_ADDED

_aten = torch.ops.aten
_VIEWS = _aten.view.default, _aten._unsafe_view.default


def take(graph: fx.Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=BACKWARD):
        last = node
        while (user := _only_user(last)) is not None and user.target in _VIEWS:
            last = user
        other = None if user is None else _added(user, last)
        if user is None or other is None:
            continue
        shape = node.meta["val"].shape
        with graph.inserting_before(node):
            if other.meta["val"].shape != shape:
                rows = graph.call_function(_aten.view.default, (other, list(shape)))
                rows.meta["val"] = other.meta["val"].view(shape)
                other = rows
        node.target, node.args = BACKWARD_ADDED, (*node.args, other)
        user.replace_all_uses_with(last)
        graph.erase_node(user)


def _only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


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
