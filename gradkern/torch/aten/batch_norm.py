"""The three backward kernels of batch norm: PyTorch's own, cuDNN's, and the one that is to replace both."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.aten.request import (
    AtenRequest,
    Constant,
    Declined,
    Split,
    Translation,
    masked,
    require_cudnn,
    require_weight,
)
from gradkern.torch.flags import flags

__all__ = ["TRANSLATIONS"]

_OUTPUTS = ("dX", "dScale", "dBias")
_FROZEN_OUTPUTS = ("OutputGradient", "OutputScaleGradient", "OutputBiasGradient")


def _split_native(grad: Any, x: Any, weight: Any, *rest: Any) -> Split:
    *running, mean, inv_std, train, eps, mask = rest
    center, spread = (mean, inv_std) if train else running
    if center is None or spread is None:
        return (grad, x), (train, None)
    others = (train, None if train else eps, *mask, weight is None, flags())
    if weight is None:
        return (grad, x, center, spread), others
    return (grad, x, center, spread, weight), others


def _native(grad: Any, x: Any, weight: Any, *rest: Any) -> AtenRequest:
    running_mean, running_var, mean, inv_std, train, eps, mask = rest
    require_weight(weight, *mask[1:])
    if train:
        return _trained(grad, x, weight, mean, inv_std, mask)
    return _frozen(grad, x, weight, running_mean, running_var, eps, mask)


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


def _split_cudnn(x: Any, grad: Any, weight: Any, *rest: Any) -> Split:
    _, _, mean, inv_std, *_ = rest
    if mean is None or inv_std is None:
        return (grad, x), ()
    return (grad, x, mean, inv_std, weight), (flags(),)


def _cudnn(x: Any, grad: Any, weight: Any, *rest: Any) -> AtenRequest:
    """What aten calls save_var is 1 / sqrt(variance + epsilon) here; what cuDNN put aside is not needed."""
    _, _, mean, inv_std, *_ = rest
    return _trained(grad, x, weight, mean, inv_std, (True, True, True))


def _split_consolidated(*arguments: Any) -> Split:
    """Of the arguments of PyTorch's own kernel, and what cuDNN put aside behind them."""
    return _split_native(*arguments[:-1])


def _consolidated(*arguments: Any) -> AtenRequest:
    return _native(*arguments[:-1])


TRANSLATIONS = (
    Translation("native_batch_norm_backward", "batch_norm", _split_native, _native, searched=True),
    Translation("cudnn_batch_norm_backward", "batch_norm", _split_cudnn, _cudnn, searched=True),
    Translation("batch_norm_backward", "batch_norm", _split_consolidated, _consolidated, searched=True),
)
