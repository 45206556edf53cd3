"""The forward passes whose gradients gradkern computes, in float64 and the fewest words: the origin of every proof.

Sources: the ONNX operators Conv, Gelu, Softmax, LayerNormalization and BatchNormalization (training mode), ONNX
Runtime's BiasGelu, FastGelu and SimplifiedLayerNormalization, and DirectML's DML_OPERATOR_BATCH_NORMALIZATION.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

__all__ = [
    "Array",
    "activated",
    "batch_norm",
    "bias_fast_gelu",
    "bias_gelu",
    "conv",
    "conv_pads",
    "dml_batch_norm",
    "group_norm",
    "layer_norm",
    "moments",
    "rms_norm",
    "softmax",
    "taps",
]

Array = NDArray[np.float64]


def moments(X: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Mean and biased variance over `axes`, kept as axes of size 1."""
    mean = X.mean(axes, keepdims=True)
    return mean, ((X - mean) ** 2).mean(axes, keepdims=True)


def layer_norm(X: Array, scale: Array, bias: Array, axis: int, epsilon: float) -> Array:
    mean, variance = moments(X, tuple(range(axis % X.ndim, X.ndim)))
    return (X - mean) / np.sqrt(variance + epsilon) * scale + bias


def rms_norm(X: Array, scale: Array, axis: int, epsilon: float) -> Array:
    mean_square = (X**2).mean(tuple(range(axis % X.ndim, X.ndim)), keepdims=True)
    return X / np.sqrt(mean_square + epsilon) * scale


def batch_norm(X: Array, Scale: Array, Bias: Array, epsilon: float) -> Array:
    """X is (N, C, spatial...); Scale and Bias are (C)."""
    mean, variance = moments(X, (0, *range(2, X.ndim)))
    channels = (-1,) + (1,) * (X.ndim - 2)
    return (X - mean) / np.sqrt(variance + epsilon) * Scale.reshape(channels) + Bias.reshape(channels)


def group_norm(X: Array, gamma: Array, beta: Array, groups: int, epsilon: float) -> Array:
    """X is (N, C, spatial...); gamma and beta are (C), or (N, C)."""
    grouped = X.reshape(len(X), groups, -1)
    mean, variance = moments(grouped, (2,))
    Y = ((grouped - mean) / np.sqrt(variance + epsilon)).reshape(X.shape)
    ones = [1] * (X.ndim - 2)
    return Y * gamma.reshape(-1, X.shape[1], *ones) + beta.reshape(-1, X.shape[1], *ones)


def activated(t: Array, activation: str, alpha: float = 0.01) -> Array:
    match activation:
        case "relu":
            return np.maximum(t, 0)
        case "leaky_relu":
            return np.maximum(t, 0) + alpha * np.minimum(t, 0)
        case "silu":
            return t / (1 + np.exp(-t))
        case "gelu":
            return t * ndtr(t)
    return t


def dml_batch_norm(Input: Array, Mean: Array, Variance: Array, Scale: Array, Bias: Array, Epsilon: float) -> Array:
    """The statistics are given: constants, whatever Input is."""
    return (Input - Mean) / np.sqrt(Variance + Epsilon) * Scale + Bias


def softmax(X: Array, axes: tuple[int, ...]) -> Array:
    e = np.exp(X - X.max(axes, keepdims=True))
    return e / e.sum(axes, keepdims=True)


def bias_gelu(X: Array, B: Array) -> Array:
    z = X + B
    return z * ndtr(z)


def bias_fast_gelu(X: Array, B: Array) -> Array:
    z = X + B
    return 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))


def conv(
    X: Array,
    W: Array,
    B: Array | None = None,
    *,
    kernel_shape: Sequence[int] | None = None,  # W's own
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    auto_pad: str = "NOTSET",
) -> Array:
    """ONNX Conv: X (N, C, spatial...), W (M, C/group, kernel...), B (M) -> (N, M, out...)."""
    kernel = W.shape[2:]
    strides, dilations = strides or [1] * len(kernel), dilations or [1] * len(kernel)
    pads = conv_pads(X.shape[2:], kernel, strides, dilations, pads, auto_pad)
    padded = np.pad(X, [(0, 0), (0, 0), *zip(pads[: len(kernel)], pads[len(kernel) :], strict=True)])
    out = [
        (size - (taps_ - 1) * dilation - 1) // stride + 1
        for size, taps_, dilation, stride in zip(padded.shape[2:], kernel, dilations, strides, strict=True)
    ]
    grouped = padded.reshape(len(X), group, X.shape[1] // group, *padded.shape[2:])
    weights = W.reshape(group, len(W) // group, *W.shape[1:])
    Y = np.zeros((len(X), group, len(W) // group, *out))
    for tap, seen in taps(kernel, out, strides, dilations):
        Y += np.einsum("ngc...,gmc->ngm...", grouped[(..., *seen)], weights[(..., *tap)])
    Y = Y.reshape(len(X), len(W), *out)
    return Y if B is None else Y + B.reshape(-1, *[1] * len(kernel))


def taps(
    kernel: Sequence[int], out: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Each tap of the kernel with the slices of the padded image that it meets, one element for each output."""
    return [
        (
            tap,
            tuple(
                slice(t * dilation, t * dilation + (size - 1) * stride + 1, stride) if size else slice(0)
                for t, dilation, size, stride in zip(tap, dilations, out, strides, strict=True)
            ),
        )
        for tap in product(*map(range, kernel))
    ]


def conv_pads(
    spatial: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int] | None,
    auto_pad: str,
) -> list[int]:
    """ONNX Conv's pads, begins then ends. SAME gives ceil(size / stride) outputs; UPPER puts an odd one at the end."""
    if auto_pad == "NOTSET":
        return list(pads or [0] * 2 * len(kernel))
    if auto_pad == "VALID":
        return [0] * 2 * len(kernel)
    total = [
        max((math.ceil(size / stride) - 1) * stride + (k - 1) * dilation + 1 - size, 0)
        for size, k, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True)
    ]
    less, more = [pad // 2 for pad in total], [pad - pad // 2 for pad in total]
    return less + more if auto_pad == "SAME_UPPER" else more + less
