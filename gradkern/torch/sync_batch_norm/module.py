"""Batch norm over the batch of all processes of a group, for torch.distributed.

A pass sends one message each way: forward mean, variance and number of elements of every process's part, 2C + 1 numbers
that are gathered; backward both sums of the gradient, 2C numbers that are added up. Everything stays on the device, so
no host waits, a step can be captured in a CUDA graph, and torch.compile finds no break: where it traces, the messages
are collectives that it knows.

The statistics of all parts are Chan's merge of those of each, with the parts' sizes as weights: parts may be of any
sizes, also empty. A group's processes all get the same bits of them, as they merge the same numbers in the same order.

Source: torch.nn.SyncBatchNorm.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
import torch.distributed as dist  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from gradkern.errors import ArgumentError, ShapeError
from gradkern.torch.constants import filled
from gradkern.torch.counter import count_call
from gradkern.torch.derived import Derived, derived
from gradkern.torch.direct import Direct
from gradkern.torch.functional.second_derivatives import differentiable
from gradkern.torch.sync_batch_norm import steps
from gradkern.torch.sync_batch_norm.exchange import added, gathered, reads_by_nvlink
from gradkern.torch.sync_batch_norm.steps import Ways
from gradkern.torch.tracers import class_but_for_gradkern, traced

Tensor = torch.Tensor
_STATISTICS = Direct("BatchNormalizationStatistics", ("part_statistics",))
_MERGE = Direct("BatchNormalizationMergeStatistics", ("statistics", "sample_statistics", "running_mean", "running_var"))
_FROM_STATISTICS = Direct("BatchNormalizationFromStatistics", ("Y",))
_GRAD_SUMS = Direct("BatchNormalizationGradSums", ("dScale", "dBias", "sums"))
_GRAD_FROM_SUMS = Direct("BatchNormalizationGradFromSums", ("dX",))


class SyncBatchNorm(nn.modules.batchnorm._BatchNorm):
    """nn.SyncBatchNorm that sends one message each way and never lets the host wait; its gradients are gradkern's.

    Parameters, buffers, state_dict and arguments are nn.SyncBatchNorm's, and so is the result in evaluation, without
    torch.distributed, and in a group of one process. It runs on the CPU, too, and a part may be empty in every type.
    Where all are, running statistics move towards 0, as nn.SyncBatchNorm's do; functional.batch_norm leaves them. All
    processes of the group call it equally often, in one order.

    symmetric_memory   send float32 messages through memory that the GPUs of one machine read from each other, in place
                       of NCCL: less of the host's time, and of the device's for few channels. None, the default: where
                       NVLink joins all GPUs of the group. Every process must say the same. What torch.compile traces
                       sends them by NCCL all the same, and so does a group some of whose processes have done this in
                       other groups more often than others.

    It is no nn.SyncBatchNorm to isinstance, as DistributedDataParallel refuses those on the CPU.

    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8))
    >>> model = gradkern.torch.SyncBatchNorm.convert_sync_batchnorm(model)
    >>> model(torch.randn(4, 3, 8, 8)).shape
    torch.Size([4, 8, 6, 6])
    """

    symmetric_memory: bool | None = None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
        symmetric_memory: bool | None = None,
    ) -> None:
        more: dict[str, Any] = {} if bias else {"bias": False}  # norms have it since PyTorch 2.13
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype, **more)
        self.process_group = process_group
        self.symmetric_memory = _flag(symmetric_memory)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  as its base class calls it
        if not isinstance(input, Tensor):
            return traced(self, input)
        shape = input.shape
        if len(shape) < 2 or shape[1] != self.num_features or not shape[1]:
            raise ShapeError(_refused(tuple(shape), self.num_features))
        tracked = self.training and self.track_running_stats
        momentum: Any = self.momentum or 0.0
        if tracked and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the average of all batches
                momentum = self.num_batches_tracked.to(torch.promote_types(input.dtype, torch.float32)).reciprocal()
        mean, variance = self.running_mean, self.running_var
        if self.training and not tracked:
            mean = variance = None
        group = _group_of(self.process_group) if self.training else None
        if group is None:
            training = self.training or (mean is None and variance is None)
            if isinstance(momentum, Tensor):
                momentum = float(momentum)
            return functional.batch_norm(input, mean, variance, self.weight, self.bias, training, momentum, self.eps)
        symmetric = self.symmetric_memory
        if symmetric is None:
            symmetric = not torch.compiler.is_compiling() and reads_by_nvlink(group, input.device)
        ways = group.group_name, group.size(), symmetric
        count_call("SyncBatchNorm", input)
        rest = None if mean is None or variance is None else (mean, variance), momentum, self.eps, ways
        if not torch.compiler.is_compiling():
            return _Whole.apply(input, self.weight, self.bias, rest)  # pyright: ignore[reportReturnType]
        with torch.no_grad():
            y, whole = _forward(input.detach(), self.weight, self.bias, *rest)
        return _Gradient.apply(y, input, self.weight, self.bias, whole, self.eps, *ways)  # pyright: ignore[reportReturnType]

    @classmethod
    def convert_sync_batchnorm(
        cls, module: nn.Module, process_group: Any = None, *, symmetric_memory: bool | None = None
    ) -> nn.Module:
        """Make every batch norm in the module one of these, in place, with its parameters, buffers and hooks. Returns
        the module.

        Instances of subclasses keep their class: its forward pass is called, and its super().forward(...) is the
        synchronised norm. timm's BatchNormAct2d keeps its activation, and a LazyBatchNorm2d stays lazy.

        Raises ArgumentError, and changes nothing, for a batch norm whose forward pass does not call its base class's.
        """
        symmetric_memory = _flag(symmetric_memory)
        norms = [each for each in module.named_modules() if isinstance(each[1], nn.modules.batchnorm._BatchNorm)]
        kinds = [_synchronised(cls, each, name) for name, each in norms]
        for (_, norm), kind in zip(norms, kinds, strict=True):
            each: Any = norm
            each.__class__ = kind
            each.process_group = process_group
            each.symmetric_memory = symmetric_memory
        return module


class _LazySyncBatchNorm(nn.modules.batchnorm._LazyNormBase, SyncBatchNorm):  # pyright: ignore[reportIncompatibleMethodOverride]
    """One that takes its number of channels from the first input."""

    cls_to_become = SyncBatchNorm  # pyright: ignore[reportAssignmentType]


class _SyncBatchNormAct(SyncBatchNorm):
    """timm's BatchNormAct2d, whose children are called behind the norm."""

    def forward(self: Any, input: Tensor) -> Tensor:  # noqa: A002
        return self.act(self.drop(super().forward(input)))


_PYTORCHS = frozenset({nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm})
_LAZY = frozenset({nn.LazyBatchNorm1d, nn.LazyBatchNorm2d, nn.LazyBatchNorm3d})


def _synchronised(cls: type[SyncBatchNorm], norm: nn.Module, name: str) -> type:
    """The class that makes a batch norm one over all processes."""
    kind = type(norm)
    if "forward" in vars(norm):
        raise ArgumentError(f"SyncBatchNorm: a forward of its own has been put into {name or 'the module'}")
    if kind in _PYTORCHS:
        return cls
    if kind in _LAZY:
        return _LazySyncBatchNorm
    known = class_but_for_gradkern(norm)
    if known.__module__.startswith("timm.") and known.__name__ in ("BatchNormAct2d", "SyncBatchNormAct"):
        return _SyncBatchNormAct
    if issubclass(kind, SyncBatchNorm | nn.SyncBatchNorm):  # synchronised already
        return kind
    for each in kind.__mro__[: kind.__mro__.index(nn.modules.batchnorm._BatchNorm)]:
        if "forward" in vars(each) and not _calls_base(vars(each)["forward"]):
            raise ArgumentError(
                f"SyncBatchNorm: {name or 'the module'} is a {kind.__name__}, and {each.__name__}.forward does not "
                "call super().forward(...), which would be the synchronised one"
            )
    return derived(f"Sync{kind.__name__}", Derived, kind, cls)


def _calls_base(forward: Any) -> bool:
    """Whether a method calls super().forward and no other batch norm, by the names in its code."""
    code = getattr(inspect.unwrap(forward), "__code__", None)
    names = () if code is None else code.co_names
    return "super" in names and "forward" in names and "batch_norm" not in names


def _refused(shape: tuple[int, ...], channels: int) -> str:
    came = f"SyncBatchNorm: input has shape {shape}"
    if len(shape) < 2 or not shape[1]:
        return f"{came}; expected (N, C, ...) with channels"
    return f"{came}: {shape[1]} channels; expected {channels}"


def _flag(symmetric_memory: Any) -> bool | None:
    if symmetric_memory is not None and not isinstance(symmetric_memory, bool):
        raise ArgumentError(f"SyncBatchNorm: symmetric_memory is {symmetric_memory!r}; expected True, False or None")
    return symmetric_memory


def _group_of(group: Any) -> Any:
    """The process group to synchronise over; None without other processes."""
    if not dist.is_available() or not dist.is_initialized():
        return None
    found: Any = group or dist.group.WORLD
    return found if found.size() > 1 else None


def _forward(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running: tuple[Tensor, Tensor] | None,
    momentum: float | Tensor,
    eps: float,
    ways: Ways,
) -> tuple[Tensor, Tensor]:
    """The output; of the whole batch mean, inverse standard deviation and the number of each channel's elements."""
    if not isinstance(momentum, Tensor):
        prepared = steps.forward(x, weight, bias, running, momentum, eps, ways)
        if prepared is not None:
            return prepared
    name, size, symmetric = ways
    parts = gathered(_message(x), size, name, symmetric)
    if running is None or isinstance(momentum, Tensor) or torch.compiler.is_compiling():
        whole, sample, *_ = _MERGE((True, running is not None, False, False), (parts,), (("epsilon", eps),))
        if running is not None:
            _follow(list(running), list(_split(sample)[:2]), momentum)
    else:  # as other processes do it, whose steps are prepared: all have the same bits
        out = {"running_mean": running[0], "running_var": running[1]}
        how = ("epsilon", eps), ("momentum", 1 - momentum)
        whole = _MERGE((True, False, True, True), (parts, *running), how, out)[0]
    mean, inv_std, _ = _split(whole)
    return _normalized(x, weight, bias, mean, inv_std), whole


def _split(whole: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Means, spreads and number of elements."""
    channels = whole.shape[-1] // 2
    mean, spread, total = whole.split_with_sizes((channels, channels, 1))
    return mean, spread, total


def _follow(running: list[Tensor], new: list[Tensor], momentum: float | Tensor) -> None:
    """Let running statistics go this share of the way to new ones."""
    if running[0].dtype == new[0].dtype:
        lerp: Any = torch._foreach_lerp_  # pyright: ignore[reportPrivateImportUsage]
        lerp(running, new, [momentum, momentum] if isinstance(momentum, Tensor) else momentum)
        return
    for old, each in zip(running, new, strict=True):  # one rounding
        old.copy_(torch.lerp(old.to(each.dtype), each, momentum))


def _message(x: Tensor) -> Tensor:
    """Mean and variance of each channel of a part, and the number of its elements: 2C + 1 numbers, at least float32."""
    if not torch.compiler.is_compiling():
        return _STATISTICS((True,), (x,))[0]
    wide, channels = torch.promote_types(x.dtype, torch.float32), x.shape[1]
    count = x.numel() // channels
    if not count:
        return x.new_zeros(2 * channels + 1, dtype=wide)
    variance, mean = torch.var_mean(x.to(wide), _reduced(x), correction=0)  # torch.compile fuses it
    return torch.cat((mean, variance, filled(mean, (1,), count, wide)))


def _normalized(x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, inv_std: Tensor) -> Tensor:
    """(x - mean) inv_std weight + bias"""
    if not x.numel():
        return torch.empty_like(x)
    if not torch.compiler.is_compiling():
        scale = _or_constant(weight, 1, mean)
        return _FROM_STATISTICS((True,), (x, scale, _or_constant(bias, 0, scale), mean, inv_std))[0]
    return _affine((x.to(mean.dtype) - _across(mean, x)) * _across(inv_std, x), weight, bias).to(x.dtype)


def _or_constant(parameter: Tensor | None, value: float, like: Tensor) -> Tensor:
    return filled(like, like.shape, value, like.dtype) if parameter is None else parameter


class _Whole(torch.autograd.Function):
    """The forward pass, whose gradient knows that mean and inv_std come from x of all processes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, rest: tuple[Any, ...]) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        y, whole = _forward(x, weight, bias, *rest)
        ctx.save_for_backward(x, weight, bias, whole)
        ctx.eps, ctx.ways = rest[-2:]
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return *_gradients(ctx, grad, ctx.needs_input_grad[:3]), None


class _Gradient(torch.autograd.Function):
    """y with the same gradient, computed before.

    torch.compile of PyTorch 2.11 takes what such a function's forward makes on the way for results of it, and where one
    is an input by another name, as x.to(x.dtype) is, all gradients are zero.
    """

    @staticmethod
    def forward(ctx: Any, y: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, *rest: Any) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        whole, ctx.eps, *ways = rest
        ctx.ways = tuple(ways)
        ctx.save_for_backward(x, weight, bias, whole)
        return y.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, *_gradients(ctx, grad, ctx.needs_input_grad[1:4]), *[None] * 5


def _gradients(ctx: Any, grad: Tensor, needs: tuple[bool, bool, bool]) -> tuple[Tensor | None, ...]:
    """Of x, weight and bias."""
    x, weight, bias, whole = ctx.saved_tensors
    name, size, symmetric = ctx.ways
    of_x, of_weight, of_bias = needs
    if torch.is_grad_enabled():  # for a second derivative
        y = _differentiable(x, weight, bias, _split(whole)[2], ctx.eps, name, size)
        return tuple(differentiable(y, (x, weight, bias), needs, grad))
    prepared = steps.backward(grad, x, weight, whole, of_weight or of_bias, ctx.ways) if of_x else None
    if prepared is not None:
        dx, *sums = prepared
    else:
        mean, inv_std, total = _split(whole)
        *sums, message = _GRAD_SUMS((True, True, of_x), (grad, x, mean, inv_std))  # of this part, as its gradients are
        dx = None
        if of_x:
            every = added(message, size, name, symmetric).split(x.shape[1])
            scale = _or_constant(weight, 1, mean)
            (dx,) = _GRAD_FROM_SUMS((True,), (grad, x, scale, mean, inv_std, *every, total))
    wanted = zip(sums, (weight, bias), (of_weight, of_bias), strict=True)
    shares = [share.to(each.dtype) if need and share is not None else None for share, each, need in wanted]
    return dx, *shares


class _Added(torch.autograd.Function):
    """`added`: each process's share is in the sum that every process has, so its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, share: Tensor, group: str, size: int) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.group = group, size
        return added(share.clone(), size, group, symmetric=False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _Added.apply(grad.contiguous(), *ctx.group), None, None


def _differentiable(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, total: Tensor, eps: float, group: str, size: int
) -> Tensor:
    """The forward pass by operations that are differentiable."""
    wide: Any = x.to(total.dtype)
    plus: Any = _Added.apply
    apart = wide - _across(plus(wide.sum(_reduced(x)), group, size) / total, x)
    variance = plus(apart.square().sum(_reduced(x)), group, size) / total
    return _affine(apart * _across((variance + eps).rsqrt(), x), weight, bias).to(x.dtype)


def _affine(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    y = y if weight is None else y * _across(weight, y)
    return y if bias is None else y + _across(bias, y)


def _reduced(x: Tensor) -> tuple[int, ...]:
    """All axes but the channels'."""
    return (0, *range(2, x.dim()))


def _across(parameter: Tensor, x: Tensor) -> Tensor:
    """A value for each channel, in float32 at least, in a shape that broadcasts along the second axis of x."""
    return parameter.to(torch.promote_types(parameter.dtype, torch.float32)).view(-1, *[1] * (x.dim() - 2))
