"""Every operator's outputs in float64, by its formula: what providers are compared with. test_reference.py proves it.

The formulas take statistics of any value, not only those of X. Inputs of 16 or 32 bits are widened exactly first, so
the reference sees the very numbers a provider sees. What an operator says it rounds on the way is rounded here, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, ndtr

from helpers.forward import (
    Array,
    adaptive_matrix,
    conv,
    conv_pads,
    conv_transpose,
    pool_taps,
    resample_matrix,
    resize_matrix,
    taps,
    transposed_frame,
    window_sums,
)

__all__ = ["FORMULAS", "central_differences", "directional_difference", "reference"]

Gradients = dict[str, Array]
Slope = Callable[..., Array]


def reference(
    operator: str,
    inputs: Mapping[str, ArrayLike],
    attributes: Mapping[str, Any] | None = None,
    types: Mapping[str, str] | None = None,
) -> Gradients:
    """All outputs of `operator`, by contract name. Attributes left out have the contract's defaults; types: those of a
    combination, where the values of outputs depend on them.
    """
    # Through NumPy first: float64 of an ml_dtypes array or a list is exact either way.
    widened = {name: np.asarray(value).astype(np.float64) for name, value in inputs.items()}
    more = dict(attributes or {})
    if operator.startswith("Skip"):
        of_sum = np.asarray(inputs.get("skip", next(iter(inputs.values())))).dtype
        more["rounded"] = lambda total: total.astype(of_sum).astype(np.float64)
    if operator.startswith("MaxPool"):
        indices = np.asarray(inputs.get("Indices", 0)).dtype.name
        more["local"] = "uint8" in ((types or {}).get("I"), indices)
    if operator == "LinearCrossEntropy":
        kind = np.asarray(inputs["X"]).dtype
        more["rounded"] = lambda total: total.astype(kind).astype(np.float64)
    with np.errstate(all="ignore"):  # NaN and infinity are answers here, as they are in a provider
        return FORMULAS[operator](**widened, **more)


def _layer_norm(
    Y_grad: Array,
    X: Array,
    scale: Array,
    mean: Array,
    inv_std_dev: Array,
    residual_grad: Array | None = None,
    *,
    axis: int = -1,
) -> Gradients:
    shape, rows_of = X.shape, _rows(X, axis)
    D, X, r, mean = rows_of(Y_grad), rows_of(X), inv_std_dev.reshape(-1, 1), mean.reshape(-1, 1)
    return _added(_normalised(D, (X - mean) * r, scale, r, shape, centred=True), residual_grad)


def _added(gradients: Gradients, residual_grad: Array | None) -> Gradients:
    if residual_grad is not None:
        gradients["X_grad"] = gradients["X_grad"] + residual_grad
    rows = gradients["X_grad"].reshape(-1, gradients["scale_grad"].size)
    total = rows.sum(0).reshape(gradients["scale_grad"].shape)
    return {**gradients, "X_grad_sum": total, "branch_grad": gradients["X_grad"]}


def _rms_norm(
    Y_grad: Array, X: Array, scale: Array, inv_std_var: Array, residual_grad: Array | None = None, *, axis: int = -1
) -> Gradients:
    shape, rows_of = X.shape, _rows(X, axis)
    D, X, r = rows_of(Y_grad), rows_of(X), inv_std_var.reshape(-1, 1)
    gradients = _normalised(D, X * r, scale, r, shape, centred=False)
    return _added({name: gradients[name] for name in ("X_grad", "scale_grad")}, residual_grad)


def _invertible_layer_norm(
    Y_grad: Array,
    Y: Array,
    scale: Array,
    bias: Array,
    inv_std_var: Array,
    *,
    axis: int = -1,
    X_grad_type: str | None = None,  # a rounding, which has no place here
) -> Gradients:
    shape, rows_of = Y.shape, _rows(Y, axis)
    xh = (rows_of(Y) - bias.ravel()) / scale.ravel()
    return _normalised(rows_of(Y_grad), xh, scale, inv_std_var.reshape(-1, 1), shape, centred=True)


def _normalised(D: Array, xh: Array, scale: Array, r: Array, shape: tuple[int, ...], *, centred: bool) -> Gradients:
    """D and xh are (rows, columns), r is (rows, 1)."""
    columns = D.shape[1]
    g = D * scale.ravel()
    s1 = g.sum(1, keepdims=True) if centred else 0.0
    s2 = (g * xh).sum(1, keepdims=True)
    return {
        "X_grad": (r / columns * (columns * g - s1 - xh * s2)).reshape(shape),
        "scale_grad": (D * xh).sum(0).reshape(scale.shape),
        "bias_grad": D.sum(0).reshape(scale.shape),
    }


def _layer_norm_forward(
    X: Array,
    Scale: Array,
    B: Array | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    Y_type: str | None = None,  # a rounding, which has no place here
) -> Gradients:
    mean = _mean_of_columns(X, axis)
    inv_std = _inverse_root(_mean_of_columns((X - mean) ** 2, axis), epsilon, X, axis)
    xh = (X - mean) * inv_std
    shape = X.shape[axis % X.ndim :]
    bias = 0.0 if B is None else B.reshape(shape)
    return {"Y": xh * Scale.reshape(shape) + bias, "Mean": mean, "InvStdDev": inv_std}


def _rms_norm_forward(
    X: Array,
    scale: Array,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    Y_type: str | None = None,
) -> Gradients:
    inv_std = _inverse_root(_mean_of_columns(X**2, axis), epsilon, X, axis)
    return {"Y": X * inv_std * scale.reshape(X.shape[axis % X.ndim :]), "inv_std_var": inv_std}


def _skip_layer_norm(
    input: Array,  # noqa: A002  the contract's name
    skip: Array,
    gamma: Array,
    beta: Array | None = None,
    bias: Array | None = None,
    *,
    epsilon: float = 1e-12,
    rounded: Callable[[Array], Array] = lambda total: total,
) -> Gradients:
    total = rounded(input + skip + (0.0 if bias is None else bias))
    found = _layer_norm_forward(total, gamma, beta, epsilon=epsilon)
    statistics = {"mean": found["Mean"][..., 0], "inv_std_var": found["InvStdDev"][..., 0]}
    return {"output": found["Y"], **statistics, "input_skip_bias_sum": total}


def _skip_rms_norm(
    input: Array,  # noqa: A002  the contract's name
    skip: Array,
    gamma: Array,
    bias: Array | None = None,
    *,
    epsilon: float = 1e-12,
    rounded: Callable[[Array], Array] = lambda total: total,
) -> Gradients:
    total = rounded(input + skip + (0.0 if bias is None else bias))
    found = _rms_norm_forward(total, gamma, epsilon=epsilon)
    return {"output": found["Y"], "inv_std_var": found["inv_std_var"][..., 0], "input_skip_bias_sum": total}


def _mean_of_columns(X: Array, axis: int) -> Array:
    """Of each row, with a 1 for every axis that the columns have; 0 of a row of nothing."""
    axes = tuple(range(axis % X.ndim, X.ndim))
    return X.sum(axes, keepdims=True) / max(1, math.prod(X.shape[axes[0] :]))


def _inverse_root(mean_square: Array, epsilon: float, X: Array, axis: int) -> Array:
    """1 / sqrt(mean_square + epsilon); 0 of a row of nothing."""
    empty = math.prod(X.shape[axis % X.ndim :]) == 0
    return np.zeros_like(mean_square) if empty else 1 / np.sqrt(mean_square + epsilon)


def _rows(X: Array, axis: int) -> Callable[[Array], Array]:
    axis %= X.ndim
    rows, columns = math.prod(X.shape[:axis]), math.prod(X.shape[axis:])
    return lambda array: array.reshape(rows, columns)


def _batch_norm(
    dY: Array,
    X: Array,
    Scale: Array,
    saved_mean: Array,
    saved_inv_std: Array,
    B: Array | None = None,
    Y: Array | None = None,
    dY2: Array | None = None,
    *,
    epsilon: float = 1e-5,
    activation: str = "none",
    activation_alpha: float = 0.01,
) -> Gradients:
    D = dY if dY2 is None else dY + dY2
    if activation != "none":
        t = Y
        if B is not None:
            scale, bias, mean, r = _per_channel(X, Scale, B, saved_mean, saved_inv_std)
            t = (X - mean) * r * scale + bias
        assert t is not None
        D = _through(activation, D, t, activation_alpha)
    sums = _batch_norm_sums(D, X, saved_mean, saved_inv_std)
    del sums["sums"]  # a message to other parts
    m = X.shape[0] * math.prod(X.shape[2:])
    return {**_batch_norm_from_sums(D, X, Scale, saved_mean, saved_inv_std, **sums, count=m), **sums, "dZ": D}


def _batch_norm_forward(
    X: Array,
    scale: Array,
    B: Array,
    input_mean: Array | None = None,
    input_var: Array | None = None,
    Z: Array | None = None,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 1,
    activation: str = "none",
    activation_alpha: float = 0.01,
    unbiased: int = 0,
) -> Gradients:
    others = (0, *range(2, X.ndim))
    m = math.prod(X.shape[axis] for axis in others)
    mean = X.sum(others) / max(1, m)
    variance = ((X - _per_channel(X, mean)[0]) ** 2).sum(others) / max(1, m)
    saved = {"saved_mean": mean, "saved_inv_std": 1 / np.sqrt(variance + epsilon) if m else np.zeros_like(mean)}
    gain, bias, shift = _per_channel(X, scale * saved["saved_inv_std"], B, mean)
    t = (X - shift) * gain + bias + (0.0 if Z is None else Z)
    Y = _activated(activation, t, activation_alpha)
    running: Gradients = {}
    new = {"running_mean": (input_mean, mean), "running_var": (input_var, variance * np.divide(m, m - unbiased))}
    for name, (old, of_batch) in new.items():
        if old is not None:
            running[name] = old * momentum + of_batch * (1 - momentum) if m else old
    return {"Y": Y, **running, **saved}


def _activated(activation: str, t: Array, alpha: float) -> Array:
    """A norm's activation."""
    return {
        "none": t,
        "relu": np.where(t <= 0, 0.0, t),
        "leaky_relu": np.where(t > 0, t, alpha * t),
        "silu": t * expit(t),
        "relu6": np.clip(t, 0, 6),
        "hardswish": t * np.clip(t + 3, 0, 6) / 6,
        "elu": np.where(t > 0, t, alpha * np.expm1(np.minimum(t, 0))),
        "gelu": t * ndtr(t),
    }[activation]


def _through(activation: str, D: Array, t: Array, alpha: float) -> Array:
    """The gradient of a norm's activation at t."""
    return {
        "none": D,
        "relu": np.where(t <= 0, 0.0, D),
        "leaky_relu": np.where(t > 0, D, alpha * D),
        "silu": D * expit(t) * (1 + t * expit(-t)),
        "relu6": np.where((t > 0) & (t < 6), D, 0.0),
        "hardswish": D * np.where(np.abs(t) < 3, t / 3 + 0.5, t > 0),
        "elu": np.where(t > 0, D, D * alpha * np.exp(np.minimum(t, 0))),
        "gelu": D * _gelu_slope(t),
    }[activation]


def _batch_norm_sums(dY: Array, X: Array, saved_mean: Array, saved_inv_std: Array) -> Gradients:
    others = (0, *range(2, X.ndim))
    mean, r = _per_channel(X, saved_mean, saved_inv_std)
    dScale, dBias = (dY * ((X - mean) * r)).sum(others), dY.sum(others)
    return {"dScale": dScale, "dBias": dBias, "sums": np.concatenate([dScale, dBias])}


def _batch_norm_from_sums(
    dY: Array,
    X: Array,
    Scale: Array,
    saved_mean: Array,
    saved_inv_std: Array,
    dScale: Array,
    dBias: Array,
    counts: Array | None = None,
    *,
    count: int | None = None,
) -> Gradients:
    m = np.sum(np.asarray(counts)) if count is None else count
    scale, mean, r, dscale, dbias = _per_channel(X, Scale, saved_mean, saved_inv_std, dScale, dBias)
    return {"dX": scale * r / m * (m * dY - dbias - (X - mean) * r * dscale)}


def _part_statistics(X: Array) -> Gradients:
    others = (0, *range(2, X.ndim))
    m = math.prod(X.shape[axis] for axis in others)
    mean, variance = (X.mean(others), X.var(others)) if m else (np.zeros(X.shape[1]),) * 2
    return {"part_statistics": np.concatenate([mean, variance, [m]])}


def _batch_norm_from_statistics(X: Array, scale: Array, B: Array, saved_mean: Array, saved_inv_std: Array) -> Gradients:
    scale, bias, mean, r = _per_channel(X, scale, B, saved_mean, saved_inv_std)
    return {"Y": (X - mean) * r * scale + bias}


def _merge_statistics(
    part_statistics: Array,
    input_mean: Array | None = None,
    input_var: Array | None = None,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
) -> Gradients:
    channels = part_statistics.shape[1] // 2
    means, variances, counts = np.split(part_statistics, [channels, 2 * channels], axis=1)
    m = counts.sum()
    mean = (counts * means).sum(0) / (m or 1)
    variance = (counts * (variances + (means - mean) ** 2)).sum(0) / (m or 1)
    sample = variance * m / max(m - 1, 1)
    every = {"statistics": (m > 0) / np.sqrt(variance + epsilon + (m == 0)), "sample_statistics": sample}
    found = {name: np.concatenate([mean, spread, [m]]) for name, spread in every.items()}
    for name, before, new in (("running_mean", input_mean, mean), ("running_var", input_var, sample)):
        if before is not None:
            found[name] = before * momentum + new * (1 - momentum)
    return found


def _per_channel(X: Array, *parameters: Array) -> list[Array]:
    """One value for each channel in a shape that meets X's second axis."""
    return [each.reshape(-1, *[1] * (X.ndim - 2)) for each in parameters]


def _dml_batch_norm(
    Input: Array, InputGradient: Array, Mean: Array, Variance: Array, Scale: Array, *, Epsilon: float
) -> Gradients:
    r = 1 / np.sqrt(Variance + Epsilon)
    summed = tuple(axis for axis, size in enumerate(Mean.shape) if size == 1)
    return {
        "OutputGradient": InputGradient * Scale * r,
        "OutputScaleGradient": (InputGradient * (Input - Mean) * r).sum(summed, keepdims=True),
        "OutputBiasGradient": InputGradient.sum(summed, keepdims=True),
    }


def _dml_batch_norm_training(
    Input: Array, InputGradient: Array, Mean: Array, Variance: Array, Scale: Array, *, Epsilon: float
) -> Gradients:
    """The gradient as DirectML's documentation has it, with the given mean."""
    spread, apart = Variance + Epsilon, Input - Mean
    summed = tuple(axis for axis, size in enumerate(Mean.shape) if size == 1)
    coefficient = (InputGradient * apart).mean(summed, keepdims=True)
    centred = InputGradient - InputGradient.mean(summed, keepdims=True)
    found = _dml_batch_norm(Input, InputGradient, Mean, Variance, Scale, Epsilon=Epsilon)
    return {**found, "OutputGradient": Scale / np.sqrt(spread) * (centred - apart * coefficient / spread)}


def _dml_relu(Input: Array, InputGradient: Array) -> Gradients:
    return {"OutputGradient": np.where(Input > 0, InputGradient, 0.0)}


def _dml_clip(Input: Array, InputGradient: Array, *, Min: float, Max: float) -> Gradients:
    return {"OutputGradient": np.where((Input <= Min) | (Input >= Max), 0.0, InputGradient)}


def _local_response_norm(
    Input: Array,
    InputGradient: Array,
    *,
    CrossChannel: int,
    LocalSize: int,
    Alpha: float = 1e-4,
    Beta: float = 0.75,
    Bias: float = 1.0,
) -> Gradients:
    """By a matrix of each axis, whose rows are an element's window."""
    axes = (1,) if CrossChannel else tuple(range(2, Input.ndim))
    s = Bias + Alpha / LocalSize * window_sums(Input**2, axes, LocalSize)
    others = InputGradient * Input * s ** (-Beta - 1)
    total = window_sums(others, axes, LocalSize, turned=True)
    return {"OutputGradient": InputGradient * s**-Beta - 2 * Alpha * Beta / LocalSize * Input * total}


def _roi_align(
    InputGradient: Array,
    ROI: Array,
    BatchIndices: Array,
    Input: Array | None = None,
    *,
    ReductionFunction: str,
    InterpolationMode: str,
    BatchCount: int = 0,
    OutputSizes: Sequence[int] = (),
    SpatialScaleX: float = 1.0,
    SpatialScaleY: float = 1.0,
    InputPixelOffset: float = 0.5,
    OutputPixelOffset: float = -0.5,
    MinimumSamplesPerOutput: int = 1,
    MaximumSamplesPerOutput: int = 1 << 32,
    AlignRegionsToCorners: int = 0,
) -> Gradients:
    """By a matrix of each axis of a region, whose rows are its samples' weights, and by one of their derivatives."""
    count, channels, *outs = InputGradient.shape
    X = np.zeros((BatchCount, channels, *OutputSizes)) if Input is None else Input
    scales = SpatialScaleY, SpatialScaleX
    dX, dROI = np.zeros_like(X), np.zeros_like(ROI)
    for r in range(count):
        axes: list[tuple[Array, Array, Array]] = []
        for axis in (0, 1):
            v1, v2 = ROI[r, 1 - axis] * scales[axis], ROI[r, 3 - axis] * scales[axis]
            cells = math.ceil(abs(v2 - v1) / outs[axis])
            n = int(min(max(cells, MinimumSamplesPerOutput), MaximumSamplesPerOutput))
            part = (np.arange(n * outs[axis]) - OutputPixelOffset) / max(n * outs[axis] - AlignRegionsToCorners, 1)
            part = part * 0 if n * outs[axis] == AlignRegionsToCorners else part
            at, last = part * (v2 - v1) + v1 - InputPixelOffset, X.shape[2 + axis] - 1
            inside, at = (at >= -1) & (at <= last + 1), np.clip(at, 0, last)
            at = np.ceil(at - 0.5) if InterpolationMode == "NEAREST_NEIGHBOR" else at
            places, low, high = np.arange(last + 1), np.floor(at)[:, None], np.ceil(at)[:, None]
            slopes = ((places == high) * 1.0 - (places == low)) * inside[:, None] * scales[axis]
            weights = np.maximum(1 - abs(at[:, None] - places), 0) * inside[:, None]
            axes.append((weights, slopes, part))
        (wy, sy, py), (wx, sx, px) = axes
        cells = (channels, outs[0], len(py) // outs[0], outs[1], len(px) // outs[1])
        D = np.broadcast_to(InputGradient[r][:, :, None, :, None], cells).copy()
        image = X[int(BatchIndices[r])]
        if ReductionFunction == "MAX":
            order = (wy @ image @ wx.T).reshape(cells).transpose(0, 1, 3, 4, 2).reshape(*cells[:2], cells[3], -1)
            best = order.argmax(-1)[..., None] == np.arange(order.shape[-1])
            D = D * best.reshape(*cells[:2], cells[3], cells[4], cells[2]).transpose(0, 1, 4, 2, 3)
        else:
            D /= cells[2] * cells[4]
        inside = np.sum(wy, 1)[:, None] * np.sum(wx, 1)
        D = np.where(inside > 0, D.reshape(channels, len(py), len(px)), 0)
        reached = (np.not_equal(wy, 0).T * 1.0 @ ~np.isfinite(D) @ np.not_equal(wx, 0)) > 0  # where it has a weight
        dX[int(BatchIndices[r])] += np.where(reached, np.nan, wy.T @ np.where(np.isfinite(D), D, 0) @ wx)
        along_x, along_y = (D * (wy @ image @ sx.T)).sum((0, 1)), (D * (sy @ image @ wx.T)).sum((0, 2))
        dROI[r] = along_x @ (1 - px), along_y @ (1 - py), along_x @ px, along_y @ py
    return {"OutputGradient": dX, "OutputROIGradient": dROI}


def _dml_slice(
    InputGradient: Array,
    *,
    InputWindowOffsets: Sequence[int],
    InputWindowSizes: Sequence[int],
    InputWindowStrides: Sequence[int],
    OutputSizes: Sequence[int],
) -> Gradients:
    """A window, which negative strides turn over."""
    found = np.zeros(OutputSizes)
    windows = zip(InputWindowOffsets, InputWindowSizes, strict=True)
    window = found[tuple(slice(offset, offset + size) for offset, size in windows)]
    window[tuple(slice(None, None, step) for step in InputWindowStrides)] = InputGradient
    return {"OutputGradient": found}


def _bias_gelu_forward(A: Array, B: Array) -> Gradients:
    return {"C": _times(A + B, ndtr)}


def _bias_fast_gelu_forward(A: Array, B: Array) -> Gradients:
    c, a = 0.7978845608028654, 0.044715
    return {"C": _times(A + B, lambda z: expit(2 * c * (z + a * z**3)))}


def _times(z: Array, share: Callable[[Array], Array]) -> Array:
    """z share(z), where the share is 0 or 1 to the last bit beyond 50; 0 of minus infinity."""
    return np.where(z < -50, 0.0 * np.maximum(z, -50), z * share(_saturated(z)))


def _group_norm(
    dY: Array,
    X: Array,
    mean: Array,
    inv_std: Array,
    gamma: Array | None = None,
    beta: Array | None = None,
    sample_scale: Array | None = None,
    sample_shift: Array | None = None,
    residual_grad: Array | None = None,
    *,
    groups: int,
    activation: str = "none",
    activation_alpha: float = 0.01,
    channels_last: int = 0,
) -> Gradients:
    if channels_last:
        dY, X = np.moveaxis(dY, -1, 1), np.moveaxis(X, -1, 1)
    N, C = X.shape[:2]
    gamma, beta = np.ones(C) if gamma is None else gamma, np.zeros(C) if beta is None else beta
    s, t = (np.zeros((N, C, 1)) if each is None else each.reshape(N, C, 1) for each in (sample_scale, sample_shift))
    D, x = dY.reshape(N, C, math.prod(X.shape[2:])), X.reshape(N, C, math.prod(X.shape[2:]))
    mean, r = (np.repeat(each, C // groups, 1)[..., None] for each in (mean, inv_std))
    xh, A = (x - mean) * r, gamma[:, None] * (1 + s)
    z = (xh * gamma[:, None] + beta[:, None]) * (1 + s) + t
    D = _through(activation, D, z, activation_alpha)

    def mean_of_group(values: Array) -> Array:
        grouped = values.reshape(N, groups, -1)
        return np.repeat(grouped.mean(2) if grouped.size else grouped.sum(2), C // groups, 1)[..., None]

    dx = (r * (A * D - mean_of_group(A * D) - xh * mean_of_group(A * D * xh))).reshape(X.shape)
    dx = np.moveaxis(dx, 1, -1) if channels_last else dx
    P, Q = D.sum(2), (D * xh).sum(2)
    return {
        "dX": dx if residual_grad is None else dx + residual_grad,
        "dgamma": ((1 + s[..., 0]) * Q).sum(0),
        "dbeta": ((1 + s[..., 0]) * P).sum(0),
        "sample_scale_grad": gamma * Q + beta * P,
        "sample_shift_grad": P,
    }


def _group_norm_forward(
    X: Array,
    gamma: Array | None = None,
    beta: Array | None = None,
    sample_scale: Array | None = None,
    sample_shift: Array | None = None,
    *,
    groups: int,
    activation: int | str = "none",
    activation_alpha: float = 0.01,
    channels_last: int = 0,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Gradients:
    x = np.moveaxis(X, -1, 1) if channels_last else X
    N, C = x.shape[:2]
    grouped = x.reshape(N, groups, math.prod(x.shape[1:]) // groups)
    count = max(1, grouped.shape[2])
    mean = grouped.sum(2) / count
    variance = ((grouped - mean[..., None]) ** 2).sum(2) / count
    inv_std = 1 / np.sqrt(variance + epsilon) if grouped.shape[2] else np.zeros_like(mean)
    z = ((grouped - mean[..., None]) * inv_std[..., None]).reshape(N, C, math.prod(x.shape[2:]))
    gamma, beta = np.ones(C) if gamma is None else gamma, np.zeros(C) if beta is None else beta
    s, t = (np.zeros((N, C)) if each is None else each for each in (sample_scale, sample_shift))
    z = (z * gamma[:, None] + beta[:, None]) * (1 + s[..., None]) + t[..., None]
    name = ("none", "silu")[activation] if isinstance(activation, int) else activation
    Y = _activated(name, z, activation_alpha).reshape(x.shape)
    return {"Y": np.moveaxis(Y, 1, -1) if channels_last else Y, "mean": mean, "inv_std": inv_std}


def _onnx_group_norm(
    X: Array, scale: Array | None = None, bias: Array | None = None, *, num_groups: int, **more: Any
) -> Gradients:
    return _group_norm_forward(X, scale, bias, groups=num_groups, **more)


def _instance_norm(input: Array, scale: Array, B: Array, **more: Any) -> Gradients:  # noqa: A002  the contract's name
    found = _group_norm_forward(input, scale, B, groups=max(1, len(scale)), **more)
    shape = input.shape[:2]
    return {"output": found["Y"], **{name: found[name].reshape(shape) for name in ("mean", "inv_std")}}


def _com_group_norm(X: Array, gamma: Array, beta: Array, *, channels_last: int = 1, **more: Any) -> Gradients:
    return _group_norm_forward(X, gamma, beta, channels_last=channels_last, **more)


def _skip_group_norm(
    X: Array,
    gamma: Array,
    beta: Array,
    skip: Array,
    bias: Array | None = None,
    *,
    channels_last: int = 1,
    rounded: Callable[[Array], Array] = lambda total: total,
    **more: Any,
) -> Gradients:
    whole = skip.shape == X.shape
    lined = X if channels_last else np.moveaxis(X, 1, -1)
    added = skip if channels_last or not whole else np.moveaxis(skip, 1, -1)
    added = added if whole else skip.reshape(len(X), *[1] * (X.ndim - 2), -1)
    total = lined + added + (0.0 if bias is None else bias)
    S = rounded(total if channels_last else np.moveaxis(total, -1, 1))
    return {"S": S, **_group_norm_forward(S, gamma, beta, channels_last=channels_last, **more)}


def _bias_gelu(dY: Array, X: Array, B: Array) -> Gradients:
    return _through_gelu(dY, _gelu_slope(X + B))


def _bias_fast_gelu(dY: Array, X: Array, B: Array) -> Gradients:
    return _through_gelu(dY, _fast_gelu_slope(X + B))


def _gelu_slope(z: Array) -> Array:
    z = _saturated(z)
    return ndtr(z) + z * np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)


def _fast_gelu_slope(z: Array) -> Array:
    z = _saturated(z)
    c, a = 0.7978845608028654, 0.044715
    u = 2 * c * (z + a * z**3)
    # (1 + tanh(u / 2)) / 2 = expit(u), and 1 - tanh(u / 2)^2 = 4 expit(u) expit(-u): without cancellation
    return expit(u) + 2 * z * c * expit(u) * expit(-u) * (1 + 3 * a * z**2)


def _activation(
    dY: Array, X: Array | None = None, Y: Array | None = None, *, slope: Slope, **numbers: Any
) -> Gradients:
    """slope, a function of X or of the output Y."""
    seen = Y if X is None else X
    assert seen is not None
    return {"dX": dY * slope(seen, **numbers)}


def _rotary(
    data: str,
    result: str,
    *,
    cos_cache: Array,
    sin_cache: Array,
    position_ids: Array | None = None,
    interleaved: int = 0,
    rotary_embedding_dim: int = 0,
    **given: Array,
) -> Gradients:
    """Pairs as complex numbers, which the angle turns; the gradient turns them back."""
    X, turn = given[data], cos_cache + 1j * (sin_cache if result == "Y" else -sin_cache)
    if position_ids is not None:
        turn = turn[position_ids.astype(int)]
    half = turn.shape[-1]
    pairs = X[..., : 2 * half].reshape(*X.shape[:-1], *((half, 2) if interleaved else (2, half)))
    axis = -1 if interleaved else -2
    turned = (pairs.take(0, axis) + 1j * pairs.take(1, axis)) * turn[:, None]
    whole = np.stack([turned.real, turned.imag], axis).reshape(*X.shape[:-1], 2 * half)
    return {result: np.concatenate([whole, X[..., 2 * half :]], -1)}


def _quick_gelu_slope(x: Array, alpha: float = 1.702) -> Array:
    return expit(alpha * x) * (1 + alpha * x * expit(-alpha * x))


def _relu(dY: Array, X: Array) -> Gradients:
    return {"dX": np.where(X > 0, dY, 0.0)}


def _leaky_relu_slope(y: Array, alpha: float = 0.01) -> Array:
    return np.where(y > 0, 1.0, alpha)


def _bits(mask: Array, like: Array) -> Array:
    """The elements of a mask in words of 32 bits."""
    every = np.unpackbits(mask.astype("<u4").view(np.uint8), bitorder="little")
    return every[: like.size].reshape(like.shape).astype(np.float64)


def _dropout(
    dy: Array, mask: Array, *, ratio: float = 0.5, training_mode: bool = True, bits: bool = False
) -> Gradients:
    kept = _bits(mask, dy) if bits else mask
    return {"dx": np.where(kept, dy / (1 - ratio if training_mode else 1), 0.0)}


def _fake_quant(dY: Array, gradient_mask: Array) -> Gradients:
    return {"dX": np.where(gradient_mask, dY, 0.0)}


def _softmax_dropout(dy: Array, mask: Array, softmax_y: Array, *, axis: int, ratio: float = 0.5) -> Gradients:
    found = _softmax(_dropout(dy, mask, ratio=ratio)["dx"], softmax_y, over=_over_axes, axis=axis)
    return {"dx": found["dX"]}


def _pad_and_unflatten(*, indices: Array, unflatten_dims: Sequence[int], **given: Array) -> Gradients:
    rows = given["input"]
    output = np.zeros((math.prod(unflatten_dims), *rows.shape[1:]))
    np.add.at(output, indices.astype(np.int64), rows)
    return {"output": output.reshape(*unflatten_dims, *rows.shape[1:])}


def _flatten_and_unpad(*, indices: Array, **given: Array) -> Gradients:
    data = given["input"]
    return {"output": data.reshape(-1, *data.shape[2:])[indices.astype(np.int64)]}


def _unbroadcast(values: Array, shape: tuple[int, ...]) -> Array:
    values = values.sum(tuple(range(values.ndim - len(shape))))
    return values.sum(tuple(n for n, size in enumerate(shape) if size == 1), keepdims=True).reshape(shape)


def _division(dY: Array, A: Array, B: Array) -> Gradients:
    return {"dA": _unbroadcast(dY / B, A.shape), "dB": _unbroadcast(-dY * A / B**2, B.shape)}


def _norm(*, Y_type: str | None = None, **X: Array) -> Gradients:
    return {"Y": np.asarray(np.linalg.norm(np.concatenate([each.ravel() for each in X.values()])), np.float64)}


def _mixed_precision_scale(*, S: Array, to: str | None = None, fuse_outputs: int = 0, **X: Array) -> Gradients:
    if fuse_outputs:
        return {"Y": np.concatenate([each.ravel() for each in X.values()]) * S}
    return {name.replace("X", "Y"): each * S for name, each in X.items()}


def _scaled_sum(*, scale_0: float, scale_1: float, scale_2: float = 0.0, **inputs: Array) -> Gradients:
    scales = {"input_0": scale_0, "input_1": scale_1, "input_2": scale_2}
    return {"output": np.add.reduce([scales[name] * each for name, each in inputs.items()])}


def _batch_scale(**given: Any) -> Gradients:
    data = given.pop("input")
    return {name.replace("scale", "output"): each * data for name, each in given.items()}


def _scale(*, scale: Array, scale_down: int = 0, **given: Array) -> Gradients:
    return {"output": given["input"] / scale if scale_down else given["input"] * scale}


def _gated(A: Array, B: Array, dY: Array | None = None, *, approximate: str | None = None) -> Gradients:
    """Of SwiGLU where there is no kind of GELU."""
    if approximate is None:
        value, slope = A * expit(A), _quick_gelu_slope(A, 1.0)
    elif approximate == "none":
        value, slope = A * ndtr(A), _gelu_slope(A)
    else:
        value, slope = A * expit(2 * 0.7978845608028654 * (A + 0.044715 * A**3)), _fast_gelu_slope(A)
    return {"Y": value * B} if dY is None else {"dA": dY * B * slope, "dB": dY * value, "Y": value * B}


def _geglu(approximate: str = "none", **arrays: Array) -> Gradients:
    return _gated(**arrays, approximate=approximate)


def _saturated(z: Array) -> Array:
    """Beyond 50 both slopes are 0 or 1 to the last bit (exp(-50^2 / 2) is 0) and z^3 may overflow. NaN stays NaN."""
    return np.clip(z, -50, 50)


def _through_gelu(dY: Array, slope: Array) -> Gradients:
    dX = dY * slope
    return {"dX": dX, "dB": dX.sum(tuple(range(dX.ndim - 1)))}


def _conv(
    dY: Array,
    X: Array,
    W: Array,
    *,
    kernel_shape: Sequence[int] | None = None,  # W's own
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
) -> Gradients:
    N, _, *spatial = X.shape
    M, C_per_group, *kernel = W.shape
    out = dY.shape[2:]
    ranks = len(kernel)
    strides, dilations = strides or [1] * ranks, dilations or [1] * ranks
    pads = conv_pads(spatial, kernel, strides, dilations, pads, auto_pad)

    ends = [max(end, 0) for end in pads[ranks:]]  # fewer than none: positions behind all windows
    padded = np.pad(X, [(0, 0), (0, 0), *zip(pads[:ranks], ends, strict=True)])
    image = padded.reshape(N, group, C_per_group, *padded.shape[2:])
    weights = W.reshape(group, M // group, C_per_group, *kernel)
    upstream = dY.reshape(N, group, M // group, math.prod(out))
    d_image, d_weights = np.zeros_like(image), np.zeros_like(weights)
    for tap, seen in taps(kernel, out, strides, dilations):
        met = image[(..., *seen)]  # (N, group, C_per_group, out...): what this tap saw
        columns = met.reshape(N, group, C_per_group, math.prod(out))
        d_weights[(..., *tap)] = (upstream @ columns.swapaxes(2, 3)).sum(0)
        d_image[(..., *seen)] += (weights[(..., *tap)].swapaxes(1, 2) @ upstream).reshape(met.shape)

    inside = tuple(slice(begin, begin + size) for begin, size in zip(pads[:ranks], spatial, strict=True))
    return {
        "dX": d_image.reshape(padded.shape)[(..., *inside)],
        "dW": d_weights.reshape(W.shape),
        "dB": dY.sum((0, *range(2, dY.ndim))),
    }


def _conv_forward(X: Array, W: Array, B: Array | None = None, **attributes: Any) -> Gradients:
    return {"Y": conv(X, W, B, **attributes)}


def _conv_transpose(
    dY: Array, X: Array, W: Array, *, strides: Any = None, dilations: Any = None, group: int = 1, **more: Any
) -> Gradients:
    spatial, kernel = X.shape[2:], W.shape[2:]
    strides, dilations = strides or [1] * len(kernel), dilations or [1] * len(kernel)
    whole, inside, out = transposed_frame(spatial, kernel, strides, dilations, **more)
    frame = np.zeros((len(X), group, W.shape[1], *whole))
    frame[(..., *inside)] = dY.reshape(len(X), group, W.shape[1], *out)
    image, weights = X.reshape(len(X), group, -1, *spatial), W.reshape(group, -1, *W.shape[1:])
    d_image, d_weights = np.zeros_like(image), np.zeros_like(weights)
    for tap, seen in taps(kernel, spatial, strides, dilations):
        met = frame[(..., *seen)]  # what this tap has written
        d_image += np.einsum("ngm...,gcm->ngc...", met, weights[(..., *tap)])
        d_weights[(..., *tap)] = np.einsum(
            "ngmi,ngci->gcm", met.reshape(*met.shape[:3], -1), image.reshape(*image.shape[:3], -1)
        )
    return {"dX": d_image.reshape(X.shape), "dW": d_weights.reshape(W.shape), "dB": dY.sum((0, *range(2, dY.ndim)))}


def _conv_transpose_forward(X: Array, W: Array, B: Array | None = None, **attributes: Any) -> Gradients:
    return {"Y": conv_transpose(X, W, B, **attributes)}


def _softmax(
    dY: Array,
    Y: Array,
    *,
    axis: int = 1,
    over: Callable[[Array, int], Array],
    dX_type: str | None = None,  # a rounding, which has no place here
) -> Gradients:
    return {"dX": Y * (dY - over(dY * Y, axis))}


def _log_softmax(
    dY: Array, X: Array, *, axis: int = 1, over: Callable[[Array, int], Array], dX_type: str | None = None
) -> Gradients:
    """X is the forward pass's output."""
    return {"dX": dY - np.exp(X) * over(dY, axis)}


def _over_axis(array: Array, axis: int) -> Array:
    return array.sum(axis, keepdims=True)


def _over_axes(array: Array, axis: int) -> Array:
    """Over this axis and all behind it."""
    return array.sum(tuple(range(axis % array.ndim, array.ndim)), keepdims=True)


def _last(array: Array, axis: int) -> Array:
    return np.moveaxis(array, axis, -1)


def _log_probabilities(z: Array) -> Array:
    """Of the last axis."""
    with np.errstate(invalid="ignore"):
        shifted = z - z.max(-1, keepdims=True, initial=-np.inf)
        return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def _labels(
    labels: Array, classes: int, ignore_index: int | None, weights: Array | None
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """One-hot rows; each row's weight, 0 where its label does not count; which rows count."""
    counted = labels != (np.inf if ignore_index is None else ignore_index)
    index = np.where(counted, labels, 0).astype(np.int64)
    of_class = np.ones(classes) if weights is None else weights
    one_hot = np.equal(index[..., None], np.arange(classes)).astype(np.float64)
    return one_hot, np.where(counted, of_class[index] if classes else 0.0, 0.0), counted


def _reduced(losses: Array, reduction: str, norm: float) -> Array:
    if reduction == "none":
        return losses
    return np.asarray(losses.sum() / (norm if reduction == "mean" else 1.0))


def _loss(
    scores: Array,
    labels: Array,
    weights: Array | None = None,
    *,
    reduction: str = "mean",
    ignore_index: int | None = None,
    axis: int = 1,
    row_weights: Array | None = None,
    names: tuple[str, str] = ("output", "log_prob"),
    output_type: str | None = None,  # a rounding, which has no place here
) -> Gradients:
    log_prob = _log_probabilities(_last(scores, axis))
    one_hot, s, counted = _labels(labels, scores.shape[axis], ignore_index, weights)
    s = s if row_weights is None else row_weights
    losses = np.where(counted, -np.where(one_hot > 0, log_prob, 0.0).sum(-1) * s, 0.0)
    if scores.shape[axis] == 0:
        losses = np.zeros(labels.shape)
    norm = s.sum() if counted.any() and s.size and scores.shape[axis] else 1.0
    return {names[0]: _reduced(losses, reduction, norm), names[1]: np.moveaxis(log_prob, -1, axis)}


def _loss_grad(
    dY: Array,
    log_prob: Array,
    label: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    *,
    reduction: str = "mean",
    ignore_index: int | None = None,
    axis: int = 1,
    row_weights: Array | None = None,
    output_type: str | None = None,
) -> Gradients:
    one_hot, s, _ = _labels(label, log_prob.shape[axis], ignore_index, weight)
    s = s if row_weights is None else row_weights
    norm = s.sum() if reduction == "mean" else 1.0
    factor = dY * s / norm if norm else np.zeros(s.shape)
    counts = (s != 0)[..., None]
    slope = np.where(counts, factor[..., None] * (np.exp(_last(log_prob, axis)) - one_hot), 0.0)
    dX = np.moveaxis(slope, -1, axis)
    return {"d_logits": dX if bias is None else dX + bias}


def _sparse_loss(logits: Array, label: Array, weight: Array | None = None, *, reduction: str = "mean") -> Gradients:
    return _loss(logits, label, reduction=reduction, axis=-1, row_weights=weight, names=("Y", "log_prob"))


def _sparse_loss_grad(
    dY: Array, log_prob: Array, label: Array, weight: Array | None = None, *, reduction: str = "mean"
) -> Gradients:
    return _loss_grad(dY, log_prob, label, reduction=reduction, axis=-1, row_weights=weight)


def _dense_loss(logits: Array, label: Array, *, reduction: str = "mean") -> Gradients:
    log_prob = _log_probabilities(logits)
    losses = -(label * log_prob).sum(-1)
    return {"Y": _reduced(losses, reduction, max(1, losses.size)), "log_prob": log_prob}


def _dense_loss_grad(dY: Array, log_prob: Array, label: Array, *, reduction: str = "mean") -> Gradients:
    factor = dY / (max(1, math.prod(log_prob.shape[:-1])) if reduction == "mean" else 1.0)
    return {"d_logits": factor[..., None] * (np.exp(log_prob) - label)}


def _cross_entropy(
    X: Array,
    labels: Array | None = None,
    weight: Array | None = None,
    probabilities: Array | None = None,
    dY: Array | None = None,
    *,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float = 0.0,
    capped: int = 0,
    empty: str = "zero",
) -> Gradients:
    """By the target's distribution: t of each class, of weight w t in the loss."""
    x = _last(X, 1)
    z = softcap * np.tanh(x / softcap) if softcap and not capped else x
    classes = z.shape[-1]
    w = np.ones(classes) if weight is None else weight
    log_prob = _log_probabilities(z)
    L = (z - log_prob)[..., 0] if classes else np.zeros(z.shape[:-1])
    if labels is None:
        assert probabilities is not None
        target, counted, s = _last(probabilities, 1), np.full(L.shape, True), np.ones(L.shape)
    else:
        target, s, counted = _labels(labels, classes, ignore_index, weight)
    t = ((1 - label_smoothing) * target + label_smoothing / max(1, classes)) * w
    losses = np.where(counted, -np.where(t == 0, 0.0, t * log_prob).sum(-1) + z_loss * L**2, 0.0)
    norm = s.sum() if reduction == "mean" else 1.0
    p = np.exp(log_prob)
    total = t.sum(-1, keepdims=True)
    slope = p * total - t + 2 * z_loss * L[..., None] * p
    if softcap:
        slope = slope * (1 - (z / softcap) ** 2)
    upstream = np.ones(()) if dY is None else dY
    factor = np.broadcast_to(upstream / norm if norm else 0.0, L.shape)
    dX = np.moveaxis(np.where(counted[..., None], factor[..., None] * slope, 0.0), -1, 1)
    nothing = {"zero": 0.0, "nan": np.nan}[empty]
    loss = np.asarray(nothing) if reduction == "mean" and not counted.any() else _reduced(losses, reduction, norm)
    entropy = -np.where(p == 0, 0.0, p * log_prob).sum(-1)
    if not classes:
        loss, losses = np.zeros(np.shape(loss)), np.zeros(losses.shape)
    return {"loss": loss, "dX": dX, "row_loss": losses, "entropy": entropy}


def _linear_cross_entropy(
    X: Array,
    W: Array,
    labels: Array,
    B: Array | None = None,
    weight: Array | None = None,
    dY: Array | None = None,
    *,
    rounded: Callable[[Array], Array] = lambda total: total,
    logits_bytes: int = 0,  # of a part: it changes no result
    **attributes: Any,
) -> Gradients:
    Z = rounded(X @ W.T) + (0.0 if B is None else B)
    found = _cross_entropy(Z, labels, weight, dY=dY, **attributes)
    dZ = rounded(found["dX"])
    return {"loss": found["loss"], "dX": dZ @ W, "dW": dZ.T @ X, "dB": dZ.sum(0)}


# --- pools and resizing ----------------------------------------------------------------------------------------------


def _max_pool(X: Array, *, local: bool = False, index_base: str = "tensor", **windows: Any) -> Gradients:
    out, taps_of = pool_taps(X.shape[2:], **windows)
    Y, Indices = np.full((*X.shape[:2], *out), -np.inf), np.full((*X.shape[:2], *out), -1.0)
    planes = X.reshape(*X.shape[:2], -1)
    for o, elements in taps_of:
        for tap, i in elements:
            x, at = planes[:, :, i], (slice(None), slice(None), *o)
            more = (x > Y[at]) | (Indices[at] < 0) | (np.isnan(x) & ~np.isnan(Y[at]))
            Y[at], Indices[at] = np.where(more, x, Y[at]), np.where(more, tap if local else i, Indices[at])
    if not local and index_base == "tensor":
        Indices += np.arange(planes[..., 0].size).reshape(*X.shape[:2], *[1] * len(out)) * planes.shape[2]
    return {"Y": Y, "Indices": Indices}


def _max_pool_grad(
    dY: Array,
    Indices: Array,
    *,
    local: bool,
    input_size: Sequence[int],
    index_base: str = "tensor",
    **windows: Any,
) -> Gradients:
    _, taps_of = pool_taps(input_size, **windows)
    size = math.prod(input_size)
    dX, found = np.zeros((*dY.shape[:2], size)), Indices.copy()
    if not local and index_base == "tensor":
        found %= size
    for o, elements in taps_of:
        at = (slice(None), slice(None), *o)
        for tap, i in elements:
            dX[:, :, i] += np.where(found[at] == (tap if local else i), dY[at], 0)
    return {"dX": dX.reshape(*dY.shape[:2], *input_size)}


def _average_pool_grad(dY: Array, *, input_size: Sequence[int], **windows: Any) -> Gradients:
    """Each dY over its divisor to the elements of its window."""
    count_padding, divisor = windows.pop("count_include_pad", 0), windows.pop("divisor_override", None)
    _, taps_of = pool_taps(input_size, **windows)
    _, all_taps = pool_taps(input_size, padded=True, **windows)
    dX = np.zeros((*dY.shape[:2], math.prod(input_size)))
    for (o, elements), (_, padded) in zip(taps_of, all_taps, strict=True):
        count = divisor or len(padded if count_padding else elements)
        for _, i in elements:
            dX[:, :, i] += dY[(slice(None), slice(None), *o)] / count
    return {"dX": dX.reshape(*dY.shape[:2], *input_size)}


def _dml_windows(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The windows of DirectML's pools, as ONNX has them."""
    found = {"kernel_shape": attributes["WindowSize"], "strides": attributes["Strides"]}
    found["pads"] = [*attributes["StartPadding"], *attributes["EndPadding"]]
    return found | ({"dilations": attributes["Dilations"]} if "Dilations" in attributes else {})


def _dml_average_pool(InputGradient: Array, *, OutputSizes: Any, IncludePadding: int = 0, **more: Any) -> Gradients:
    windows = {**_dml_windows(more), "count_include_pad": IncludePadding}
    return {"OutputGradient": _average_pool_grad(InputGradient, input_size=OutputSizes, **windows)["dX"]}


def _dml_max_pool(Input: Array, InputGradient: Array, **attributes: Any) -> Gradients:
    windows = _dml_windows(attributes)
    indices = _max_pool(Input, index_base="plane", **windows)["Indices"]
    how: dict[str, Any] = {"local": False, "index_base": "plane", "input_size": Input.shape[2:]}
    return {"OutputGradient": _max_pool_grad(InputGradient, indices, **how, **windows)["dX"]}


def _along_axes(dY: Array, input_size: Sequence[int], matrix: Callable[..., Array]) -> Gradients:
    """matrix(axis, inputs, outputs) of each axis, whose transposed products are the gradient."""
    dX = dY
    for axis, size in enumerate(input_size):
        rows = matrix(axis, size, dY.shape[2 + axis])
        terms = np.where(rows != 0, np.moveaxis(dX, 2 + axis, -1)[..., None] * rows, 0)  # 0 of an infinity is no term
        dX = np.moveaxis(terms.sum(-2), -1, 2 + axis)
    return {"dX": dX}


def _resample(
    InputGradient: Array,
    *,
    OutputSizes: Sequence[int],
    InterpolationMode: str,
    Scales: Sequence[float],
    InputPixelOffsets: Sequence[float],
    OutputPixelOffsets: Sequence[float],
    RoundingDirection: str | None = None,
) -> Gradients:
    offsets = list(zip(Scales, InputPixelOffsets, OutputPixelOffsets, strict=True))[2:]

    def matrix(axis: int, size: int, outputs: int) -> Array:
        return resample_matrix(size, outputs, InterpolationMode, RoundingDirection, *offsets[axis])

    return {"OutputGradient": _along_axes(InputGradient, OutputSizes[2:], matrix)["dX"]}


def _adaptive_pool_grad(dY: Array, *, input_size: Sequence[int]) -> Gradients:
    return _along_axes(dY, input_size, lambda _, size, outputs: adaptive_matrix(size, outputs))


def _resize_grad(dY: Array, X: Array | None = None, *, input_size: Sequence[int], **attributes: Any) -> Gradients:
    return _along_axes(dY, input_size, lambda axis, size, outputs: resize_matrix(axis, size, outputs, **attributes))


def _gather(
    indices: Array,
    dY: Array,
    accumulator: Array | None = None,
    *,
    shape: Sequence[int],
    axis: int = 0,
    padding_idx: int | None = None,
) -> Gradients:
    before = np.zeros(shape) if accumulator is None else accumulator
    dX, rows = before.copy(), list[Any]([slice(None)] * (axis % len(shape)))
    at: Any = (*rows, indices.astype(int))
    np.add.at(dX, at, dY)
    if padding_idx is not None:
        dX[(*rows, padding_idx)] = before[(*rows, padding_idx)]
    return {"dX": dX}


def _gather_elements(dY: Array, indices: Array, *, shape: Sequence[int], axis: int = 0) -> Gradients:
    dX, places = np.zeros(shape), list[Any](np.indices(indices.shape))
    places[axis] = indices.astype(int)
    np.add.at(dX, tuple(places), dY)
    return {"dX": dX}


def _gather_nd(indices: Array, update: Array, *, shape: Sequence[int], batch_dims: int = 0) -> Gradients:
    output, batch = np.zeros(shape), np.indices(indices.shape[:-1])[:batch_dims]
    np.add.at(output, (*batch, *np.moveaxis(indices.astype(int), -1, 0)), update)
    return {"output": output}


def _slice(
    dY: Array,
    *,
    shape: Sequence[int],
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Gradients:
    dX, cut = np.zeros(shape), [slice(None)] * len(shape)
    for n, axis in enumerate(range(len(starts)) if axes is None else axes):
        cut[axis] = slice(starts[n], ends[n], steps[n] if steps else 1)
    dX[tuple(cut)] = dY
    return {"dX": dX}


FORMULAS: dict[str, Callable[..., Gradients]] = {
    "DmlAveragePoolingGrad": _dml_average_pool,
    "DmlMaxPoolingGrad": _dml_max_pool,
    "DmlResampleGrad": _resample,
    "DmlResampleGrad1": _resample,
    "MaxPool": _max_pool,
    "MaxPoolGrad": _max_pool_grad,
    "AveragePoolGrad": _average_pool_grad,
    "GlobalAveragePoolGrad": _adaptive_pool_grad,
    "AdaptiveAveragePoolGrad": _adaptive_pool_grad,
    "ResizeGrad": _resize_grad,
    "GatherGrad": _gather,
    "GatherElementsGrad": _gather_elements,
    "GatherNDGrad": _gather_nd,
    "SliceGrad": _slice,
    "LinearCrossEntropy": _linear_cross_entropy,
    "SoftmaxCrossEntropyLoss": _loss,
    "SoftmaxCrossEntropyLossInternal": _loss,
    "SoftmaxCrossEntropyLossGrad": _loss_grad,
    "SoftmaxCrossEntropyLossInternalGrad": _loss_grad,
    "SparseSoftmaxCrossEntropy": _sparse_loss,
    "SparseSoftmaxCrossEntropyGrad": _sparse_loss_grad,
    "SoftmaxCrossEntropy": _dense_loss,
    "SoftmaxCrossEntropyGrad": _dense_loss_grad,
    "CrossEntropy": _cross_entropy,
    "BiasGelu": _bias_gelu_forward,
    "BiasFastGelu": _bias_fast_gelu_forward,
    "BatchNormalization": _batch_norm_forward,
    "LayerNormalization": _layer_norm_forward,
    "SimplifiedLayerNormalization": _rms_norm_forward,
    "SkipLayerNormalization": _skip_layer_norm,
    "SkipSimplifiedLayerNormalization": _skip_rms_norm,
    "BatchNormalizationGrad": _batch_norm,
    "BatchNormalizationGradSums": _batch_norm_sums,
    "BatchNormalizationGradFromSums": _batch_norm_from_sums,
    "BatchNormalizationMergeStatistics": _merge_statistics,
    "BatchNormalizationStatistics": _part_statistics,
    "BatchNormalizationFromStatistics": _batch_norm_from_statistics,
    "LayerNormalizationGrad": _layer_norm,
    "SimplifiedLayerNormalizationGrad": _rms_norm,
    "InvertibleLayerNormalizationGrad": _invertible_layer_norm,
    "Conv": _conv_forward,
    "ConvGrad": _conv,
    "ConvTranspose": _conv_transpose_forward,
    "ConvTransposeGrad": _conv_transpose,
    "BiasGeluGrad_dX": _bias_gelu,
    "BiasFastGeluGrad_dX": _bias_fast_gelu,
    "DmlBatchNormalizationGrad": _dml_batch_norm,
    "DmlBatchNormalizationTrainingGrad": _dml_batch_norm_training,
    "DmlActivationReluGrad": _dml_relu,
    "DmlElementWiseClipGrad": _dml_clip,
    "DmlElementWiseClipGrad1": _dml_clip,
    "DmlSliceGrad": _dml_slice,
    "DmlLocalResponseNormalizationGrad": _local_response_norm,
    "DmlRoiAlignGrad": _roi_align,
    "SoftmaxGrad": partial(_softmax, over=_over_axes),
    "SoftmaxGrad_13": partial(_softmax, over=_over_axis, axis=-1),
    "LogSoftmaxGrad": partial(_log_softmax, over=_over_axes),
    "LogSoftmaxGrad_13": partial(_log_softmax, over=_over_axis, axis=-1),
    "GeluGrad": partial(_activation, slope=_gelu_slope),
    "FastGeluGrad": partial(_activation, slope=_fast_gelu_slope),
    "QuickGeluGrad": partial(_activation, slope=_quick_gelu_slope),
    "ReluGrad": _relu,
    "LeakyReluGrad": partial(_activation, slope=_leaky_relu_slope),
    "SigmoidGrad": partial(_activation, slope=lambda y: y * (1 - y)),
    "TanhGrad": partial(_activation, slope=lambda y: 1 - y**2),
    "PadAndUnflatten": _pad_and_unflatten,
    "FlattenAndUnpad": _flatten_and_unpad,
    "IsFinite": lambda X: {"Y": np.isfinite(X)},
    "IsAllFinite": lambda **given: {"output": np.asarray(all(np.isfinite(each).all() for each in given.values()))},
    "ReduceAllL2": _norm,
    "DivGrad": _division,
    "ScaledSum": _scaled_sum,
    "BatchScale": _batch_scale,
    "Scale": _scale,
    "MixedPrecisionScale": _mixed_precision_scale,
    **dict.fromkeys(("SwiGLU", "SwiGLUGrad"), _gated),
    **dict.fromkeys(("GeGLU", "GeGLUGrad"), _geglu),
    "DropoutGrad": _dropout,
    "BitmaskDropoutGrad": partial(_dropout, bits=True),
    "FakeQuantGrad": _fake_quant,
    "SoftmaxDropoutGrad": _softmax_dropout,
    "RotaryEmbedding": partial(_rotary, "X", "Y"),
    "RotaryEmbeddingGrad": partial(_rotary, "dY", "dX"),
    "GroupNorm": _com_group_norm,
    "SkipGroupNorm": _skip_group_norm,
    "GroupNormalization": _onnx_group_norm,
    "InstanceNormalization": _instance_norm,
    "GroupNormGrad": _group_norm,
}


def directional_difference(
    function: Callable[[Array], float], array: Array, direction: Array, step: float = 1e-3
) -> float:
    """d function(array + t direction) / dt at t = 0, by the five-point central difference: its error is step^4."""
    near = function(array + step * direction) - function(array - step * direction)
    far = function(array + 2 * step * direction) - function(array - 2 * step * direction)
    return (8 * near - far) / (12 * step)


def central_differences(function: Callable[[Array], float], array: Array) -> Array:
    """The gradient of `function` at `array`, one element after the other."""
    directions = np.eye(array.size).reshape(array.size, *array.shape)
    return np.array([directional_difference(function, array, each) for each in directions]).reshape(array.shape)
