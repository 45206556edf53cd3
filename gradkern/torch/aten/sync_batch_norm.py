"""batch_norm_backward_reduce and batch_norm_backward_elemt: the two steps of torch.nn.SyncBatchNorm's backward pass."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.aten.request import AtenRequest, Constant, Declined, Derived

__all__ = [
    "batch_norm_from_sums",
    "batch_norm_sums",
    "split_batch_norm_from_sums",
    "split_batch_norm_sums",
]

Split = tuple[tuple[Any, ...], tuple[Any, ...]]


def split_batch_norm_sums(
    grad: Any, x: Any, mean: Any, inv_std: Any, weight: Any, input_g: bool, weight_g: bool, bias_g: bool
) -> Split:
    """The tensors that are read, and all else that decides what is computed."""
    return (grad, x, mean, inv_std), (input_g, weight_g, bias_g, None if weight is None else weight.dtype)


def batch_norm_sums(
    grad: Any, x: Any, mean: Any, inv_std: Any, weight: Any, input_g: bool, weight_g: bool, bias_g: bool
) -> AtenRequest:
    """The sums of dY and of dY (X - mean). The latter is the operator's dScale where all deviations are 1."""
    if not input_g:
        raise Declined("only gradients of parameters are wanted, not the sums")
    if weight is None and (weight_g or bias_g):
        raise Declined("the gradient of a weight is wanted, but there is no weight")
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


def split_batch_norm_from_sums(
    grad: Any, x: Any, mean: Any, inv_std: Any, weight: Any, sum_dy: Any, sum_dy_xmu: Any, count: Any
) -> Split:
    """The tensors that are read, and all else that decides what is computed, how many tensors there are included."""
    if weight is None:
        return (grad, x, mean, inv_std, sum_dy, sum_dy_xmu, count), (None,)
    return (grad, x, mean, inv_std, sum_dy, sum_dy_xmu, count, weight), ()


def batch_norm_from_sums(
    grad: Any, x: Any, mean: Any, inv_std: Any, weight: Any, sum_dy: Any, sum_dy_xmu: Any, count: Any
) -> AtenRequest:
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
