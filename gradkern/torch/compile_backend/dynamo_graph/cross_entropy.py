"""Stage 1: functional.cross_entropy of labels, and a conversion to float32 before it, as one operator each way.

transformers' losses convert all logits to float32, shift and flatten them: the operator reads those of 16 bits, shifted
and flattened as they are. It saves them so, too, and computes the gradient from them in one pass. Probabilities are
left to Inductor, and so are weights of classes that have a gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.torch.compile_backend import zero_gradients
from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion, Site
from gradkern.torch.compile_backend.dynamo_graph.graph import arguments, called, calls, is_cast, only_user, value
from gradkern.torch.compile_backend.operators import answer, define, gradient, unregistered
from gradkern.torch.direct import OpCall
from gradkern.torch.functional.losses import loss_attributes, loss_pass
from gradkern.torch.operators import has_rows, new_like

Tensor = torch.Tensor


def _forward(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int, label_smoothing: float
) -> OpCall:
    return _pass(x, target, weight, None, reduction, ignore_index, label_smoothing)


def _backward(
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> OpCall:
    return _pass(x, target, weight, grad, reduction, ignore_index, label_smoothing)


def _pass(
    x: Tensor, target: Tensor, weight: Tensor | None, grad: Tensor | None, *how: Any, softcap: float = 0.0
) -> OpCall:
    weight = None if weight is None else weight.contiguous()
    capped = (("softcap", softcap), ("capped", 1)) if softcap else ()
    return loss_pass(x, target.contiguous(), weight, grad, (*loss_attributes(*how), *capped))


CROSS_ENTROPY = define("cross_entropy", _forward, ("loss",), rows=True)
BACKWARD = gradient(CROSS_ENTROPY, _backward, ("x",))


def _backward_added(
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    other: Tensor | None,
    softcap: float,
) -> Tensor:
    """The gradient of x, with another one of it added; where x is softcap tanh(z / softcap), the gradient of z."""
    how = reduction, ignore_index, label_smoothing
    dx = answer(_pass(x, target, weight, grad, *how, softcap=softcap))
    if other is None or zero_gradients.are_known(other):
        return dx
    return dx.add_(other * (1 - (x / softcap) ** 2) if softcap else other)


BACKWARD_ADDED = define(
    "cross_entropy_backward_added",
    _backward_added,
    ("x",),
    lambda *given: _backward(*given[:-2]).without_data(),
    rows=True,
)


_NAME = "cross_entropy"
NARROW = torch.float16, torch.bfloat16
_VIEWS = {"view", "reshape", "flatten", "contiguous", "transpose", "permute", "unsqueeze", "squeeze"}
"""Methods that move elements and change none."""


def logits_among_results(graph: fx.Graph) -> list[int]:
    """The places among a graph's results of what the operator reads, before it was seen in another shape."""
    results: Any = graph.output_node().args[0]
    places = list[int]()
    for node in calls(graph, CROSS_ENTROPY):
        source: Any = node.args[0]
        while source not in results and source.op == "call_method" and (source.target in _VIEWS or is_cast(source)):
            source = source.args[0]
        places += [place for place, each in enumerate(results) if each is source][:1]
    return places


def fuse(graph: fx.Graph, fusion: Fusion) -> None:
    for node in calls(graph, functional.cross_entropy):
        fusion.take(_site(node))


def _site(node: fx.Node) -> Site:
    call = arguments(
        node, "input", "target", weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
        label_smoothing=0.0,
    )  # fmt: skip
    moved = list(_moved(call["input"]))
    narrow = _narrow_source(moved[-1]) if moved else None
    x = value(call["input"] if narrow is None else narrow)
    y, target = value(node), value(call["target"])
    reason = _reason(call, x, y, target)
    if reason or x is None or y is None:
        return Site(_NAME, node, x, reason=reason or "its input is no tensor of the graph")
    chain = [] if narrow is None else moved

    def make(graph: fx.Graph) -> Sequence[fx.Node]:
        source = call["input"]
        if narrow is not None:
            source = narrow
            for each in reversed(chain[:-1]):
                source = _again(graph, each, source, x.dtype)
        options = call["reduction"], call["ignore_index"], float(call["label_smoothing"])
        loss = graph.call_function(CROSS_ENTROPY, (source, call["target"], call["weight"], *options))
        wide = torch.float64 if x.dtype is torch.float64 else torch.float32
        return [loss if y.dtype is wide else graph.call_method("to", (loss, y.dtype))]

    alone = []
    for each in chain:  # those that nothing else needs
        if only_user(each) is not (alone[-1] if alone else node):
            break
        alone.append(each)
    given = [each for each in (narrow or call["input"], call["target"], call["weight"]) if each is not None]
    return Site(
        _NAME,
        node,
        x,
        nodes=(node, *alone),
        make=make,
        results={node: new_like(y)},
        place=node,
        reads=given,
        saves=given,
    )


def _moved(node: Any) -> Iterator[fx.Node]:
    """From what a call takes back to a conversion to float32: the calls between, that one last."""
    while isinstance(node, fx.Node) and node.args and isinstance(node.args[0], fx.Node):
        method = node.op == "call_method" and node.target in _VIEWS
        sliced = node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem"
        if _narrow_source(node) is not None:
            yield node
            return
        if not (method or sliced) or value(node.args[0]) is None or called(node):
            return
        yield node
        node = node.args[0]


def _narrow_source(node: fx.Node) -> fx.Node | None:
    """What this call converts from 16 bits to float32; None if it is no such call."""
    if node.op != "call_method" or node.target not in ("float", "to", "type") or not isinstance(node.args[0], fx.Node):
        return None
    before, after = value(node.args[0]), value(node)
    if before is None or after is None or before.dtype not in NARROW or after.dtype is not torch.float32:
        return None
    return node.args[0] if before.device == after.device else None


def _again(graph: fx.Graph, node: fx.Node, source: fx.Node, dtype: torch.dtype) -> fx.Node:
    """The same call on what was not converted."""
    made = graph.create_node(node.op, node.target, (source, *node.args[1:]), dict(node.kwargs))
    found = value(node)
    made.meta = {**node.meta, "example_value": None if found is None else found.to(dtype)}
    return made


def _reason(call: dict[str, Any], x: torch.Tensor | None, y: torch.Tensor | None, target: torch.Tensor | None) -> str:
    """Why no operator computes it; "" if one does."""
    weight = value(call["weight"])
    if x is None or y is None or target is None:
        return "its input is no tensor of the graph"
    if not y.requires_grad:
        return "no gradient of it is wanted"
    if call["size_average"] is not None or call["reduce"] is not None:
        return "size_average and reduce are given"
    logits = value(call["input"])
    if target.dtype is not torch.int64 or logits is None or logits.dim() < 2:
        return "it is not of rows of logits and labels"
    if logits.is_cuda and not has_rows(logits):
        return "its rows are at no one distance in memory"
    if weight is not None and (weight.requires_grad or weight.dtype not in (x.dtype, torch.float32)):
        return "its weights are of another type, or have a gradient"
    return unregistered("CrossEntropy", x.device, T=x.dtype, V=x.dtype if weight is None else weight.dtype)
