"""The three backward kernels of batch norm: PyTorch's own, cuDNN's, and the one that is to replace both."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.aten.request import AtenRequest, Constant, Declined, masked, require_cudnn
from gradkern.torch.flags import flags

__all__ = [
    "consolidated_batch_norm",
    "cudnn_batch_norm",
    "native_batch_norm",
    "split_consolidated_batch_norm",
    "split_cudnn_batch_norm",
    "split_native_batch_norm",
]

_OUTPUTS = ("dX", "dScale", "dBias")
_FROZEN_OUTPUTS = ("OutputGradient", "OutputScaleGradient", "OutputBiasGradient")

Split = tuple[tuple[Any, ...], tuple[Any, ...]]


def split_native_batch_norm(
    grad: Any,
    x: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    mean: Any,
    inv_std: Any,
    train: bool,
    eps: float,
    mask: Any,
) -> Split:
    """The tensors that are read, and all else that decides what is computed, how many tensors there are included."""
    center, spread = (mean, inv_std) if train else (running_mean, running_var)
    if center is None or spread is None:
        return (grad, x), (train, None)
    rest = (train, None if train else eps, *mask, weight is None, flags())
    if weight is None:
        return (grad, x, center, spread), rest
    return (grad, x, center, spread, weight), rest


def native_batch_norm(
    grad: Any,
    x: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    mean: Any,
    inv_std: Any,
    train: bool,
    eps: float,
    mask: Any,
) -> AtenRequest:
    if weight is None and (mask[1] or mask[2]):
        raise Declined("the gradient of a weight is wanted, but there is no weight")
    return (
        _trained(grad, x, weight, mean, inv_std, mask)
        if train
        else _frozen(grad, x, weight, running_mean, running_var, eps, mask)
    )


def _trained(grad: Any, x: Any, weight: Any, mean: Any, inv_std: Any, mask: Any) -> AtenRequest:
    if mean is None or inv_std is None:
        raise Declined("the statistics of the batch were not saved")
    require_cudnn(x)
    return AtenRequest(
        "BatchNormalizationGrad",
        {
            "dY": grad,
            "X": x,
            "Scale": Constant(1, (x.shape[1],), mean.dtype) if weight is None else weight,
            "saved_mean": mean,
            "saved_inv_std": inv_std,
        },
        masked(_OUTPUTS, mask),
    )


def _frozen(grad: Any, x: Any, weight: Any, mean: Any, variance: Any, eps: float, mask: Any) -> AtenRequest:
    """Running statistics are constants."""
    if mean is None or variance is None:
        raise Declined("there are no running statistics")
    channels = (1, -1) + (1,) * (x.dim() - 2)

    def view(each: torch.Tensor) -> torch.Tensor:
        return each.view(channels)

    return AtenRequest(
        "DmlBatchNormalizationGrad",
        {
            "Input": x,
            "InputGradient": grad,
            "Mean": mean,
            "Variance": variance,
            "Scale": Constant(1, (x.shape[1],), mean.dtype) if weight is None else weight,
        },
        masked(_FROZEN_OUTPUTS, mask),
        {"Epsilon": eps},
        views=dict.fromkeys(("Mean", "Variance", "Scale", *_FROZEN_OUTPUTS[1:]), view),
    )


def split_cudnn_batch_norm(
    x: Any, grad: Any, weight: Any, running_mean: Any, running_var: Any, mean: Any, inv_std: Any, *more: Any
) -> Split:
    if mean is None or inv_std is None:
        return (grad, x), ()
    return (grad, x, mean, inv_std, weight), (flags(),)


def cudnn_batch_norm(
    x: Any, grad: Any, weight: Any, running_mean: Any, running_var: Any, mean: Any, inv_std: Any, *more: Any
) -> AtenRequest:
    """What aten calls save_var is 1 / sqrt(variance + epsilon) here; what cuDNN put aside is not needed."""
    return _trained(grad, x, weight, mean, inv_std, (True, True, True))


def split_consolidated_batch_norm(*arguments: Any) -> Split:
    """Of the arguments of PyTorch's own kernel, and what cuDNN put aside behind them."""
    return split_native_batch_norm(*arguments[:-1])


def consolidated_batch_norm(*arguments: Any) -> AtenRequest:
    return native_batch_norm(*arguments[:-1])
