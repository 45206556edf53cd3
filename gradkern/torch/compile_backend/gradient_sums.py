"""Stage 2, in the graph of both passes: a sum of two gradients becomes the second gradient of the batch norm behind it.

Where the output of a batch norm is used twice, as at the end of a residual block, autograd adds up two gradients: a
pass over memory that batch norm's gradient saves, as it adds them while it reads them.
"""

from __future__ import annotations

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.batch_norm_operators import BACKWARD
from gradkern.torch.compile_backend.graph import same_kind

__all__ = ["fold"]


def fold(graph: fx.Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=BACKWARD):
        total, second, *others = node.args
        if second is None and _is_sum(total):
            node.args = (*total.args, *others)
            graph.erase_node(total)


def _is_sum(node: fx.Node) -> bool:
    """Whether it adds two tensors alike for one user."""
    if node.target is not torch.ops.aten.add.Tensor or node.kwargs or len(node.users) != 1:
        return False
    first, second = (each.meta.get("val") if isinstance(each, fx.Node) else None for each in node.args)
    return same_kind(first, second) and same_kind(first, node.meta["val"])
