"""Stage 1: a head whose classes make no whole vectors, such as BERT's 30522, computes logits in rows that do.

Products of 16 bits and the loss's kernels want rows that begin at 16 bytes. So the head's weight gets rows of zeros,
and its bias, made where there is none, elements of minus infinity: the loss is the same, and the gradients of what is
added are zero. The model's logits are the first columns. Results are cut outside of the compiled graph, where autograd
takes no part in the cut unless a gradient of these logits is wanted.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]
from torch.utils._python_dispatch import is_traceable_wrapper_subclass  # pyright: ignore[reportMissingImports]

from gradkern.ops.cross_entropy.parts import padded
from gradkern.torch.compile_backend.dynamo_graph.cross_entropy import CROSS_ENTROPY, NARROW
from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion, off_gpu
from gradkern.torch.compile_backend.dynamo_graph.graph import arguments, calls, result, value
from gradkern.torch.compile_backend.dynamo_graph.proof import Proof, memory, name_of
from gradkern.torch.compile_backend.operators import DEFINITIONS

_NAME = "padded logits"
_VECTOR = 8  # elements of 16 bits in what one instruction loads
_MANY = 1024  # with so many classes, rows are whole lines of memory
_VIEWS = {"view", "reshape", "flatten", "contiguous", "unsqueeze", "squeeze"}
_CUT = "gradkern_padded_logits"  # of a node's meta: it is the first columns of its argument


def fuse(graph: fx.Graph, fusion: Fusion) -> None:
    for node in calls(graph, CROSS_ENTROPY):
        chain = _chain(node.args[0])
        y = value(chain[0]) if chain and chain[0].target is functional.linear else None
        if y is not None and y.dtype in NARROW and isinstance(y.shape[-1], int) and y.shape[-1] % _VECTOR:
            head, *views = chain
            reason = fusion.against(_NAME, y) or off_gpu(y) or _reason(graph, fusion.proof, node, head)
            reason = reason or _padded(graph, node, head, views)
            fusion.report(_NAME, head, y, reason)


def _chain(node: Any) -> list[fx.Node]:
    """From the call that computes these logits to what shapes and slices them last."""
    found = list[fx.Node]()
    while isinstance(node, fx.Node) and value(node) is not None:
        found.insert(0, node)
        if node.target is not operator.getitem and (node.op != "call_method" or node.target not in _VIEWS):
            break
        node = node.args[0]
    return found


def _reason(graph: fx.Graph, proof: Proof, loss: fx.Node, head: fx.Node) -> str:
    """Why the head stays as it is; "" if its logits may be the first columns of others."""
    options = dict(zip(DEFINITIONS["cross_entropy"].arguments, loss.args, strict=False))
    if options["weight"] is not None or options["label_smoothing"]:
        return "its loss has weights of classes or smoothing"
    call = arguments(head, "input", "weight", bias=None)
    parameters = [value(call[name]) for name in ("weight", "bias") if call[name] is not None]
    if any(each is None or is_traceable_wrapper_subclass(each) for each in parameters):
        return "its weight is no plain tensor"
    written = proof.writes_after(head, memory(head))
    if written or any(name_of(each) == "as_strided" for each in graph.nodes):
        return f"{written or 'as_strided'} sees where its logits are in memory"
    return ""


def _padded(graph: fx.Graph, loss: fx.Node, head: fx.Node, views: list[fx.Node]) -> str:
    """Let head and loss have padded rows. Returns why not; nothing is changed then."""
    y = head.meta["example_value"]
    classes = y.shape[-1]
    more = padded(classes, y.itemsize) - classes if classes >= _MANY else -classes % _VECTOR
    seen = rows = y.new_empty((*y.shape[:-1], classes + more)).requires_grad_(y.requires_grad)
    for each in views:
        seen = None if each.kwargs else result(each.target, (seen, *_resized(each, classes, classes + more)))
        if seen is None or seen.shape != (*each.meta["example_value"].shape[:-1], classes + more):
            return "its logits are sliced or arranged by classes"

    def made(target: Any, *given: Any, example: Any = None) -> fx.Node:
        node = graph.create_node("call_method" if isinstance(target, str) else "call_function", target, given)
        node.meta = {**head.meta, "example_value": result(target, given) if example is None else example}
        return node

    def narrow(node: fx.Node) -> fx.Node:
        """As autocast has it, in the pass that copies it."""
        return node if node.meta["example_value"].dtype is y.dtype else made("to", node, y.dtype)

    call = arguments(head, "input", "weight", bias=None)
    with graph.inserting_before(head):
        weight = narrow(call["weight"])
        bias = made("new_zeros", weight, (classes,)) if call["bias"] is None else narrow(call["bias"])
        none = made("new_zeros", weight, (more, weight.meta["example_value"].shape[1]))
        weight = made(torch.cat, [weight, none])
        bias = made(torch.cat, [bias, made("new_full", bias, (more,), -math.inf)])
        whole = made(functional.linear, call["input"], weight, bias, example=rows)
        logits = made(operator.getitem, whole, (..., slice(None, classes)))
    logits.meta[_CUT] = classes
    last = whole
    for each in views:
        with graph.inserting_after(each):
            last = made(each.target, last, *_resized(each, classes, classes + more))
    loss.args = (last, *loss.args[1:])
    for each in graph.find_nodes(op="call_method", target="view"):
        if memory(each.args[0]) == memory(head):
            each.target = "reshape"  # a view where the rows allow it
    head.replace_all_uses_with(logits)
    for each in (*reversed(views), head, logits):
        if not each.users:
            graph.erase_node(each)
    return ""


def _resized(view: fx.Node, classes: int, columns: int) -> tuple[Any, ...]:
    """Its arguments behind the first, with the padded number in the place of that of all classes."""
    _, *rest = view.args
    if view.target not in ("view", "reshape"):
        return tuple(rest)
    sizes = rest[0] if isinstance(rest[0], list | tuple) else rest
    return (*sizes[:-1], columns if sizes[-1] == classes else sizes[-1])


def give_whole(graph: fx.Graph) -> dict[int, int]:
    """Let the graph's results have the padded rows. Returns the number of classes by the results' places."""
    output = graph.output_node()
    results: Any = output.args[0]
    found = {place: each.meta[_CUT] for place, each in enumerate(results) if _CUT in getattr(each, "meta", ())}
    output.args = (tuple(each.args[0] if place in found else each for place, each in enumerate(results)),)
    return found


def cut(run: Callable[..., Any], classes: Mapping[int, int]) -> Callable[..., Any]:
    """A compiled graph with the first columns of the results at these places."""

    def run_and_cut(*args: Any) -> Any:
        results = list(run(*args))
        for place, count in classes.items():
            results[place] = results[place][..., :count]
        return results

    return run_and_cut
