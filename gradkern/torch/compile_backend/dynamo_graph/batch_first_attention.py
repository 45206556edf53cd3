"""Stage 1: self-attention of nn.MultiheadAttention(batch_first=True), computed in the order of its batch.

PyTorch's function takes sequences first, so the module transposes its input and its result. The packed projection is
then copied apart, and the result has the batch inside: so do all residual streams behind it, as torchvision's vision
transformers have them, and add_norm.py takes no sum. Here the same products are computed of the input as it is, and
attention reads its queries, keys and values where the projection has put them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph.contiguous_rows import new_values, put_in_place
from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion
from gradkern.torch.compile_backend.dynamo_graph.graph import arguments, calls, only_user, result, value

_NAME = "batch-first attention"
_NAMES = (
    *("query", "key", "value", "embed_dim_to_check", "num_heads", "in_proj_weight", "in_proj_bias", "bias_k", "bias_v"),
    *("add_zero_attn", "dropout_p", "out_proj_weight", "out_proj_bias", "training", "key_padding_mask"),
)
_OTHERS = ("bias_k", "bias_v", "add_zero_attn", "use_separate_proj_weight", "static_k", "static_v")
"""Arguments that make it another function."""


def arrange(graph: fx.Graph, fusion: Fusion) -> None:
    """Rewrite what can be."""
    for call in calls(graph, functional.multi_head_attention_forward):
        given = arguments(call, *_NAMES, need_weights=True, attn_mask=None, is_causal=False)
        x, ends = _transposed(given["query"]), _ends(call)
        if x is None or not ends or not given["query"] is given["key"] is given["value"]:
            continue
        end = ends[0]
        reason = fusion.against(_NAME, value(x)) or _unlike(given)
        values = {} if reason else new_values(graph, fusion.proof, end)
        if not reason and not values:
            reason = "what follows has the order in memory that it gives"
        fusion.report(_NAME, call, value(x), reason)
        if not reason:
            with graph.inserting_before(call):
                made = _calls(graph, given, x, value(end))
            put_in_place(end, made, values)
            for each in (*ends, call, given["query"]):
                if not each.users:
                    graph.erase_node(each)


def _transposed(node: Any) -> fx.Node | None:
    """What this is with its batch and its sequence exchanged; None where it is nothing of the kind."""
    found = value(node)
    if found is None or found.dim() != 3 or node.op != "call_method" or node.target != "transpose":
        return None
    return node.args[0] if {each % 3 for each in node.args[1:]} == {0, 1} else None


def _ends(call: fx.Node) -> tuple[fx.Node, ...]:
    """The result with the batch first again, and as it is given; () where anything else is used."""
    item = only_user(call)
    end = None if item is None or item.args[1:] != (0,) else only_user(item)
    return () if item is None or end is None or _transposed(end) is not item else (end, item)


def _unlike(given: Mapping[str, Any]) -> str:
    """Why such a call is left as it is; "" where it is rewritten."""
    if any(given.get(each) is not None and given.get(each) is not False for each in _OTHERS):
        return "it attends to more than its input"
    if given["need_weights"]:
        return "its weights are wanted"
    found = [value(each) for each in _masks(given) if each is not None]
    added = all(each is not None and each.is_floating_point() for each in found)
    return "" if added else "its mask is not added"


def _masks(given: Mapping[str, Any]) -> tuple[Any, Any]:
    """What is added for positions and for samples; the former may be left out for `is_causal`."""
    for_samples = given.get("key_padding_mask")
    return None if _is_causal(given) else given["attn_mask"], for_samples


def _is_causal(given: Mapping[str, Any]) -> bool:
    return given["is_causal"] and given.get("key_padding_mask") is None


def _calls(graph: fx.Graph, given: Mapping[str, Any], x: fx.Node, y: Any) -> fx.Node:
    """Compute it of x; y is the result, without data."""
    half = y.dtype.itemsize == 2
    mixed = torch.autocast(y.device.type, y.dtype, enabled=half, cache_enabled=False)  # as it was at the call

    def put(target: Any, *args: Any, **named: Any) -> fx.Node:
        make: Any = graph.call_method if isinstance(target, str) else graph.call_function
        made = make(target, args, named)
        with mixed:
            made.meta["example_value"] = result(target, args, named)
        return made

    mask, for_samples = _masks(given)
    if mask is not None and mask.meta["example_value"].dim() == 3:  # one for each sample and head
        mask = put("unflatten", mask, 0, (-1, given["num_heads"]))
    if for_samples is not None:
        for_samples = put("unsqueeze", put("unsqueeze", for_samples, 1), 1)
        mask = for_samples if mask is None else put(torch.add, mask, for_samples)
    packed = put(functional.linear, x, given["in_proj_weight"], given["in_proj_bias"])
    parts = put("permute", put("unflatten", packed, -1, (3, given["num_heads"], -1)), 2, 0, 3, 1, 4)
    q, k, v = (put("select", parts, 0, part) for part in range(3))
    attended = put(
        functional.scaled_dot_product_attention,
        *(q, k, v),
        attn_mask=mask,
        dropout_p=given["dropout_p"] if given["training"] else 0.0,
        is_causal=_is_causal(given),
    )
    rows = put("flatten", put("transpose", attended, 1, 2), 2)
    return put(functional.linear, rows, given["out_proj_weight"], given["out_proj_bias"])
