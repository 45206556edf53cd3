"""The terms of every operator's formulas, each in absolute value and added up: what rounding is relative to where they
cancel. A difference, as X - mean, counts as both of its parts: the statistics are rounded, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from helpers.forward import Array
from helpers.reference import FORMULAS, Gradients

__all__ = ["terms"]


def terms(operator: str, inputs: Mapping[str, ArrayLike], attributes: Mapping[str, Any] | None = None) -> Gradients:
    """For every output of `operator`, by contract name, the sum of its terms' absolute values."""
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    wide = {name: each if each.dtype.kind == "i" else np.abs(each.astype(np.float64)) for name, each in arrays.items()}
    with np.errstate(all="ignore"):
        return _TERMS[operator](**wide, **(attributes or {}))


def _layer_norm(
    Y_grad: Array,
    X: Array | None = None,
    scale: Array | None = None,
    mean: Array | None = None,
    inv_std_dev: Array | None = None,
    inv_std_var: Array | None = None,
    Y: Array | None = None,
    bias: Array | None = None,
    axis: int = -1,
    **_: Any,
) -> Gradients:
    data, r = (X if Y is None else Y), (inv_std_var if inv_std_dev is None else inv_std_dev)
    assert data is not None
    assert scale is not None
    assert r is not None
    shape, axis = data.shape, axis % data.ndim
    rows, columns = math.prod(shape[:axis]), math.prod(shape[axis:])
    D, data, r = Y_grad.reshape(rows, columns), data.reshape(rows, columns), r.reshape(rows, 1)
    if Y is None:
        xh = (data if mean is None else data + mean.reshape(rows, 1)) * r
    else:
        assert bias is not None
        xh = (data + bias.ravel()) / scale.ravel()
    g = D * scale.ravel()
    sums = 0.0 if Y is None and mean is None else g.sum(1, keepdims=True) / columns
    return {
        "X_grad": (r * (g + sums + xh * (g * xh).sum(1, keepdims=True) / columns)).reshape(shape),
        "scale_grad": (D * xh).sum(0).reshape(scale.shape),
        "bias_grad": D.sum(0).reshape(scale.shape),
    }


def _batch_norm(dY: Array, X: Array, Scale: Array, saved_mean: Array, saved_inv_std: Array, **_: Any) -> Gradients:
    channels = (-1, *[1] * (X.ndim - 2))
    others = (0, *range(2, X.ndim))
    scale, mean, r = (each.reshape(channels) for each in (Scale, saved_mean, saved_inv_std))
    xh, m = (X + mean) * r, max(1, X.size // max(1, X.shape[1]))
    sums = {"dScale": (dY * xh).sum(others), "dBias": dY.sum(others)}
    dscale, dbias = (each.reshape(channels) / m for each in sums.values())
    return {"dX": scale * r * (dY + dbias + xh * dscale), **sums, "dZ": dY}


def _dml_batch_norm(
    Input: Array, InputGradient: Array, Mean: Array, Variance: Array, Scale: Array, *, Epsilon: float
) -> Gradients:
    return FORMULAS["DmlBatchNormalizationGrad"](Input, InputGradient, -Mean, Variance, Scale, Epsilon=Epsilon)


def _dml_batch_norm_training(
    Input: Array, InputGradient: Array, Mean: Array, Variance: Array, Scale: Array, *, Epsilon: float
) -> Gradients:
    sums = _dml_batch_norm(Input, InputGradient, Mean, Variance, Scale, Epsilon=Epsilon)
    m, r = Input.size // max(1, Mean.size), 1 / np.sqrt(Variance + Epsilon)
    of_scale, of_bias = sums["OutputScaleGradient"] / m, sums["OutputBiasGradient"] / m
    return {**sums, "OutputGradient": Scale * r * (InputGradient + of_bias + (Input + Mean) * r * of_scale)}


def _dml_elements(Input: Array, InputGradient: Array, **_: Any) -> Gradients:
    return {"OutputGradient": InputGradient}


def _gelu(dY: Array, X: Array, B: Array) -> Gradients:
    return {"dX": dY, "dB": dY.sum(tuple(range(dY.ndim - 1)))}


def _activation(dY: Array, X: Array | None = None, Y: Array | None = None, **_: Any) -> Gradients:
    """Slopes of an input are at most 1.13; those of an output y have the terms 1, y and y^2."""
    return {"dX": 1.13 * dY if Y is None else dY * (1 + Y + Y**2)}


def _softmax(dY: Array, Y: Array, axis: int = 1, **_: Any) -> Gradients:
    return _softmax_13(dY, Y, tuple(range(axis % Y.ndim, Y.ndim)))


def _gated(dY: Array, A: Array, B: Array, **_: Any) -> Gradients:
    return {"dA": 1.13 * dY * B, "dB": dY * A, "Y": A * B}


def _softmax_dropout(dy: Array, mask: Array, softmax_y: Array, axis: int, ratio: float = 0.5) -> Gradients:
    return {"dx": _softmax(np.where(mask, dy / (1 - ratio), 0.0), softmax_y, axis)["dX"]}


def _softmax_13(dY: Array, Y: Array, axis: Any = -1, **_: Any) -> Gradients:
    return {"dX": Y * (dY + (dY * Y).sum(axis, keepdims=True))}


def _log_softmax(dY: Array, X: Array, axis: int = 1, **_: Any) -> Gradients:
    return _log_softmax_13(dY, X, tuple(range(axis % X.ndim, X.ndim)))


def _log_softmax_13(dY: Array, X: Array, axis: Any = -1, **_: Any) -> Gradients:
    """X is a logarithm of at most 1, whose absolute value is given."""
    return {"dX": dY + np.exp(-X) * dY.sum(axis, keepdims=True)}


def _group_norm(dY: Array, X: Array, mean: Array, inv_std: Array, *, groups: int, **more: Any) -> Gradients:
    """An activation's derivative is at most 1.13."""
    last, C = more.get("channels_last", 0), X.shape[-1 if more.get("channels_last", 0) else 1]
    D, x = ((np.moveaxis(each, -1, 1) if last else each).reshape(len(X), C, -1) for each in (1.13 * dY, X))
    gamma, beta = (more.get(name, np.ones(C)) for name in ("gamma", "beta"))
    s = more.get("sample_scale", np.zeros((len(X), C)))
    mean, r = (np.repeat(each, C // groups, 1)[..., None] for each in (mean, inv_std))
    xh, A = (x + mean) * r, (gamma * (1 + s))[..., None]

    def of_group(values: Array) -> Array:
        return np.repeat(values.reshape(len(X), groups, -1).mean(2), C // groups, 1)[..., None]

    spatial = X.shape[1:-1] if last else X.shape[2:]
    dX = (r * (A * D + of_group(A * D) + xh * of_group(A * D * xh))).reshape(len(X), C, *spatial)
    P, Q = D.sum(2), (D * xh).sum(2)
    return {
        "dX": (np.moveaxis(dX, 1, -1) if last else dX) + more.get("residual_grad", 0.0),
        "dgamma": ((1 + s) * Q).sum(0),
        "dbeta": ((1 + s) * P).sum(0),
        "sample_scale_grad": gamma * Q + beta * P,
        "sample_shift_grad": P,
    }


def _rotary(dY: Array, cos_cache: Array, sin_cache: Array, position_ids: Array | None = None, **_: Any) -> Gradients:
    """No element has more than its pair."""
    lines = [each if position_ids is None else each[position_ids.astype(int)] for each in (cos_cache, sin_cache)]
    cos, sin = (each.max(-1)[:, None, :, None] for each in lines)
    return {"dX": dY * np.maximum(cos, 1) + dY.max(-1, keepdims=True) * sin}


_TERMS: dict[str, Callable[..., Gradients]] = {
    "BatchNormalizationGrad": _batch_norm,
    "LayerNormalizationGrad": _layer_norm,
    "SimplifiedLayerNormalizationGrad": _layer_norm,
    "InvertibleLayerNormalizationGrad": _layer_norm,
    "ConvGrad": FORMULAS["ConvGrad"],
    "ConvTransposeGrad": FORMULAS["ConvTransposeGrad"],
    "BiasGeluGrad_dX": _gelu,
    "BiasFastGeluGrad_dX": _gelu,
    "DmlBatchNormalizationGrad": _dml_batch_norm,
    "DmlBatchNormalizationTrainingGrad": _dml_batch_norm_training,
    **dict.fromkeys(("DmlActivationReluGrad", "DmlElementWiseClipGrad", "DmlElementWiseClipGrad1"), _dml_elements),
    "SoftmaxGrad": _softmax,
    "SoftmaxGrad_13": _softmax_13,
    "LogSoftmaxGrad": _log_softmax,
    "LogSoftmaxGrad_13": _log_softmax_13,
    "GroupNormGrad": _group_norm,
    "RotaryEmbeddingGrad": _rotary,
    **{
        name: FORMULAS[name]
        for name in ("GatherGrad", "GatherElementsGrad", "GatherNDGrad", "SliceGrad", "DmlSliceGrad")
    },
    **dict.fromkeys(("GeluGrad", "FastGeluGrad", "QuickGeluGrad", "ReluGrad"), _activation),
    **{name: FORMULAS[name] for name in ("DropoutGrad", "BitmaskDropoutGrad", "FakeQuantGrad")},
    "SoftmaxDropoutGrad": _softmax_dropout,
    "DivGrad": lambda **inputs: {name: np.abs(each) for name, each in FORMULAS["DivGrad"](**inputs).items()},
    **dict.fromkeys(("SwiGLUGrad", "GeGLUGrad"), _gated),
    **dict.fromkeys(("LeakyReluGrad", "SigmoidGrad", "TanhGrad"), _activation),
}
