"""Stage 1: residual streams that begin with what a convolution gives, with contiguous rows.

Whisper's and SigLIP's begin as conv(x).transpose(1, 2) + positions. PyTorch's additions, dropout and casts keep the
order in memory that the convolution gave, through all layers: norms read columns, and add_norm.py takes no sum. One
copy of the first sum changes that, and Inductor makes it in the pass that adds.

The rule: a sum of three axes or more, the last of them not innermost in memory, is copied if additions, dropout and
casts alone lead from it to another such sum, whose last axis is normalized. So images that are permuted before a norm
stay as they are, and streams that a norm begins, as its results are contiguous. Nothing is changed where what follows
from the copy is among the graph's results, may be written, or is viewed as only the other order allows.
"""

from __future__ import annotations

from typing import Any

from torch import fx  # pyright: ignore[reportMissingImports]
from torch.fx.experimental.symbolic_shapes import statically_known_true  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion, unwanted
from gradkern.torch.compile_backend.dynamo_graph.graph import called, is_cast, result, same_kind, same_strides, value
from gradkern.torch.compile_backend.dynamo_graph.norms import norms
from gradkern.torch.compile_backend.dynamo_graph.proof import Proof, memory, name_of, storages


def arrange(graph: fx.Graph, fusion: Fusion) -> None:
    """Rewrite what can be. The sums that are gained are reported by add_norm.py."""
    firsts: dict[fx.Node, None] = {}
    for norm in norms(graph):
        total, first = value(norm.x), _first(norm.x)
        if total is None or first in (None, norm.x) or called(norm.x) != "add" or unwanted(total):
            continue
        if not fusion.against(f"add + {norm.kind}", total):
            firsts[first] = None
    for first in filter(_has_columns, firsts):
        found = new_values(graph, fusion.proof, first)
        if found:
            with graph.inserting_after(first):
                made = graph.call_method("contiguous", (first,))
            put_in_place(first, made, found)


def _first(node: Any) -> fx.Node | None:
    """The first of the sums that this has its order in memory from; None where its rows are contiguous."""
    found = None
    node = node if _has_columns(node) else None
    while node is not None and (called(node) == "add" or node.target is functional.dropout or is_cast(node)):
        found = node if called(node) == "add" else found
        node = next(filter(_has_columns, node.all_input_nodes), None)
    return found


def _has_columns(node: Any) -> bool:
    """Whether its last axis is not the innermost in memory."""
    x = value(node)
    return x is not None and x.dim() > 2 and not statically_known_true(x.stride(-1) == 1)


def put_in_place(first: fx.Node, made: fx.Node, values: dict[fx.Node, Any]) -> None:
    """Let others read `made`, the contiguous one; values are those of `new_values`."""
    made.meta = {**first.meta, "example_value": values[first]}
    first.replace_all_uses_with(made, lambda user: user is not made)
    for node in values.keys() - {first}:
        node.meta["example_value"] = values[node]


def new_values(graph: fx.Graph, proof: Proof, first: fx.Node) -> dict[fx.Node, Any]:
    """That of a contiguous sum, and of what has other strides or memory because of it, without data; {} where the
    program could not have them.
    """
    found: dict[fx.Node, Any] = {first: first.meta["example_value"].contiguous()}
    old, new = memory(first), storages(found[first])
    for node in graph.nodes:
        if found.keys().isdisjoint(node.all_input_nodes):
            continue
        written = proof.written(node)
        if node.op == "output" or name_of(node) == "as_strided" or written is None or written & old:
            return {}
        if "unbacked_bindings" in node.meta:  # a size that depends on data: what has it is no view
            continue
        try:
            made = result(node.target, node.args, node.kwargs, found)
        except (KeyError, RuntimeError, TypeError, ValueError):
            return {}
        x = value(node)
        if not memory(node) & old and not storages(made) & new and (x is None or same_strides(x, made)):
            continue
        if x is None or not same_kind(x, made) or x.requires_grad != made.requires_grad:
            return {}
        found[node], old, new = made, old | memory(node), new | storages(made)
    return found
