"""Backward kernels of norms: of rows and groups; of batches PyTorch's own, cuDNN's, and the one to replace both; and
the two steps of torch.nn.SyncBatchNorm's. A group norm with a group for each channel is instance norm's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.torch.aten.request import (
    AtenRequest,
    Constant,
    Declined,
    Derived,
    Split,
    Translation,
    View,
    masked,
    require_weight,
)
from gradkern.torch.flags import flags

_MOST_RANK = 5


def _with_weight(tensors: tuple[Any, ...], weight: Any, others: tuple[Any, ...]) -> Split:
    return (tensors, (*others, None)) if weight is None else ((*tensors, weight), others)


def _or_ones(weight: torch.Tensor | None, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor | Constant:
    return Constant(1, shape, dtype) if weight is None else weight


# --- of rows, and of groups -------------------------------------------------------------------------------------------


def _wide(statistic: torch.Tensor) -> torch.Tensor | Derived:
    """Statistics as the contract has them. PyTorch's kernels for the CPU give those of 16 bits in 16 bits where the
    parameters have 16 bits, too, and compute with them in float32.
    """
    return Derived(_widened, (statistic,)) if statistic.element_size() == 2 else statistic


def _widened(statistic: torch.Tensor) -> torch.Tensor:
    return statistic.float()


def _split_layer_norm(grad: Any, x: Any, shape: Any, mean: Any, rstd: Any, weight: Any, _: Any, mask: Any) -> Split:
    return _with_weight((grad, x, mean, rstd), weight, (len(shape), *mask))


def _layer_norm(grad: Any, x: Any, shape: Any, mean: Any, rstd: Any, weight: Any, _: Any, mask: Any) -> AtenRequest:
    statistics = {"mean": _wide(mean), "inv_std_dev": _wide(rstd)}
    names = "X_grad", "scale_grad", "bias_grad"
    return _of_rows("LayerNormalizationGrad", grad, x, shape, weight, statistics, names, mask)


def _split_rms_norm(grad: Any, x: Any, shape: Any, rstd: Any, weight: Any, mask: Any) -> Split:
    return _with_weight((grad, x, rstd), weight, (len(shape), *mask))


def _rms_norm(grad: Any, x: Any, shape: Any, rstd: Any, weight: Any, mask: Any) -> AtenRequest:
    names = "X_grad", "scale_grad"
    statistics = {"inv_std_var": _wide(rstd)}
    return _of_rows("SimplifiedLayerNormalizationGrad", grad, x, shape, weight, statistics, names, mask)


def _of_rows(
    operator: str, grad: Any, x: Any, shape: Any, weight: Any, statistics: Any, names: tuple[str, ...], mask: Any
) -> AtenRequest:
    require_weight(weight, *mask[1:])
    inputs = {"Y_grad": grad, "X": x, "scale": _or_ones(weight, tuple(shape), x.dtype), **statistics}
    return AtenRequest(operator, inputs, masked(names, mask), {"axis": x.dim() - len(shape)})


def _split_group_norm(grad: Any, x: Any, mean: Any, rstd: Any, weight: Any, *rest: Any) -> Split:
    *_, group, mask = rest
    return _with_weight((grad, x, mean, rstd), weight, (group, *mask))


def _group_norm(grad: Any, x: Any, mean: Any, rstd: Any, weight: Any, *rest: Any) -> AtenRequest:
    *_, group, mask = rest
    require_weight(weight, *mask[1:])
    if not 2 <= x.dim() <= _MOST_RANK:
        raise Declined(f"a tensor of {x.dim()} dimensions; {_MOST_RANK} are the most")
    inputs = {"dY": grad, "X": x, "mean": mean, "inv_std": rstd} | ({} if weight is None else {"gamma": weight})
    return AtenRequest("GroupNormGrad", inputs, masked(("dX", "dgamma", "dbeta"), mask), {"groups": group})


# --- of batches -------------------------------------------------------------------------------------------------------


def _split_native(grad: Any, x: Any, weight: Any, *rest: Any) -> Split:
    *running, mean, inv_std, train, eps, mask = rest
    center, spread = (mean, inv_std) if train else running
    if center is None or spread is None:
        return (grad, x), (train, None)
    others = (train, None if train else eps, *mask, weight is None, flags())
    return (grad, x, center, spread, *(() if weight is None else (weight,))), others


def _native(grad: Any, x: Any, weight: Any, *rest: Any) -> AtenRequest:
    running_mean, running_var, mean, inv_std, train, eps, mask = rest
    require_weight(weight, *mask[1:])
    if train:
        return _trained(grad, x, weight, mean, inv_std, mask)
    return _frozen(grad, x, weight, running_mean, running_var, eps, mask)


def _trained(grad: Any, x: Any, weight: Any, mean: Any, inv_std: Any, mask: Any) -> AtenRequest:
    if mean is None or inv_std is None:
        raise Declined("the statistics of the batch were not saved")
    scale = _or_ones(weight, (x.shape[1],), mean.dtype)
    inputs = {"dY": grad, "X": x, "Scale": scale, "saved_mean": mean, "saved_inv_std": inv_std}
    return AtenRequest("BatchNormalizationGrad", inputs, masked(("dX", "dScale", "dBias"), mask))


def _frozen(grad: Any, x: Any, weight: Any, mean: Any, variance: Any, eps: float, mask: Any) -> AtenRequest:
    """Running statistics are constants."""
    if mean is None or variance is None:
        raise Declined("there are no running statistics")
    channels = (1, -1) + (1,) * (x.dim() - 2)

    def view(each: torch.Tensor) -> torch.Tensor:
        return each.view(channels)

    outputs: tuple[str, ...] = "OutputGradient", "OutputScaleGradient", "OutputBiasGradient"
    scale = _or_ones(weight, (x.shape[1],), mean.dtype)
    inputs = {"Input": x, "InputGradient": grad, "Mean": mean, "Variance": variance, "Scale": scale}
    views: dict[str, View] = dict.fromkeys(("Mean", "Variance", "Scale", *outputs[1:]), view)
    return AtenRequest("DmlBatchNormalizationGrad", inputs, masked(outputs, mask), {"Epsilon": eps}, views)


def _split_cudnn(x: Any, grad: Any, weight: Any, *rest: Any) -> Split:
    _, _, mean, inv_std, *_ = rest
    if mean is None or inv_std is None:
        return (grad, x), ()
    return (grad, x, mean, inv_std, weight), (flags(),)


def _cudnn(x: Any, grad: Any, weight: Any, *rest: Any) -> AtenRequest:
    """What aten calls save_var is 1 / sqrt(variance + epsilon) here; what cuDNN put aside is not needed."""
    _, _, mean, inv_std, *_ = rest
    return _trained(grad, x, weight, mean, inv_std, (True, True, True))


def _but_last(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of the arguments of PyTorch's own kernel, and what cuDNN put aside behind them."""
    return lambda *arguments: function(*arguments[:-1])


# --- of batches of several processes ----------------------------------------------------------------------------------


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


def _with_gradients(results: tuple[Any, ...], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The sums, and the gradients of weight and bias that follow from them."""
    inv_std, weight, _, weight_g, bias_g = args[3:]
    sum_dy, sum_dy_xmu, *_ = results
    dweight = (sum_dy_xmu * inv_std).to(weight.dtype) if weight_g else None
    return sum_dy, sum_dy_xmu, dweight, sum_dy.to(weight.dtype, copy=True) if bias_g else None


def _split_from_sums(grad: Any, x: Any, mean: Any, inv_std: Any, weight: Any, *sums: Any) -> Split:
    return _with_weight((grad, x, mean, inv_std, *sums), weight, ())


def _from_sums(grad: Any, x: Any, mean: Any, inv_std: Any, weight: Any, *sums: Any) -> AtenRequest:
    sum_dy, sum_dy_xmu, count = sums
    inputs = {"dY": grad, "X": x, "Scale": _or_ones(weight, tuple(mean.shape), mean.dtype)}
    inputs |= {"saved_mean": mean, "saved_inv_std": inv_std, "dScale": Derived(torch.mul, (sum_dy_xmu, inv_std))}
    inputs |= {"dBias": sum_dy, "counts": Derived(_counts, (count, mean))}
    return AtenRequest("BatchNormalizationGradFromSums", inputs, ("dX",))


def _counts(count: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    return count.reshape(-1).to(mean.dtype)


TRANSLATIONS = (
    Translation("native_layer_norm_backward", "layer_norm", _split_layer_norm, _layer_norm),
    Translation("_fused_rms_norm_backward", "rms_norm", _split_rms_norm, _rms_norm),
    Translation("native_batch_norm_backward", "batch_norm", _split_native, _native, searched=True),
    Translation("cudnn_batch_norm_backward", "batch_norm", _split_cudnn, _cudnn, searched=True),
    Translation("batch_norm_backward", "batch_norm", _but_last(_split_native), _but_last(_native), searched=True),
    Translation("batch_norm_backward_reduce", "batch_norm", _split_sums, _sums),
    Translation("batch_norm_backward_elemt", "batch_norm", _split_from_sums, _from_sums),
    Translation("native_group_norm_backward", "group_norm", _split_group_norm, _group_norm),
)
