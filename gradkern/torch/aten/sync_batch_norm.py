"""batch_norm_backward_reduce and batch_norm_backward_elemt: the two steps of torch.nn.SyncBatchNorm's backward pass."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.aten.request import (
    AtenRequest,
    Constant,
    Declined,
    Derived,
    Split,
    Translation,
    require_weight,
)

__all__ = ["TRANSLATIONS"]


def _split_sums(grad: Any, x: Any, mean: Any, inv_std: Any, weight: Any, *wanted: bool) -> Split:
    return (grad, x, mean, inv_std), (*wanted, None if weight is None else weight.dtype)


def _sums(
    grad: Any, x: Any, mean: Any, inv_std: Any, weight: Any, input_g: bool, weight_g: bool, bias_g: bool
) -> AtenRequest:
    """The sums of dY and of dY (X - mean). The latter is the operator's dScale where all deviations are 1."""
    if not input_g:
        raise Declined("only gradients of parameters are wanted, not the sums")
    require_weight(weight, weight_g, bias_g)
    ones = Constant(1, tuple(mean.shape), mean.dtype)
    inputs = {"dY": grad, "X": x, "saved_mean": mean, "saved_inv_std": ones}
    outputs = ("dBias", "dScale", None, None)
    finish = _with_gradients if weight_g or bias_g else None
    return AtenRequest("BatchNormalizationGradSums", inputs, outputs, finish=finish)


def _with_gradients(results: tuple[Any, ...], args: tuple[Any, ...], original: Any) -> tuple[Any, ...]:
    """The sums, and the gradients of weight and bias that follow from them."""
    inv_std, weight, _, weight_g, bias_g = args[3:]
    sum_dy, sum_dy_xmu, *_ = results
    dweight = (sum_dy_xmu * inv_std).to(weight.dtype) if weight_g else None
    return sum_dy, sum_dy_xmu, dweight, sum_dy.to(weight.dtype, copy=True) if bias_g else None


def _split_from_sums(grad: Any, x: Any, mean: Any, inv_std: Any, weight: Any, *sums: Any) -> Split:
    tensors = grad, x, mean, inv_std, *sums
    return (tensors, (None,)) if weight is None else ((*tensors, weight), ())


def _from_sums(grad: Any, x: Any, mean: Any, inv_std: Any, weight: Any, *sums: Any) -> AtenRequest:
    sum_dy, sum_dy_xmu, count = sums
    return AtenRequest(
        "BatchNormalizationGradFromSums",
        {
            "dY": grad,
            "X": x,
            "Scale": Constant(1, tuple(mean.shape), mean.dtype) if weight is None else weight,
            "saved_mean": mean,
            "saved_inv_std": inv_std,
            "dScale": Derived(torch.mul, (sum_dy_xmu, inv_std)),
            "dBias": sum_dy,
            "counts": Derived(_counts, (count, mean)),
        },
        ("dX",),
    )


def _counts(count: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    return count.reshape(-1).to(mean.dtype)


TRANSLATIONS = (
    Translation("batch_norm_backward_reduce", "batch_norm", _split_sums, _sums),
    Translation("batch_norm_backward_elemt", "batch_norm", _split_from_sums, _from_sums),
)
