"""Modules of torch.nn with the functions of gradkern.torch inside. Parameters, names and state_dict are torch.nn's."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

from gradkern.errors import AttributeValueError
from gradkern.torch.flags import is_autocast
from gradkern.torch.functional.arguments import require_least
from gradkern.torch.functional.convolutions import batch_norm, conv1d, conv2d, conv3d
from gradkern.torch.functional.functions import invertible_layer_norm, layer_norm, linear_gelu, rms_norm
from gradkern.torch.functional.group_norms import group_norm_act, spelled_out
from gradkern.torch.functional.losses import cross_entropy
from gradkern.torch.functional.norm_activation import ACTIVATIONS, batch_norm_act, require_activation
from gradkern.torch.sync_batch_norm.module import SyncBatchNorm
from gradkern.torch.tracers import Scriptable, as_pytorchs, traced

Tensor = torch.Tensor
Shape = int | list[int] | torch.Size


class LayerNorm(Scriptable, nn.LayerNorm):
    """nn.LayerNorm that takes input of 16 bits with parameters of float32.

    autocast   "input": under autocast too the result has the type of the input, where nn.LayerNorm's is float32; None:
               as nn.LayerNorm

    >>> norm = gradkern.torch.LayerNorm(64)
    >>> norm(torch.randn(8, 64, dtype=torch.bfloat16)).dtype
    torch.bfloat16
    """

    autocast: str | None = None

    def __init__(
        self,
        normalized_shape: Shape,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        autocast: str | None = None,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, bias, device, dtype)
        self.autocast = known_autocast(type(self).__name__, autocast)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  as its base class calls it
        if not isinstance(input, Tensor):
            return traced(self, input)
        kind = input.device.type
        if not is_autocast(kind):
            return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)
        if self.autocast is None:
            return super().forward(input)
        with torch.autocast(kind, enabled=False):
            return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, autocast={self.autocast!r}"


class RMSNorm(Scriptable, nn.RMSNorm):
    """nn.RMSNorm that takes input of 16 bits with a weight of float32; autocast is as in LayerNorm.

    >>> norm = gradkern.torch.RMSNorm(64, eps=1e-6)
    >>> norm(torch.randn(8, 64)).square().mean(1).allclose(torch.ones(8), atol=1e-3)
    True
    """

    autocast: str | None = None

    def __init__(
        self,
        normalized_shape: Shape,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        autocast: str | None = None,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, device, dtype)
        self.autocast = known_autocast(type(self).__name__, autocast)

    def forward(self, x: Tensor) -> Tensor:
        if not isinstance(x, Tensor):
            return traced(self, x)
        kind = x.device.type
        if not is_autocast(kind):
            return rms_norm(x, self.normalized_shape, self.weight, self.eps)
        if self.autocast is None:
            return super().forward(x)
        with torch.autocast(kind, enabled=False):
            return rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, autocast={self.autocast!r}"


class InvertibleLayerNorm(Scriptable, nn.LayerNorm):
    """nn.LayerNorm, with weight and bias, that keeps its output in place of its input: see invertible_layer_norm.

    least   how near to zero a weight may be: nearer ones act as if they were so far away from it

    >>> x = torch.randn(8, 64, requires_grad=True)
    >>> gradkern.torch.InvertibleLayerNorm(64)(x).square().sum().backward()
    >>> x.grad.shape
    torch.Size([8, 64])
    """

    least: float = 1e-3

    def __init__(
        self,
        normalized_shape: Shape,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        least: float = 1e-3,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, bias, device, dtype)
        if self.weight is None or self.bias is None:
            raise AttributeValueError(
                "InvertibleLayerNorm: elementwise_affine or bias is False; expected True for both"
            )
        require_least("InvertibleLayerNorm", least)
        self.least = least

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  as its base class calls it
        if not isinstance(input, Tensor):
            return traced(self, input)
        return invertible_layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps, self.least)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, least={self.least}"


class CrossEntropyLoss(Scriptable, nn.CrossEntropyLoss):
    """nn.CrossEntropyLoss with cross_entropy's z_loss and softcap.

    >>> loss = gradkern.torch.CrossEntropyLoss(z_loss=1e-4)
    >>> loss(torch.zeros(4, 10), torch.tensor([1, 2, 3, 4]))
    tensor(2.3031)
    """

    z_loss: float = 0.0
    softcap: float = 0.0

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        *,
        z_loss: float = 0.0,
        softcap: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, ignore_index, reduce, reduction, label_smoothing)
        self.z_loss, self.softcap = z_loss, softcap

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002  as its base class calls it
        if not isinstance(input, Tensor):
            return traced(self, input, target)
        return cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            z_loss=self.z_loss,
            softcap=self.softcap,
        )


class LinearGELU(Scriptable, nn.Linear):
    """nn.Linear with a bias, and GELU behind it.

    approximate   "none" or "tanh", as nn.GELU's

    >>> gradkern.torch.LinearGELU(64, 256)(torch.randn(8, 64)).shape
    torch.Size([8, 256])
    """

    approximate: str = "none"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        approximate: str = "none",
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        if self.bias is None:
            raise AttributeValueError(
                "LinearGELU: bias is False; expected True: without one nn.Linear and nn.GELU are as fast"
            )
        if approximate not in ("none", "tanh"):
            raise AttributeValueError(f'LinearGELU: approximate is {approximate!r}; expected "none" or "tanh"')
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  as its base class calls it
        if not isinstance(input, Tensor):
            return traced(self, input)
        return linear_gelu(input, self.weight, self.bias, self.approximate)

    def __prepare_scriptable__(self) -> nn.Module:
        raise TypeError(_no_script("LinearGELU"))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, approximate={self.approximate!r}"


class _Conv(Scriptable):
    """What the convolutions share."""

    function = staticmethod(conv1d)

    def forward(self: Any, input: Tensor) -> Tensor:  # noqa: A002
        return super().forward(input) if isinstance(input, Tensor) else traced(self, input)  # pyright: ignore[reportAttributeAccessIssue]

    def _conv_forward(self: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: A002
        if self.padding_mode == "zeros":
            return self.function(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        return super()._conv_forward(input, weight, bias)  # pyright: ignore[reportAttributeAccessIssue]


class Conv1d(_Conv, nn.Conv1d):
    """nn.Conv1d with gradkern's gradients and, where it is depthwise and on a GPU, gradkern's forward pass.

    Padding by words or other values than zeros is PyTorch's.

    >>> gradkern.torch.Conv1d(8, 8, 3, padding=1, groups=8)(torch.randn(2, 8, 16)).shape
    torch.Size([2, 8, 16])
    """


class Conv2d(_Conv, nn.Conv2d):
    """nn.Conv2d with gradkern's gradients and, where it is depthwise and on a GPU, gradkern's forward pass.

    Padding by words or other values than zeros is PyTorch's.

    >>> gradkern.torch.Conv2d(8, 8, 3, padding=1, groups=8)(torch.randn(2, 8, 16, 16)).shape
    torch.Size([2, 8, 16, 16])
    """

    function = staticmethod(conv2d)


class Conv3d(_Conv, nn.Conv3d):
    """nn.Conv3d with gradkern's gradients and, where it is depthwise and on a GPU, gradkern's forward pass.

    Padding by words or other values than zeros is PyTorch's.

    >>> gradkern.torch.Conv3d(8, 8, 3, padding=1, groups=8)(torch.randn(2, 8, 16, 16, 16)).shape
    torch.Size([2, 8, 16, 16, 16])
    """

    function = staticmethod(conv3d)


class _BatchNorm(Scriptable):
    """What the three batch norms share: nn.BatchNorm's forward pass around `batch_norm` and `batch_norm_act`.

    activation        "none", "relu", "leaky_relu", "silu", "relu6", "hardswish", "elu" or "gelu": what comes after the
                      norm. It is part of the module, and not a module of its own beside it, because there is nothing
                      else that a state_dict would hold: parameters and buffers keep their names when it moves in.
    activation_alpha  leaky_relu's slope below 0, and elu's factor there

    Convert them by gradkern.torch.SyncBatchNorm.convert_sync_batchnorm: nn.SyncBatchNorm's leaves the activation out,
    and whatever else a subclass adds.
    """

    activation: str = "none"
    activation_alpha: float = 0.01

    def __init__(
        self: Any,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        activation: str = "none",
        activation_alpha: float = 0.01,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, **_without(bias))  # pyright: ignore[reportCallIssue]
        require_activation(type(self).__name__, activation)
        self.activation, self.activation_alpha = activation, activation_alpha

    def forward(self: Any, input: Tensor, residual: Tensor | None = None) -> Tensor:  # noqa: A002
        """The residual, of the shape of input, is added before the activation."""
        if not isinstance(input, Tensor):
            return traced(self, input, residual)
        joined = self.activation != "none" or residual is not None
        sync = issubclass(type(self), SyncBatchNorm)  # what a conversion makes of one
        if sync or not self.training or not self.affine or (joined and self.momentum is None):
            t = super().forward(input)  # pyright: ignore[reportAttributeAccessIssue]
            return ACTIVATIONS[self.activation](t if residual is None else t + residual, self.activation_alpha)
        return train_batch_norm(self, input, self.activation, self.activation_alpha, residual)

    def __prepare_scriptable__(self: Any) -> nn.Module:
        if self.activation != "none":
            raise TypeError(_no_script(f"{type(self).__name__} with an activation"))
        return as_pytorchs(self)

    def extra_repr(self: Any) -> str:
        alpha = f", activation_alpha={self.activation_alpha}" if self.activation in ("leaky_relu", "elu") else ""
        own = super().extra_repr()  # pyright: ignore[reportAttributeAccessIssue]
        return f"{own}, activation={self.activation!r}{alpha}"


def train_batch_norm(norm: Any, x: Tensor, activation: str, alpha: float, residual: Tensor | None) -> Tensor:
    """What a batch norm of PyTorch's, with weight and bias, gives in training, the residual added and the activation
    done; its statistics follow. Its momentum is a number, or there is neither residual nor activation.
    """
    norm._check_input_dim(x)
    momentum, running = norm.momentum, (None, None)
    if norm.track_running_stats:
        running = norm.running_mean, norm.running_var
        if norm.num_batches_tracked is not None:
            norm.num_batches_tracked.add_(1)
            if momentum is None:
                momentum = 1.0 / float(norm.num_batches_tracked)
    if activation == "none" and residual is None:
        return batch_norm(x, *running, norm.weight, norm.bias, True, momentum or 0.0, norm.eps)
    return batch_norm_act(x, *running, norm.weight, norm.bias, True, momentum, norm.eps, activation, residual, alpha)


class BatchNorm1d(_BatchNorm, nn.BatchNorm1d):
    """nn.BatchNorm1d whose gradients in training are gradkern's; with an activation and a residual, all in one.

    >>> x = torch.randn(2, 8, 16)
    >>> gradkern.torch.BatchNorm1d(8, activation="relu")(x, residual=x).shape
    torch.Size([2, 8, 16])
    """


class BatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    """nn.BatchNorm2d whose gradients in training are gradkern's; with an activation and a residual, all in one.

    >>> x = torch.randn(2, 8, 16, 16)
    >>> gradkern.torch.BatchNorm2d(8, activation="relu")(x, residual=x).shape
    torch.Size([2, 8, 16, 16])
    """


class BatchNorm3d(_BatchNorm, nn.BatchNorm3d):
    """nn.BatchNorm3d whose gradients in training are gradkern's; with an activation and a residual, all in one.

    >>> x = torch.randn(2, 8, 16, 16, 16)
    >>> gradkern.torch.BatchNorm3d(8, activation="relu")(x, residual=x).shape
    torch.Size([2, 8, 16, 16, 16])
    """


class GroupNorm(Scriptable, nn.GroupNorm):
    """nn.GroupNorm with an activation, in one pass each way, in the input's order of memory.

    autocast   "input": under autocast too the result has the type of the input, where nn.GroupNorm's is float32; None:
               as nn.GroupNorm
    activation        one of group_norm_act's: what comes after the norm
    activation_alpha  leaky_relu's slope below 0, or elu's alpha

    >>> norm = gradkern.torch.GroupNorm(4, 32, activation="silu")
    >>> norm(torch.randn(2, 32, 8, 8)).shape
    torch.Size([2, 32, 8, 8])
    """

    activation: str = "none"
    activation_alpha: float = 0.01
    autocast: str | None = None

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = True,
        activation: str = "none",
        activation_alpha: float = 0.01,
        autocast: str | None = None,
    ) -> None:
        super().__init__(num_groups, num_channels, eps, affine, device, dtype, **_without(bias))
        self.autocast = known_autocast("GroupNorm", autocast)
        require_activation("GroupNorm", activation)
        self.activation, self.activation_alpha = activation, activation_alpha

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        input: Tensor,  # noqa: A002
        sample_scale: Tensor | None = None,
        sample_shift: Tensor | None = None,
    ) -> Tensor:
        """sample_scale and sample_shift, of shape (N, C), come between the norm and the activation."""
        if not isinstance(input, Tensor):
            return traced(self, input, sample_scale, sample_shift)
        tensors = input, self.weight, self.bias, sample_scale, sample_shift
        if is_autocast(input.device.type) and self.autocast is None:
            return spelled_out(*tensors, self.num_groups, self.eps, self.activation, self.activation_alpha)
        weight, bias = tensors[1:3]
        how = self.num_groups, weight, bias, self.eps, self.activation
        return group_norm_act(input, *how, sample_scale, sample_shift, self.activation_alpha)

    def __prepare_scriptable__(self) -> nn.Module:
        if self.activation != "none":
            raise TypeError(_no_script("GroupNorm with an activation"))
        return as_pytorchs(self)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, activation={self.activation!r}"


def _without(bias: bool) -> dict[str, Any]:
    """The option of norms since PyTorch 2.13, where it is not as by default."""
    return {} if bias else {"bias": False}


def _no_script(name: str) -> str:
    return f"torch.jit.script: PyTorch has no module that computes what gradkern.torch.{name} does; use torch.jit.trace"


def known_autocast(name: str, autocast: Any) -> str | None:
    """The option `autocast` of a class or function. Raises AttributeValueError, a ValueError."""
    if autocast not in (None, "input"):
        raise AttributeValueError(f'{name}: autocast is {autocast!r}; expected "input" or None')
    return autocast
