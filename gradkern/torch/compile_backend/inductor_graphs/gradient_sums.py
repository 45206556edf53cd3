"""Stage 2, in the graph of both passes: a sum of two gradients becomes the second gradient of the batch norm behind it.

Where the output of a batch norm is used twice, as at the end of a residual block, autograd adds up two gradients: a
pass over memory that batch norm's gradient saves, as it adds them while it reads them. But where one of the two is
elementwise, as behind a squeeze and excitation, Inductor adds them in the pass that computes it, and folded they would
be one array more in memory.
"""

from __future__ import annotations

import operator

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.batch_norm import BACKWARD
from gradkern.torch.compile_backend.dynamo_graph.graph import same_kind

__all__ = ["fold"]


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
