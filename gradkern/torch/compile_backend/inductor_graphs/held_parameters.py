"""Stage 2, in the graph of both passes: what a backward pass reads of parameters that eager does not save is copied.

A program may write the bias of a linear layer, a batch norm or a group norm between the two passes, as eager's
gradients need none of them. gradkern's compute an activation's input again, from the bias too. The forward pass copies
them in one launch.
"""

from __future__ import annotations

import operator
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph import batch_norm, group_norm, instance_norm, linear_gelu
from gradkern.torch.compile_backend.operators import define
from gradkern.torch.operators import new_like

Tensor = torch.Tensor


def copies_like(tensors: list[Tensor]) -> list[Tensor]:
    """Where the copies of these tensors are written."""
    return [new_like(each) for each in tensors]


def _copies(tensors: list[Tensor]) -> list[Tensor]:
    """In one launch of PyTorch's."""
    made = copies_like(tensors)
    torch._foreach_copy_(made, tensors)  # pyright: ignore[reportPrivateImportUsage]
    return made


HELD = define("held", _copies, "Tensor[]", copies_like)


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


def hold(graph: fx.Graph) -> None:
    """Let the operators of both passes read the copies: what the forward pass needs, the backward pass is given."""
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
