"""Stage 3, in both graphs: a small table of costly functions is computed once, and not where it is broadcast.

Inductor writes what is elementwise into every kernel that reads it. So the cosines of rotary embeddings, one for each
position and pair of features, are computed anew for every sample, head and layer, in both passes. A table that lies in
memory costs one launch, and what reads it is bound by memory again: in a Llama-like model on an H200 kernels that turn
queries and keys took 300 us each, and take 40 to 52.
"""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.gates import Gates, hint

_aten = torch.ops.aten
_COSTLY = {
    *(_aten.sin, _aten.cos, _aten.tan, _aten.asin, _aten.acos, _aten.atan, _aten.atan2),
    *(_aten.sinh, _aten.cosh, _aten.asinh, _aten.acosh, _aten.atanh, _aten.lgamma, _aten.digamma),
}
"""What takes a GPU tens of instructions, and a power of an exponent that is no constant."""
_POWERS = (_aten.pow.Tensor_Tensor, _aten.pow.Scalar)
_BEGINNINGS = {torch.ops.prims.iota, _aten.arange, _aten.full, _aten.scalar_tensor, _aten.mm, _aten.bmm}
"""Where a table may begin, beside the graph's inputs. Not in a reduction, whose kernel goes on with what reads it."""
_BROADCAST = 8
"""How many elements of what reads a table each of its elements has at least."""


def keep(graph: fx.Graph, gates: Gates) -> None:
    """Have Inductor store every such table."""
    costs: dict[fx.Node, bool] = {}  # of what is elementwise from its beginnings on: whether a costly function is in it
    for node in graph.nodes:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        elementwise, inputs = _is_elementwise(node), node.all_input_nodes
        for table in [each for each in inputs if elementwise and costs.get(each)]:
            often = hint(value.numel()) >= _BROADCAST * hint(table.meta["val"].numel())
            if often and not gates.reason("broadcast tables", value):
                _store(table)
                costs[table] = False
        if node.op in ("placeholder", "get_attr") or _packet(node) in _BEGINNINGS:
            costs[node] = False
        elif elementwise and all(each in costs for each in inputs):
            costly = _packet(node) in _COSTLY or node.target in _POWERS
            costs[node] = costly or any(costs[each] for each in inputs)


def _packet(node: fx.Node) -> Any:
    """What is called, whatever its arguments; None of what is no operator."""
    return getattr(node.target, "overloadpacket", None)


def _is_elementwise(node: fx.Node) -> bool:
    """Also what only says where elements are, and what puts tensors side by side."""
    target: Any = node.target
    if _packet(node) is None:
        return False
    return target.is_view or _packet(node) is _aten.cat or torch.Tag.pointwise in target.tags


def _store(table: fx.Node) -> None:
    while table.target.is_view:  # pyright: ignore[reportAttributeAccessIssue, reportFunctionMemberAccess]
        table = table.all_input_nodes[0]
    table.meta["inductor_realize_to_strides"] = True
