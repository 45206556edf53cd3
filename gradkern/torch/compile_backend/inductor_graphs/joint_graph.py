"""Stage 2, in the graph of both passes: what gradkern's operators take over of what stands around them.

A sum of two gradients becomes the second gradient of the batch norm behind it; the sums of a norm's gradient over rows
are gradients of biases; and parameters that an operator's backward pass reads and eager's does not are copied in the
forward pass. What the loss's operator takes over stands in loss_gradients.py.
"""

from __future__ import annotations

import operator
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph import add_norm, batch_norm, group_norm, instance_norm, linear_gelu
from gradkern.torch.compile_backend.dynamo_graph.graph import same_kind
from gradkern.torch.compile_backend.operators import define
from gradkern.torch.functional.residual_norms import BRANCH, SUM
from gradkern.torch.operators import new_like

Tensor = torch.Tensor
_aten, _convert = torch.ops.aten, torch.ops.prims.convert_element_type.default
_BETWEEN = _aten.view.default, _aten._unsafe_view.default, _convert


def fold_sums(graph: fx.Graph) -> None:
    """Where the output of a batch norm is used twice, as at the end of a residual block, autograd adds up two
    gradients: a pass over memory that batch norm's gradient saves, as it adds them while it reads them. But where one
    of the two is elementwise, as behind a squeeze and excitation, Inductor adds them in the pass that computes it, and
    folded they would be one array more in memory.
    """
    for node in graph.find_nodes(op="call_function", target=batch_norm.BACKWARD):
        total, second, *others = node.args
        if second is None and _is_sum(total):
            node.args = (*total.args, *others)
            graph.erase_node(total)


def _is_sum(node: fx.Node) -> bool:
    """Whether it adds, for one user, two tensors alike that kernels of several results have written."""
    if node.target is not _aten.add.Tensor or node.kwargs or len(node.users) != 1:
        return False
    written = [each for each in node.args if isinstance(each, fx.Node) and each.target is operator.getitem]
    if len(written) != 2:
        return False
    first, second = (each.meta.get("val") for each in written)
    return same_kind(first, second) and same_kind(first, node.meta["val"])


# --- gradients of biases ----------------------------------------------------------------------------------------------


def take_bias_gradients(graph: fx.Graph) -> None:
    """A linear layer whose output is added to a residual stream has a bias whose gradient is the sum over rows of the
    stream's gradient. The backward pass of the next norm behind the addition computes that, and can sum it as it does.
    """
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
    if backward.target not in add_norm.BACKWARDS or place not in (0, len(backward.args[-1]) + BRANCH):
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


# --- parameters that eager does not save ------------------------------------------------------------------------------


def copies_like(tensors: list[Tensor]) -> list[Tensor]:
    """Where the copies of these tensors are written."""
    return [new_like(each) for each in tensors]


def _copies(tensors: list[Tensor]) -> list[Tensor]:
    return [made.copy_(each) for made, each in zip(copies_like(tensors), tensors, strict=True)]


HELD = define(
    "held",
    _copies,
    "Tensor[]",
    copies_like,
    # one launch of Inductor's: a call from Python takes the host 270 us for 34 parameters
    lower=lambda inductor: inductor.make_foreach_pointwise(inductor.clone),
)


_NOT_SAVED = {
    linear_gelu.BACKWARD: (2,),
    batch_norm.BACKWARD: (5,),
    group_norm.BACKWARD: (5,),
    instance_norm.BACKWARD: (2, 3),
}
"""By the backward operator, the places of parameters that eager's backward pass does not read."""
_READERS = {
    *_NOT_SAVED,
    *(linear_gelu.BIAS_GELU, batch_norm.FORWARD, group_norm.GROUP_NORM, instance_norm.INSTANCE_NORM),
}


def hold_parameters(graph: fx.Graph) -> None:
    """A program may write the bias of a linear layer, a batch norm or a group norm between the two passes, as eager's
    gradients need none of them. gradkern's compute an activation's input again, from the bias too. The forward pass
    copies them, and the operators of both passes read the copies: what the forward pass needs, the backward pass is
    given.
    """
    nodes = [node for each in _NOT_SAVED for node in graph.find_nodes(op="call_function", target=each)]
    read: list[Any] = [node.args[place] for node in nodes for place in _NOT_SAVED[node.target]]
    parameters = list(dict.fromkeys(each for each in read if isinstance(each, fx.Node) and each.op == "placeholder"))
    if not parameters:
        return
    *_, last = graph.find_nodes(op="placeholder")
    with graph.inserting_after(last):
        held = graph.call_function(HELD, (parameters,))
    held.meta["val"] = copies_like([each.meta["val"] for each in parameters])
    with graph.inserting_after(held):
        for place, (parameter, value) in enumerate(zip(parameters, held.meta["val"], strict=True)):
            copy = graph.call_function(operator.getitem, (held, place))
            copy.meta["val"] = value
            parameter.replace_all_uses_with(copy, lambda user: user.target in _READERS)
