"""Stage 3, in the backward graph: the strides of tensors that Inductor computes, where they matter to their readers.

What Inductor computes itself it lays out as it likes: behind an average over positions, say, in C order, though all
else is channels-last. A batch norm's kernels want one order for all, and would copy. A 3-D convolution's gradient is
copied by PyTorch, slowly, where it is cut out of another, as that of a concatenation is: Inductor's copy is quicker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch._inductor import inductor_prims  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph import batch_norm, windows

_PLACES = {batch_norm.BACKWARD: (2, (0, 1, 3)), windows.MAX_POOL_BACKWARD: (1, (0,))}
"""By the operator, the place of an argument that the forward pass has saved, and those of what has its shape."""


def agree(graph: fx.Graph) -> None:
    for target, (saved, others) in _PLACES.items():
        for node in graph.find_nodes(op="call_function", target=target):
            _agree(node, node.args[saved], others)
    dense = torch.ops.aten.is_non_overlapping_and_dense.default
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.convolution_backward.default):
        gradient, x = (each.meta["val"] for each in node.args[:2])
        if x.dim() == 5 and x.is_contiguous(memory_format=torch.channels_last_3d) and not dense(gradient):
            order: Any = torch.channels_last_3d
            with graph.inserting_before(node):
                made = graph.call_function(torch.ops.aten.clone.default, (node.args[0],), {"memory_format": order})
            made.meta["val"] = torch.empty_like(gradient, memory_format=order)
            node.update_arg(0, made)


def _agree(node: fx.Node, saved: Any, others: Iterable[int]) -> None:
    if saved is None or saved.op != "placeholder":
        return  # Inductor decides later on the strides of what the graph computes
    strides = saved.meta["val"].stride()
    if not all(isinstance(each, int) for each in strides):
        return
    with node.graph.inserting_before(node):
        for place in others:
            each: Any = node.args[place]
            if each is not None:
                made = node.graph.call_function(inductor_prims.force_stride_order, (each, strides))
                made.meta["val"] = each.meta["val"]
                node.update_arg(place, made)
