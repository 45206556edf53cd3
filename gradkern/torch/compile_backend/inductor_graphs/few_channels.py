"""Stage 3, in the backward graph: dW of a convolution of few channels in 16 bits, as the first of a network is.

It is wanted alone, as images need no gradient, and gradkern has a kernel of its own for it, where tensor cores want
more channels than there are. All others but depthwise ones are PyTorch's in both directions: cuDNN's are fast there.
"""

from __future__ import annotations

import operator
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.depthwise_conv import CONV_WEIGHT_GRADIENT, of_each_axis
from gradkern.torch.compile_backend.dynamo_graph.fusion import off_gpu
from gradkern.torch.compile_backend.gates import Gates
from gradkern.torch.operators import new_like

_NAME = "dW of few channels"
_TYPES = (torch.float16, torch.bfloat16)
_VECTOR = 8  # elements of 16 bits: gradkern's kernel takes fewer channels than that, and filters in such vectors


def take(graph: fx.Graph, gates: Gates) -> None:
    """Rewrite what can be."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.convolution_backward.default):
        grad, x, weight, _, *sizes, transposed, _, groups, mask = node.args
        if transposed or groups != 1 or list(mask) != [False, True, False] or not _fits(x, weight, sizes, gates):
            continue
        both = [of_each_axis(each, 2) for each in sizes]
        with graph.inserting_before(node):
            made = graph.call_function(CONV_WEIGHT_GRADIENT, (grad, x, weight, *both, groups))
        made.meta["val"] = new_like(weight.meta["val"])
        for user in list(node.users):
            if user.target is operator.getitem and user.args[1] == 1:
                user.replace_all_uses_with(made)
            graph.erase_node(user)  # of those that are not wanted there may be one, that nobody reads
        graph.erase_node(node)


def _fits(x: fx.Node, weight: fx.Node, sizes: Any, gates: Gates) -> bool:
    image, filters = x.meta["val"], weight.meta["val"]
    if image.dim() != 4 or image.dtype not in _TYPES or off_gpu(image):
        return False
    channels, dilation = filters.shape[1], sizes[2]
    few = channels < _VECTOR and filters.shape[0] % _VECTOR == 0 and all(each == 1 for each in dilation)
    return few and not gates.reason(_NAME, image)
