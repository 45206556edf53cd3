"""Stage 1: attention with a mask that is known when the graph is compiled to be causal, or to mask nothing.

In training under torch.compile transformers makes a causal mask for each batch; in eager mode it does not. It looks for
several texts in a row of positions, and under torch.compile cannot see that there is only one. But the mask depends on
the positions alone, and the graph makes those itself, so the mask is computed here. With `is_causal` in its place
attention skips half of its work: cuDNN's kernels took 4.46 ms of a Llama's step on an H100 with the mask, and 2.04
without.
"""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch._subclasses.fake_tensor import unset_fake_temporarily  # pyright: ignore[reportMissingImports]
from torch.fx.node import map_aggregate  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion
from gradkern.torch.compile_backend.dynamo_graph.graph import arguments, calls, value
from gradkern.torch.compile_backend.dynamo_graph.proof import memory, name_of

_NAME = "causal attention"
_MADE = {"arange", "ones", "zeros", "full"}
_KNOWN = {
    *_MADE,
    *("new_ones", "new_zeros", "new_full", "ones_like", "zeros_like", "tril", "triu", "cumsum", "diff", "cat"),
    *("add", "sub", "mul", "neg", "eq", "ne", "le", "lt", "ge", "gt", "and_", "or_", "invert", "where", "bool"),
    *("logical_and", "logical_or", "logical_not", "bitwise_and", "bitwise_or", "bitwise_not", "to", "type"),
    *("getitem", "view", "reshape", "unsqueeze", "squeeze", "expand", "transpose", "permute", "contiguous", "clone"),
}
"""Functions and methods that give the same each time, and write nothing."""
_MOST = 1 << 28
"""Elements of a mask that is computed: more would take seconds."""


def fuse(graph: fx.Graph, fusion: Fusion) -> None:
    """Give attention `is_causal` in place of such masks."""
    causal: dict[fx.Node, bool | str] = {}
    for call in calls(graph, functional.scaled_dot_product_attention):
        given = arguments(call, "query", "key", "value", attn_mask=None, dropout_p=0.0, is_causal=False)
        query, mask = value(given["query"]), given["attn_mask"]
        if value(mask) is None or given["is_causal"]:
            continue
        reason = fusion.against(_NAME, query)
        if not reason:
            if mask not in causal:
                causal[mask] = _is_causal(mask, fusion)
            reason = _mismatch(causal[mask], query, value(given["key"]))
        if not reason:
            call.args, call.kwargs = (), {**given, "attn_mask": None, "is_causal": causal[mask]}
        fusion.report(_NAME, call, query, reason)


def _mismatch(causal: bool | str, query: torch.Tensor | None, key: torch.Tensor | None) -> str:
    """Why attention with these is not what `is_causal` computes; "" if it is."""
    if isinstance(causal, str):
        return causal
    square = query is not None and key is not None and query.shape[-2] == key.shape[-2]
    return "" if square or not causal else "there are more keys than queries, or fewer"


def _is_causal(mask: fx.Node, fusion: Fusion) -> bool | str:
    """Whether the mask is causal, or masks nothing; for any other mask, the reason."""
    found = value(mask)
    if found is None or found.dtype is not torch.bool:
        return "its mask is added"
    if not all(isinstance(each, int) for each in found.shape) or found.numel() > _MOST:
        return "the size of its mask is open, or too large to compute it here"
    cone = sorted(_ancestors(mask))
    if not all(name_of(each) in _KNOWN and each.op.startswith("call_") for each in cone):
        return "its mask depends on inputs"
    if fusion.proof.writes_after(cone[0], memory(cone)):
        return "its mask is written into"
    computed = _computed(cone)
    if bool(computed.all()):
        return False
    if computed.shape[-1] != computed.shape[-2] or not bool((computed == torch.ones_like(computed).tril()).all()):
        return "its mask is another one"
    return True


def _ancestors(node: fx.Node) -> set[fx.Node]:
    found, waiting = set(), [node]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting += each.all_input_nodes
    return found


def _computed(cone: list[fx.Node]) -> torch.Tensor:
    """What the last of these nodes computes, on the CPU."""
    values: dict[fx.Node, Any] = {}
    cpu = torch.device("cpu")
    with unset_fake_temporarily(), torch.no_grad():
        for node in cone:

            def known(each: Any, moved: bool = name_of(node) in ("to", "type")) -> Any:
                is_device = isinstance(each, torch.device) or (moved and isinstance(each, str))
                return values[each] if isinstance(each, fx.Node) else cpu if is_device else each

            args, kwargs = map_aggregate((node.args, node.kwargs), known)
            made = {"device": cpu} if name_of(node) in _MADE else {}
            function = getattr(torch.Tensor, node.target) if isinstance(node.target, str) else node.target
            values[node] = function(*args, **{**kwargs, **made})
    return values[cone[-1]]
