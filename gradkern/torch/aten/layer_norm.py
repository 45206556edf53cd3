"""native_layer_norm_backward and _fused_rms_norm_backward."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.aten.request import AtenRequest, Constant, Derived, Split, Translation, masked, require_weight

__all__ = ["TRANSLATIONS"]


def _wide(statistic: torch.Tensor) -> torch.Tensor | Derived:
    """Statistics as the contract has them. PyTorch's kernels for the CPU give those of 16 bits in 16 bits where the
    parameters have 16 bits, too, and compute with them in float32.
    """
    return Derived(_widened, (statistic,)) if statistic.element_size() == 2 else statistic


def _widened(statistic: torch.Tensor) -> torch.Tensor:
    return statistic.float()


def _split_layer_norm(grad: Any, x: Any, shape: Any, mean: Any, rstd: Any, weight: Any, _: Any, mask: Any) -> Split:
    if weight is None:
        return (grad, x, mean, rstd), (len(shape), *mask, None)
    return (grad, x, mean, rstd, weight), (len(shape), *mask)


def _layer_norm(grad: Any, x: Any, shape: Any, mean: Any, rstd: Any, weight: Any, _: Any, mask: Any) -> AtenRequest:
    statistics = {"mean": _wide(mean), "inv_std_dev": _wide(rstd)}
    names = "X_grad", "scale_grad", "bias_grad"
    return _request("LayerNormalizationGrad", grad, x, shape, weight, statistics, names, mask)


def _split_rms_norm(grad: Any, x: Any, shape: Any, rstd: Any, weight: Any, mask: Any) -> Split:
    if weight is None:
        return (grad, x, rstd), (len(shape), *mask, None)
    return (grad, x, rstd, weight), (len(shape), *mask)


def _rms_norm(grad: Any, x: Any, shape: Any, rstd: Any, weight: Any, mask: Any) -> AtenRequest:
    names = "X_grad", "scale_grad"
    statistics = {"inv_std_var": _wide(rstd)}
    return _request("SimplifiedLayerNormalizationGrad", grad, x, shape, weight, statistics, names, mask)


def _request(
    operator: str, grad: Any, x: Any, shape: Any, weight: Any, statistics: Any, names: tuple[str, ...], mask: Any
) -> AtenRequest:
    require_weight(weight, *mask[1:])
    scale = Constant(1, tuple(shape), x.dtype) if weight is None else weight
    inputs = {"Y_grad": grad, "X": x, "scale": scale, **statistics}
    return AtenRequest(operator, inputs, masked(names, mask), {"axis": x.dim() - len(shape)})


TRANSLATIONS = (
    Translation("native_layer_norm_backward", "layer_norm", _split_layer_norm, _layer_norm),
    Translation("_fused_rms_norm_backward", "rms_norm", _split_rms_norm, _rms_norm),
)
