"""Stage 1: F.batch_norm in training, with the addition and the activation behind it, as one operator. And the counters
of batches that batch norms keep.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import wraps
from typing import Any, NamedTuple

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.ops.batch_norm import DERIVATIVE_FROM_SIGN
from gradkern.torch.compile_backend.dynamo_graph.fusion import Fusion, Site
from gradkern.torch.compile_backend.dynamo_graph.graph import (
    arguments,
    called,
    calls,
    memory_format,
    only_user,
    same_kind,
    value,
)
from gradkern.torch.compile_backend.dynamo_graph.proof import Proof
from gradkern.torch.compile_backend.operators import define, differentiable, unregistered
from gradkern.torch.direct import OpCall
from gradkern.torch.functional.norm_activation import ACTIVATIONS, backward_pass, forward_pass, is_alpha
from gradkern.torch.operators import new_like

Tensor = torch.Tensor

_STATISTICS = ("running_mean", "running_var")


@wraps(forward_pass)
def _forward_in_place(*arguments: Any) -> OpCall:
    """The same, but the running statistics are written where they are."""
    out = dict(zip(_STATISTICS, arguments[3:5], strict=True))
    return forward_pass(*arguments)._replace(out=out, results=(0, 3, 4))


FORWARD = define("batch_norm_act", forward_pass, ("y", *_STATISTICS, "mean", "inv_std"))
IN_PLACE = define("batch_norm_act_", _forward_in_place, ("y", "mean", "inv_std"), writes=_STATISTICS)
BACKWARD = define("batch_norm_act_backward", backward_pass, ("dx", "dweight", "dbias", "dresidual"))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, bias, _, _, residual, *_, activation, alpha = inputs
    y, *statistics = output
    ctx.activation, ctx.alpha, ctx.residual = activation, alpha, residual is not None
    # The mask of ReLU and leaky ReLU is computed again from x, but where a residual was added that nobody keeps.
    kept = (
        (y, None)
        if activation in DERIVATIVE_FROM_SIGN and ctx.residual
        else (None, None if activation == "none" else bias)
    )
    ctx.save_for_backward(x, weight, *kept, *statistics[2:])
    ctx.mark_non_differentiable(*statistics)  # else running_mean requires grad in the second step
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    needs = ctx.needs_input_grad
    if grad is None:
        return (None,) * len(needs)
    x, weight, y, bias, mean, inv_std = ctx.saved_tensors
    passed_on = ctx.residual and ctx.activation == "none"  # the residual's gradient is this one
    mask = [*needs[:3], needs[5] and not passed_on]
    found = BACKWARD(grad, None, x, y, weight, bias, mean, inv_std, ctx.activation, ctx.alpha, mask)
    dx, dweight, dbias, dz = [each if wanted else None for each, wanted in zip(found, mask, strict=True)]
    return dx, dweight, dbias, None, None, grad if passed_on and needs[5] else dz, None, None, None, None


differentiable(FORWARD, _differentiate, _setup)


class Chain(NamedTuple):
    """A norm with what stands behind it.

    fusion  as gates.GATES has it
    nodes   from the norm on, each the only user of the one before
    others  what else these take: a residual; a scale and a shift
    alpha   leaky_relu's or elu's
    view    a reshape of what is contiguous, between the norm and the others
    """

    fusion: str
    nodes: tuple[fx.Node, ...]
    others: tuple[fx.Node, ...] = ()
    activation: str = "none"
    alpha: float = 0.0
    view: fx.Node | None = None

    def activated(self) -> Iterator[Chain]:
        """The chain with the activation behind it, if the operators have it."""
        after = only_user(self.nodes[-1])
        found = activation_of(after)
        if after is not None and found is not None:
            name, alpha = found
            nodes = (*self.nodes, after)
            yield self._replace(fusion=f"{self.fusion} + {name}", nodes=nodes, activation=name, alpha=alpha)


def fuse(graph: fx.Graph, fusion: Fusion) -> None:
    """Rewrite what can be; whatever is found is reported."""
    for node in calls(graph, functional.batch_norm):
        call = arguments(
            node,
            *("input", "running_mean", "running_var"),
            weight=None,
            bias=None,
            training=False,
            momentum=0.1,
            eps=1e-5,
        )
        x, reason = value(call["input"]), _reason(node, call)
        if reason or x is None:
            fusion.report("batch_norm", node, x, reason)
            continue
        fusion.take(*[_site(chain, call, x) for chain in _chains(node, fusion.proof)])


def _reason(node: fx.Node, call: dict[str, Any]) -> str:
    """Why gradkern does not compute the batch norm; "" if it does."""
    if call["training"] is not True:
        return "it is not in training"
    if call["weight"] is None or call["bias"] is None:
        return "it has no weight and bias"
    if call["running_mean"] is None or call["running_var"] is None:
        return "it has no running statistics"
    if not isinstance(call["momentum"], float) or not isinstance(call["eps"], float):
        return "its momentum is no constant"
    names = ("input", "weight", "bias", "running_mean", "running_var")
    tensors = [each for each in map(value, (node, *[call[name] for name in names])) if each is not None]
    if len(tensors) <= len(names):
        return "an argument is no tensor of the graph"
    y, x, weight, bias, mean, variance = tensors
    if not y.requires_grad:
        return "no gradient of it is wanted"
    if y.dtype != x.dtype or weight.dtype != bias.dtype or mean.dtype != variance.dtype:
        return "its types differ"
    if memory_format(x) is None:  # the strides of eager's result depend on the device
        return "its input is neither contiguous nor channels last"
    return unregistered("BatchNormalization", x.device, T=x.dtype, T1=weight.dtype, T2=mean.dtype)


def _chains(node: fx.Node, proof: Proof) -> list[Chain]:
    """What may be one operator, the longest first."""
    view = _view(node)
    norm = Chain("batch_norm", (node,) if view is None else (node, view), view=view)
    found = [Chain("batch_norm", (node,)), *norm.activated()]
    after = only_user(norm.nodes[-1])
    residual = _residual(norm.nodes[-1], after, proof)
    if after is not None and residual is not None and (view is None or _is_contiguous(residual)):
        added = norm._replace(fusion="batch_norm + add", nodes=(*norm.nodes, after), others=(residual,))
        found += [added, *[each for each in added.activated() if each.activation in DERIVATIVE_FROM_SIGN]]
    return found[::-1]


def _view(node: fx.Node) -> fx.Node | None:
    """The reshape behind a norm of rows in a model of tokens: nothing else moves, as all is contiguous."""
    after = only_user(node)
    if after is None or after.op != "call_method" or after.target not in ("reshape", "reshape_as", "view", "view_as"):
        return None
    return after if after.args[0] is node and _is_contiguous(node) and _is_contiguous(after) else None


def _is_contiguous(node: fx.Node) -> bool:
    tensor = value(node)
    return tensor is not None and memory_format(tensor) is torch.contiguous_format


_ALPHA = {"leaky_relu": {"negative_slope": 0.01}, "elu": {"alpha": 1.0}}
"""What activations call their alpha, and its default."""


def activation_of(node: fx.Node | None) -> tuple[str, float] | None:
    """The name and alpha of an activation that the operator has; None for all else."""
    name = called(node)
    if node is not None and name == "hardtanh":  # nn.ReLU6 calls it
        call = arguments(node, "input", min_val=-1.0, max_val=1.0)
        return ("relu6", 0.0) if (call["min_val"], call["max_val"]) == (0, 6) else None
    if node is None or name not in ACTIVATIONS:
        return None
    if name == "gelu" and arguments(node, "input", approximate="none")["approximate"] != "none":
        return None
    if name not in _ALPHA:
        return name, 0.0
    (parameter,) = _ALPHA[name]
    alpha = arguments(node, "input", **_ALPHA[name])[parameter]
    return (name, float(alpha)) if isinstance(alpha, int | float) and is_alpha(alpha) else None


def _residual(node: fx.Node, addition: fx.Node | None, proof: Proof) -> fx.Node | None:
    """What is added to the batch norm's output; None where that is no plain addition of two tensors alike."""
    if addition is None or called(addition) not in ("add", "add_") or addition.kwargs or len(addition.args) != 2:
        return None
    first, second = addition.args
    if called(addition) == "add_" and first is not node and proof.sees_write(addition):
        return None
    other = second if first is node else first
    alike = isinstance(other, fx.Node) and other is not node and same_kind(value(other), value(node))
    return other if alike and isinstance(other, fx.Node) else None


def _site(chain: Chain, call: dict[str, Any], x: torch.Tensor) -> Site:
    """The chain as one operator in the place of its last call."""
    last, statistics = chain.nodes[-1], [call[name] for name in ("running_mean", "running_var")]
    reads = [call["input"], call["weight"], call["bias"], *chain.others, *statistics]

    def make(graph: fx.Graph) -> Sequence[fx.Node]:
        weights = [call[name] for name in ("weight", "bias", "running_mean", "running_var")]
        (residual,) = chain.others or (None,)
        if residual is not None and chain.view is not None:
            residual = graph.call_method("view_as", (residual, call["input"]))
        more = (residual, call["momentum"], call["eps"], chain.activation, chain.alpha)
        made = graph.call_function(FORWARD, (call["input"], *weights, *more))
        y = graph.call_function(operator.getitem, (made, 0))
        for place, buffer in enumerate(statistics, 1):
            # Batch norms write them without a new version: another call may have saved the version for its gradient.
            data = graph.call_function(getattr, (buffer, "data"))
            data.meta = dict(buffer.meta)
            graph.call_method("copy_", (data, graph.call_function(operator.getitem, (made, place))))
        return [y if chain.view is None else graph.call_method(str(chain.view.target), (y, *chain.view.args[1:]))]

    return Site(
        chain.fusion,
        chain.nodes[0],
        x,
        nodes=chain.nodes,
        make=make,
        results={last: new_like(x if chain.view is None else last.meta["example_value"])},
        reads=reads,
        writes=statistics,
        saves=reads[:2] if chain.activation == "none" else [*reads[:2], last if chain.others else reads[2]],
    )


def count(graph: fx.Graph, fusion: Fusion) -> None:
    """Count on the counters of batches, all in one kernel and not in one each."""
    found: dict[Any, list[fx.Node]] = defaultdict(list)
    for node in graph.find_nodes(op="call_method", target="add_"):
        counter = value(node.args[0])
        if counter is not None and _counts(node, counter):
            found[counter.device].append(node)
    foreach_add: Any = torch._foreach_add_  # pyright: ignore[reportPrivateImportUsage]
    for alike in found.values():
        counted = [each.args[0] for each in alike]
        if len(alike) > 1 and not fusion.proof.against(alike, alike[-1], counted, counted):
            with graph.inserting_before(alike[-1]):
                graph.call_function(foreach_add, (counted, 1))
            for each in alike:
                graph.erase_node(each)


def _counts(node: fx.Node, counter: torch.Tensor) -> bool:
    """Whether it adds one to an input of the graph, a single number, that nothing else uses."""
    source: Any = node.args[0]
    plain = node.args[1:] == (1,) and not node.kwargs and not node.users
    alone = source.op == "placeholder" and list(source.users) == [node]
    return plain and alone and counter.dim() == 0 and counter.dtype is torch.int64
