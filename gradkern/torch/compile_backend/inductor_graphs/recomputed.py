"""Stage 2, in the graph of both passes: outputs that the backward pass reads are recomputed there from saved inputs.

Of an elementwise function PyTorch's partitioner saves the input, and no output that Inductor's kernels of the backward
pass can recompute as they read it. Of an operator of gradkern's it would save both: of GELUs in front of a response
normalization and of batch norms in front of a squeeze and excitation.

A batch norm and its activation are so few instructions that each kernel that reads the output computes it anew. A GELU
is more of them than a read takes time, so gradkern's kernel writes it once more.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch._inductor.decomposition import select_decomp_table  # pyright: ignore[reportMissingImports]
from torch.fx.experimental.proxy_tensor import make_fx  # pyright: ignore[reportMissingImports]
from torch.utils.checkpoint import CheckpointPolicy  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend.dynamo_graph import batch_norm, linear_gelu
from gradkern.torch.functional.norm_activation import ACTIVATIONS

Tensor = torch.Tensor
_aten = torch.ops.aten
_SAME_ELEMENTS = {
    *(_aten.view.default, _aten._unsafe_view.default, _aten.permute.default, _aten.clone.default),
    torch.ops.prims.convert_element_type.default,
}
_REDUCTIONS = {_aten.sum.dim_IntList, _aten.sum.default, _aten.mean.dim}


class _BatchNorm(NamedTuple):
    """Of a forward pass: its output, and what that is computed of."""

    output: Any
    function: Callable[..., Tensor]
    given: tuple[Any, ...]


def recompute_outputs(graph: fx.Graph) -> None:
    """After `hold_parameters`: what is read is saved in any case."""
    norms = [each for each in map(_batch_norm, graph.nodes) if each is not None]
    gelus = [
        each
        for each in graph.find_nodes(op="call_function", target=linear_gelu.BIAS_GELU)
        if not _is_parameter(each.args[1])
    ]
    forward = _of_forward_pass(graph) if norms or gelus else set[fx.Node]()
    for gelu in gelus:
        if _reads(_elementwise(gelu, forward), forward):
            gelu.meta.setdefault("recompute", CheckpointPolicy.MUST_RECOMPUTE)
    for norm in norms:
        chain = _elementwise(norm.output, forward)
        reads = _reads(chain, forward)
        if reads:
            _replace(graph, norm, chain, reads)


def _reads(chain: list[fx.Node], forward: set[fx.Node]) -> list[tuple[fx.Node, fx.Node]]:
    """What of the chain the backward pass reads, and in which of its nodes."""
    return [(each, user) for each in chain for user in each.users if user not in forward]


def _of_forward_pass(graph: fx.Graph) -> set[fx.Node]:
    """What the results of the forward pass need. A result of the backward pass depends on gradients that are given."""
    given = {each for each in graph.find_nodes(op="placeholder") if each.name.startswith("tangents")}
    for node in graph.nodes:
        if node.op != "output" and not given.isdisjoint(node.all_input_nodes):
            given.add(node)
    (last,) = graph.find_nodes(op="output")
    found = {each for each in last.all_input_nodes if each not in given}
    for node in reversed(graph.nodes):
        if node in found:
            found.update(node.all_input_nodes)
    return found


def _elementwise(output: fx.Node, forward: set[fx.Node]) -> list[fx.Node]:
    """The output and what the forward pass computes of it, and of less, element by element, in order; but what is saved
    in any case, as a convolution's gradient reads it. Nothing where that is the output.
    """
    found, ahead = {output}, [output]
    while ahead:
        node = ahead.pop()
        saved = any(user not in forward and not _is_fused(user) for user in node.users)
        if saved and _is_same(node, output):
            return []
        if saved:
            found.discard(node)
            continue
        for user in node.users:
            if user in forward and user not in found and _is_elementwise(user) and _is_of_less(user, found):
                found.add(user)
                ahead.append(user)
    return sorted(found)


def _is_of_less(node: fx.Node, found: Collection[fx.Node]) -> bool:
    """Whether all else that it is computed of has fewer elements. Of open sizes nothing is known."""
    values = [each.meta.get("val") for each in (node, *node.all_input_nodes) if each not in found]
    count, *others = [each.numel() for each in values if isinstance(each, torch.Tensor)] or [None]
    return isinstance(count, int) and all(isinstance(each, int) and each < count for each in others)


def _is_same(node: fx.Node, output: fx.Node) -> bool:
    """Whether it has the output's elements, in whatever order and type."""
    while node is not output and node.target in _SAME_ELEMENTS:
        node = node.all_input_nodes[0]
    return node is output


def _batch_norm(node: fx.Node) -> _BatchNorm | None:
    """None of other nodes, of one that adds a residual, and of parameters that are not saved otherwise."""
    if node.target is not batch_norm.FORWARD:
        return None
    arguments: Any = node.args
    x, weight, bias, _, _, residual, *_, activation, alpha = arguments
    results = {user.args[1]: user for user in node.users if user.target is operator.getitem}
    if residual is not None or _is_parameter(bias) or not results.keys() >= {0, 3, 4}:
        return None

    def function(x: Tensor, *per_channel: Tensor) -> Tensor:
        wide = torch.promote_types(x.dtype, torch.float32)
        weight, bias, mean, inv_std = (each.to(wide).view(-1, *[1] * (x.dim() - 2)) for each in per_channel)
        return ACTIVATIONS[activation]((x.to(wide) - mean) * inv_std * weight + bias, alpha).to(x.dtype)

    return _BatchNorm(results[0], function, (x, weight, bias, results[3], results[4]))


def _is_parameter(node: Any) -> bool:
    return node.op == "placeholder"


def _is_fused(node: fx.Node) -> bool:
    """Whether Inductor computes it in kernels of its own, that take over what they read."""
    if node.target in _SAME_ELEMENTS:
        return all(map(_is_fused, node.users))
    return node.target in _REDUCTIONS or _is_elementwise(node)


def _is_elementwise(node: fx.Node) -> bool:
    return node.target in _SAME_ELEMENTS or torch.Tag.pointwise in getattr(node.target, "tags", ())


def _replace(graph: fx.Graph, norm: _BatchNorm, chain: list[fx.Node], reads: list[tuple[fx.Node, fx.Node]]) -> None:
    """Let these readers read the output that they compute, and what is computed of that."""
    output, function, given = norm
    traced = make_fx(function, select_decomp_table())(*[each.meta["val"] for each in given])
    known: dict[fx.Node, Any] = dict(zip(traced.graph.find_nodes(op="placeholder"), given, strict=True))
    needed = {read for read, _ in reads}
    for node in reversed(chain):
        if not needed.isdisjoint(node.users):
            needed.add(node)
    again: dict[fx.Node, Any] = {}
    for node in [each for each in chain if each in needed]:
        last = max([node, *given]) if node is output else node
        with graph.inserting_before(last.next):
            if node is output:
                again[node] = graph.graph_copy(traced.graph, known)
            else:
                again[node] = graph.node_copy(node, lambda each: again.get(each, each))
    for read, reader in reads:
        reader.replace_input_with(read, again[read])
