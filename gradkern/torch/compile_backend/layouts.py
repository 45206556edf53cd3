"""Stage 3, in the backward graph: what a batch norm's gradient reads beside its input lies in memory as that does.

What Inductor computes itself it lays out as it likes: behind an average over positions, say, in C order, though all
else is channels-last. The kernels want one order, and would copy.
"""

from __future__ import annotations

from typing import Any

from torch import fx  # pyright: ignore[reportMissingImports]
from torch._inductor import inductor_prims  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.batch_norm_operators import BACKWARD

__all__ = ["agree"]

_INPUT, _OTHERS = 2, (0, 1, 3)
"""Places of BACKWARD's arguments: the input, and what has its shape."""


def agree(graph: fx.Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=BACKWARD):
        x: Any = node.args[_INPUT]
        strides = x.meta["val"].stride()
        if x.op != "placeholder" or not all(isinstance(each, int) for each in strides):
            continue  # what the graph computes lies as Inductor decides later
        with graph.inserting_before(node):
            for place in _OTHERS:
                each: Any = node.args[place]
                if each is not None:
                    made = graph.call_function(inductor_prims.force_stride_order, (each, strides))
                    made.meta["val"] = each.meta["val"]
                    node.update_arg(place, made)
