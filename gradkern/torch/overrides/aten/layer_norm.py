"""native_layer_norm_backward and _fused_rms_norm_backward."""

from __future__ import annotations

from typing import Any

from gradkern.torch.overrides.request import Constant, Declined, Request, masked

__all__ = ["layer_norm", "rms_norm", "split_layer_norm", "split_rms_norm"]

Split = tuple[tuple[Any, ...], tuple[Any, ...]]


def split_layer_norm(grad: Any, x: Any, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: Any) -> Split:
    """The tensors that are read, and all else that decides what is computed, how many tensors there are included."""
    if weight is None:
        return (grad, x, mean, rstd), (len(shape), *mask, None)
    return (grad, x, mean, rstd, weight), (len(shape), *mask)


def layer_norm(grad: Any, x: Any, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: Any) -> Request:
    if weight is None and (mask[1] or mask[2]):
        raise Declined("the gradient of a weight that is not there is asked for")
    return Request(
        "LayerNormalizationGrad",
        {
            "Y_grad": grad,
            "X": x,
            "scale": Constant(1, tuple(shape), x.dtype) if weight is None else weight,
            "mean": mean,
            "inv_std_dev": rstd,
        },
        masked(("X_grad", "scale_grad", "bias_grad"), mask),
        {"axis": x.dim() - len(shape)},
    )


def split_rms_norm(grad: Any, x: Any, shape: Any, rstd: Any, weight: Any, mask: Any) -> Split:
    if weight is None:
        return (grad, x, rstd), (len(shape), *mask, None)
    return (grad, x, rstd, weight), (len(shape), *mask)


def rms_norm(grad: Any, x: Any, shape: Any, rstd: Any, weight: Any, mask: Any) -> Request:
    if weight is None and mask[1]:
        raise Declined("the gradient of a weight that is not there is asked for")
    return Request(
        "SimplifiedLayerNormalizationGrad",
        {
            "Y_grad": grad,
            "X": x,
            "scale": Constant(1, tuple(shape), x.dtype) if weight is None else weight,
            "inv_std_var": rstd,
        },
        masked(("X_grad", "scale_grad"), mask),
        {"axis": x.dim() - len(shape)},
    )
