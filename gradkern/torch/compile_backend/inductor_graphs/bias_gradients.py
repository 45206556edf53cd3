"""Stage 2, in the graph of both passes: a bias's gradient comes from the norm's backward pass that has its terms.

A linear layer whose output is added to a residual stream has a bias whose gradient is the sum over rows of the stream's
gradient. The backward pass of the next norm behind the addition computes that, and can sum it as it does.
"""

from __future__ import annotations

import operator
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.add_norm import BACKWARDS
from gradkern.torch.functional.residual_norms import BRANCH, SUM
from gradkern.torch.operators import new_like

_aten, _convert = torch.ops.aten, torch.ops.prims.convert_element_type.default
_BETWEEN = (_aten.view.default, _aten._unsafe_view.default, _convert)


def take(graph: fx.Graph) -> None:
    given: set[fx.Node] = set()
    for node in graph.find_nodes(op="call_function", target=_aten.sum.dim_IntList):
        backward = _over_rows(node)
        if backward is not None:
            _replace(graph, node, _sum_of(graph, backward), copied=backward in given)
            given.add(backward)


def _over_rows(node: fx.Node) -> fx.Node | None:
    """The norm's backward pass whose gradient this sums over all axes but the last, if it does that."""
    path: list[Any] = [node.args[0]]
    while path[-1].target in _BETWEEN:
        path.append(path[-1].args[0])
    if path[-1].target is not operator.getitem:
        return None
    backward, place = path[-1].args
    if backward.target not in BACKWARDS or place not in (0, len(backward.args[-1]) + BRANCH):
        return None
    axes: Any = node.args[1]
    dims, weight = path[0].meta["val"].dim(), backward.args[3].meta["val"]
    if dims < 2 or not axes or {axis % dims for axis in axes} != set(range(dims - 1)):
        return None
    # the sum is of the weight's type; in a wider one Inductor's would have more digits
    narrower = torch.promote_types(node.meta["val"].dtype, weight.dtype) == weight.dtype
    return backward if narrower and all(_has_columns(each, weight.shape[0]) for each in path) else None


def _has_columns(node: fx.Node, count: Any) -> bool:
    """Whether the last axis is so long; False of a symbol: to compare it would make it a number."""
    last = node.meta["val"].shape[-1:]
    return all(isinstance(each, int) for each in (*last, count)) and last == (count,)


def _sum_of(graph: fx.Graph, backward: Any) -> fx.Node:
    """The sum over rows from the norm's backward pass, with the mask changed to compute it."""
    *tensors, mask = backward.args
    place = len(mask) + SUM
    if not mask[place]:
        backward.args = (*tensors, [*mask[:place], True, *mask[place + 1 :]])
        values = backward.meta["val"]
        backward.meta["val"] = (*values[:place], new_like(tensors[3].meta["val"]), *values[place + 1 :])
    made = next((each for each in backward.users if each.args[1] == place), None)
    if made is None:
        with graph.inserting_after(backward):
            made = graph.call_function(operator.getitem, (backward, place))
        made.meta = {**backward.meta, "val": backward.meta["val"][place]}
    return made


def _made_of(node: fx.Node, target: Any, *arguments: Any) -> fx.Node:
    made = node.graph.call_function(target, (node, *arguments))
    made.meta = {**node.meta, "val": target(node.meta["val"], *arguments)}
    return made


def _replace(graph: fx.Graph, node: fx.Node, made: fx.Node, copied: bool) -> None:
    """Replace `node` with `made`, in the node's shape and type. copied: in memory of its own, because parameters whose
    gradients share memory would be counted, scaled and clipped twice.
    """
    value = node.meta["val"]
    if not copied and value.dtype == made.meta["val"].dtype:
        made.meta["val"] = value.view(-1)
    with graph.inserting_before(node):
        if value.dim() > 1:
            made = _made_of(made, _aten.view.default, list(value.shape))
        if value.dtype != made.meta["val"].dtype:
            made = _made_of(made, _convert, value.dtype)
        elif copied:
            made = _made_of(made, _aten.clone.default)
    # Inductor keeps a copy between two results; it compares the storages of these values to find them.
    made.meta["val"] = value
    node.replace_all_uses_with(made)
    graph.erase_node(node)
