"""Batch norms. Stage 2, in the graph of both passes: a sum of two gradients becomes the second gradient of the batch
norm behind it. Stage 3, in the forward graph: running statistics are written where they are, without a copy of each.

Where the output of a batch norm is used twice, as at the end of a residual block, autograd adds up two gradients: a
pass over memory that batch norm's gradient saves, as it adds them while it reads them. But where one of the two is
elementwise, as behind a squeeze and excitation, Inductor adds them in the pass that computes it, and folded they would
be one array more in memory.
"""

from __future__ import annotations

import operator

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.batch_norm import BACKWARD, FORWARD, IN_PLACE
from gradkern.torch.compile_backend.dynamo_graph.graph import same_kind


def fold(graph: fx.Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=BACKWARD):
        total, second, *others = node.args
        if second is None and _is_sum(total):
            node.args = (*total.args, *others)
            graph.erase_node(total)


def _is_sum(node: fx.Node) -> bool:
    """Whether it adds, for one user, two tensors alike that kernels of several results have written."""
    if node.target is not torch.ops.aten.add.Tensor or node.kwargs or len(node.users) != 1:
        return False
    written = [each for each in node.args if isinstance(each, fx.Node) and each.target is operator.getitem]
    if len(written) != 2:
        return False
    first, second = (each.meta.get("val") for each in written)
    return same_kind(first, second) and same_kind(first, node.meta["val"])


_NEW = {0: 0, 3: 1, 4: 2}
"""The place that a result of FORWARD has among those of IN_PLACE."""


def write_in_place(graph: fx.Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=FORWARD):
        results = {user.args[1]: user for user in node.users if user.target is operator.getitem}
        copies = [_copy(node, results.get(place), node.args[place + 2]) for place in (1, 2)]
        if len(results) < len(node.users) or None in copies:
            continue
        for place, copy in zip((1, 2), copies, strict=True):
            graph.erase_node(copy)  # pyright: ignore[reportArgumentType]
            graph.erase_node(results.pop(place))
        node.target = IN_PLACE
        values = node.meta["val"]
        node.meta["val"] = tuple([values[place] for place in _NEW])
        for place, user in results.items():
            user.args = (node, _NEW[place])


def _copy(node: fx.Node, result: fx.Node | None, buffer: fx.Node) -> fx.Node | None:
    """What copies the result over the buffer, if nobody else reads either."""
    if result is None or len(result.users) != 1 or set(buffer.users) != {node, copy := next(iter(result.users))}:
        return None
    return copy if copy.target is torch.ops.aten.copy_.default and copy.args[:2] == (buffer, result) else None
