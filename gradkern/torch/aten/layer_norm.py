"""native_layer_norm_backward and _fused_rms_norm_backward."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.aten.request import AtenRequest, Constant, Declined, Derived, masked

__all__ = ["layer_norm", "rms_norm", "split_layer_norm", "split_rms_norm"]

Split = tuple[tuple[Any, ...], tuple[Any, ...]]


def _wide(statistic: torch.Tensor) -> torch.Tensor | Derived:
    """Statistics as the contract has them. PyTorch's kernels for the CPU give those of 16 bits in 16 bits where the
    parameters have 16 bits, too, and compute with them in float32.
    """
    return Derived(_widened, (statistic,)) if statistic.element_size() == 2 else statistic


def _widened(statistic: torch.Tensor) -> torch.Tensor:
    return statistic.float()


def split_layer_norm(grad: Any, x: Any, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: Any) -> Split:
    """The tensors that are read, and all else that decides what is computed, how many tensors there are included."""
    if weight is None:
        return (grad, x, mean, rstd), (len(shape), *mask, None)
    return (grad, x, mean, rstd, weight), (len(shape), *mask)


def layer_norm(grad: Any, x: Any, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: Any) -> AtenRequest:
    if weight is None and (mask[1] or mask[2]):
        raise Declined("the gradient of a weight is wanted, but there is no weight")
    return AtenRequest(
        "LayerNormalizationGrad",
        {
            "Y_grad": grad,
            "X": x,
            "scale": Constant(1, tuple(shape), x.dtype) if weight is None else weight,
            "mean": _wide(mean),
            "inv_std_dev": _wide(rstd),
        },
        masked(("X_grad", "scale_grad", "bias_grad"), mask),
        {"axis": x.dim() - len(shape)},
    )


def split_rms_norm(grad: Any, x: Any, shape: Any, rstd: Any, weight: Any, mask: Any) -> Split:
    if weight is None:
        return (grad, x, rstd), (len(shape), *mask, None)
    return (grad, x, rstd, weight), (len(shape), *mask)


def rms_norm(grad: Any, x: Any, shape: Any, rstd: Any, weight: Any, mask: Any) -> AtenRequest:
    if weight is None and mask[1]:
        raise Declined("the gradient of a weight is wanted, but there is no weight")
    return AtenRequest(
        "SimplifiedLayerNormalizationGrad",
        {
            "Y_grad": grad,
            "X": x,
            "scale": Constant(1, tuple(shape), x.dtype) if weight is None else weight,
            "inv_std_var": _wide(rstd),
        },
        masked(("X_grad", "scale_grad"), mask),
        {"axis": x.dim() - len(shape)},
    )
