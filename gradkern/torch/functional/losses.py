"""Cross entropy, and with the linear layer before it, with PyTorch's signatures.

Neither log probabilities nor, with the linear layer, all logits are ever in memory. Arithmetic is float32 for logits of
16 bits, under autocast too. PyTorch's function copies them to float32.
"""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch.nn import _reduction, functional  # pyright: ignore[reportMissingImports]

from gradkern.errors import ArgumentError, AttributeValueError, DTypeError, ShapeError
from gradkern.torch.counter import count_call
from gradkern.torch.direct import Attributes, Direct, OpCall, needs_pytorch
from gradkern.torch.flags import autocast, is_autocast
from gradkern.torch.functional.arguments import require_floats, require_shape, require_tensor, require_type
from gradkern.torch.functional.second_derivatives import differentiable
from gradkern.torch.operators import has_rows, type_name

Tensor = torch.Tensor
_LOSS = Direct("CrossEntropy", ("loss", "dX"))
_LINEAR = Direct("LinearCrossEntropy", ("loss", "dX", "dW", "dB"))
_REDUCTIONS = "none", "mean", "sum"
_functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]


def cross_entropy(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    z_loss: float = 0.0,
    softcap: float = 0.0,
    in_place: bool = False,
) -> Tensor:
    """functional.cross_entropy; the forward pass reads the logits once, the backward pass reads and writes them once.

    z_loss    factor of logsumexp(logits)^2, added to the loss of each row that counts
    softcap   the logits are softcap tanh(input / softcap); 0: they are input
    in_place  the gradient takes the memory of `input`; nobody may read it after the backward pass

    The loss has the type of the input, with probabilities the wider of both types, float32 under autocast. Labels may
    be of any integer type; a label that is no class makes its row NaN on a GPU.

    Raises ArgumentError, DTypeError, ShapeError and AttributeValueError for what does not fit.

    >>> logits = torch.zeros(2, 4, requires_grad=True)
    >>> gradkern.torch.cross_entropy(logits, torch.tensor([0, 3]), z_loss=1e-4).backward()
    >>> logits.grad.sum(1).abs().max() < 1e-3
    tensor(True)
    """
    name = "cross_entropy"
    if size_average is not None or reduce is not None:
        reduction = _reduction.legacy_get_string(size_average, reduce)
    attributes = _attributes(name, reduction, ignore_index, label_smoothing, z_loss, softcap)
    require_tensor(name, "target", target)
    require_floats(name, {"weight": weight}, input=input)
    dense = target.is_floating_point()
    if not dense:
        target = _labels(name, target)
    if needs_pytorch(input, target, weight) or any(
        each is not None and each.requires_grad for each in (weight, target)
    ):
        return _pytorchs(input, target, weight, attributes)
    rows = (input.shape[0], *input.shape[2:]) if input.dim() > 1 else ()
    if input.dim() == 0 or target.shape != (input.shape if dense else rows):
        expected = f"{tuple(input.shape)} of probabilities, or {rows} of labels"
        raise ShapeError(f"{name}: target has shape {tuple(target.shape)}; expected {expected}")
    if dense and ignore_index >= 0:
        raise ArgumentError(f"{name}: ignore_index is {ignore_index} with probabilities; expected labels")
    if in_place and input.requires_grad and input.is_leaf:
        raise ArgumentError(f"{name}: in_place with a leaf as input; expected logits that an operation made")
    classes = input.shape[min(1, input.dim() - 1)]
    if weight is not None:
        require_shape(name, "weight", weight, (classes,), "a value for each class")
        weight = _beside(weight, input)
    if dense:  # probabilities keep their digits beside logits of 16 bits
        kind = torch.promote_types(input.dtype, target.dtype)
        input, target = input.to(kind), target.to(kind)  # noqa: A001
    count_call(name, input)
    x = input if input.dim() > 1 else input[None]
    if x.is_cuda and not has_rows(x):
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    y = target if input.dim() > 1 else target[None]
    loss: Any = _CrossEntropy.apply(x, y, weight, attributes, in_place)
    loss = loss.squeeze(0) if reduction == "none" and input.dim() == 1 else loss
    return loss if is_autocast(input.device.type) else loss.to(input.dtype)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, target: Tensor, weight: Tensor | None, attributes: Attributes, *rest: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (ctx.in_place,) = rest
        ctx.save_for_backward(x, target, weight)
        ctx.attributes = attributes
        return loss_pass(x, target, weight, None, attributes).outputs()[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, target, weight = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            y = _pytorchs(x, target, weight, ctx.attributes).to(grad.dtype)
            dx = differentiable(y, (x,), (True,), grad)[0]
        else:
            out = {"dX": x} if ctx.in_place else None
            (dx,) = loss_pass(x, target, weight, grad, ctx.attributes)._replace(out=out).outputs()
        return dx, None, None, None, None


def loss_pass(x: Tensor, target: Tensor, weight: Tensor | None, grad: Tensor | None, attributes: Attributes) -> OpCall:
    """The loss, or with a gradient of it that of x."""
    dense, backward = target.is_floating_point(), grad is not None
    grad = None if grad is None else grad.contiguous()
    if dense and x.is_cuda and x.stride() != target.stride():
        target = torch.empty_like(x).copy_(target)
    tensors = x, None if dense else target, weight, target if dense else None, grad
    return OpCall(_LOSS, (not backward, backward), tensors, attributes, results=(int(backward),))


def _pytorchs(x: Tensor, target: Tensor, weight: Tensor | None, attributes: Attributes) -> Tensor:
    named = dict(attributes)
    z, cap, reduction, ignored = (named[name] for name in ("z_loss", "softcap", "reduction", "ignore_index"))
    x = cap * torch.tanh(x / cap) if cap else x
    target = target if target.is_floating_point() else target.long()
    weight = None if weight is None else weight.to(x.dtype)
    loss = functional.cross_entropy(
        x, target, weight, ignore_index=ignored, reduction=reduction, label_smoothing=named["label_smoothing"]
    )
    if not z:
        return loss
    squares = z * torch.logsumexp(x, min(1, x.dim() - 1)) ** 2
    if target.is_floating_point():
        norm: Any = squares.numel()
    else:
        counted = target != ignored
        squares = torch.where(counted, squares, 0)
        norm = counted.sum() if weight is None else (weight[torch.where(counted, target, 0)] * counted).sum()
    return loss + (squares if reduction == "none" else squares.sum() / (norm if reduction == "mean" else 1))


def linear_cross_entropy(
    input: Tensor,  # noqa: A002
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
    z_loss: float = 0.0,
    softcap: float = 0.0,
    logits_bytes: int = 5 << 28,
) -> Tensor:
    """cross_entropy(linear(input, linear_weight, linear_bias), target) of labels, as functional.linear_cross_entropy is
    in PyTorch 2.13; the logits are in memory in parts.

    input          (N, in_features), or with more dimensions before the last; target has the same without the last
    options        of PyTorch's function, whose parts are chosen here by logits_bytes alone
    z_loss, softcap   as in cross_entropy
    logits_bytes   bytes of logits in memory at a time, or those of 1024 rows where these are more; all, where they are
                   less than sums of the weight's gradient over parts would be besides

    With the reductions mean and sum the forward pass makes the gradients, too, and the backward pass scales them. With
    none, and in float16, whose gradients need their scale, the backward pass computes the logits again. Gradients of
    weights are added up in float32 and rounded once. Under autocast it computes in autocast's type and the loss is
    float32.

    Raises ArgumentError, DTypeError, ShapeError and AttributeValueError for what does not fit.

    >>> hidden, head = torch.randn(16, 64), torch.zeros(1000, 64)
    >>> gradkern.torch.linear_cross_entropy(hidden, head, torch.arange(16), logits_bytes=1 << 20)
    tensor(6.9078)
    """
    name = "linear_cross_entropy"
    ignored = -100 if ignore_index is None else ignore_index
    attributes = _attributes(name, reduction, ignored, label_smoothing, z_loss, softcap)
    require_tensor(name, "target", target)
    require_floats(name, {"linear_bias": linear_bias, "weight": weight}, input=input, linear_weight=linear_weight)
    if target.is_floating_point() or linear_weight.dim() != 2:
        raise ArgumentError(
            f"{name}: target of probabilities, and weights of more dimensions than two, are for cross_entropy of "
            "functional.linear; expected labels, and linear_weight of shape (classes, features)"
        )
    if target.shape != input.shape[:-1] or input.shape[-1:] != linear_weight.shape[1:]:
        raise ShapeError(
            f"{name}: input has shape {tuple(input.shape)}, linear_weight {tuple(linear_weight.shape)} and target "
            f"{tuple(target.shape)}; expected (..., features), (classes, features) and (...)"
        )
    for argument, each in (("linear_bias", linear_bias), ("weight", weight)):
        if each is not None:
            require_shape(name, argument, each, (linear_weight.shape[0],), "a value for each class")
    tensors = input, linear_weight, linear_bias, target, weight
    wide = is_autocast(input.device.type)
    input, linear_weight, linear_bias = autocast(input.device.type, input, linear_weight, linear_bias)  # noqa: A001
    require_type(name, "linear_weight", linear_weight, input.dtype)
    if linear_bias is not None:
        require_type(name, "linear_bias", linear_bias, input.dtype)
    x, y = input.reshape(-1, input.shape[-1]), _labels(name, target.reshape(-1))
    linear_bias = None if linear_bias is None else linear_bias.contiguous()
    if needs_pytorch(*tensors) or torch.compiler.is_compiling() or (weight is not None and weight.requires_grad):
        loss: Any = _pytorchs(functional.linear(x, linear_weight, linear_bias), y, weight, attributes)
    else:
        count_call(name, input)
        of_classes = None if weight is None else _beside(weight, input)
        attributes = *attributes, ("logits_bytes", logits_bytes)
        loss = _LinearCrossEntropy.apply(x, linear_weight, y, linear_bias, of_classes, attributes)
        loss = loss if wide else loss.to(input.dtype)
    return loss.reshape(target.shape) if reduction == "none" else loss


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, labels: Tensor, *rest: Any) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        b, weight, attributes = rest
        needs = ctx.needs_input_grad[0], ctx.needs_input_grad[1], ctx.needs_input_grad[3]
        ctx.save_for_backward(x, w, labels, b, weight)
        ctx.attributes, ctx.gradients = attributes, None
        if dict(attributes)["reduction"] == "none" or x.dtype is torch.float16:
            needs = False, False, False
        found = _LINEAR((True, *needs), (x.contiguous(), w.contiguous(), labels, b, weight), attributes)
        if True in needs:
            ctx.gradients = found[1:]
        return found[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, w, labels, b, weight = ctx.saved_tensors
        needs = ctx.needs_input_grad[0], ctx.needs_input_grad[1], ctx.needs_input_grad[3]
        if torch.is_grad_enabled():
            y = _pytorchs(functional.linear(x, w, b), labels, weight, ctx.attributes).to(grad.dtype)
            dx, dw, db = differentiable(y, (x, w, b), needs, grad)
        elif ctx.gradients is not None:
            scaled = torch.mul if _functorch.is_legacy_batchedtensor(grad) else torch.Tensor.mul_  # is_grads_batched
            dx, dw, db = (None if each is None else scaled(each, grad) for each in ctx.gradients)
            ctx.gradients = None  # a second backward pass of a retained graph computes them again
        else:
            operands = x.contiguous(), w.contiguous(), labels, b, weight, grad.contiguous()
            _, dx, dw, db = _LINEAR((False, *needs), operands, ctx.attributes)
        return dx, dw, None, db, None, None


def _attributes(
    function: str, reduction: Any, ignore_index: Any, label_smoothing: Any, z_loss: Any, softcap: Any
) -> Attributes:
    if reduction not in _REDUCTIONS:
        raise AttributeValueError(f"{function}: reduction is {reduction!r}; expected 'none', 'mean' or 'sum'")
    for name, value, most in (
        ("label_smoothing", label_smoothing, 1),
        ("z_loss", z_loss, float("inf")),
        ("softcap", softcap, float("inf")),
    ):
        if not isinstance(value, (int, float)) or not 0 <= value <= most or value == float("inf"):
            expected = "a number from 0 to 1" if most == 1 else "a finite number, 0 or more"
            raise AttributeValueError(f"{function}: {name} is {value!r}; expected {expected}")
    more = ("z_loss", float(z_loss)), ("softcap", float(softcap))
    return *loss_attributes(reduction, int(ignore_index), float(label_smoothing)), *more


def loss_attributes(reduction: str, ignore_index: int, label_smoothing: float) -> Attributes:
    """Those that functional.cross_entropy has."""
    smoothing = "label_smoothing", label_smoothing
    return ("reduction", reduction), ("ignore_index", ignore_index), smoothing, ("empty", "nan")


def _labels(function: str, target: Tensor) -> Tensor:
    if target.dtype in (torch.int32, torch.int64):
        return target.contiguous()
    if target.dtype in (torch.uint8, torch.int8, torch.int16):
        return target.long()
    raise DTypeError(f"{function}: target has type {type_name(target.dtype)}; expected labels of an integer type")


def _beside(weight: Tensor, x: Tensor) -> Tensor:
    """Weights of classes in a type that the operator takes with logits of this type."""
    narrow = x.dtype in (torch.float16, torch.bfloat16)
    return (weight if weight.dtype is x.dtype else weight.to(torch.float32 if narrow else x.dtype)).contiguous()
