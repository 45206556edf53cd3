"""The forward passes whose gradients gradkern computes, in float64 and the fewest words: the origin of every proof.

Sources: the ONNX operators Conv, ConvTranspose, Gelu, Softmax, LayerNormalization and BatchNormalization (training
mode), ONNX Runtime's BiasGelu, FastGelu and SimplifiedLayerNormalization, and DirectML's
DML_OPERATOR_BATCH_NORMALIZATION.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

__all__ = [
    "Array",
    "activated",
    "adaptive_matrix",
    "batch_norm",
    "bias_fast_gelu",
    "bias_gelu",
    "conv",
    "conv_pads",
    "conv_transpose",
    "dml_batch_norm",
    "group_norm",
    "layer_norm",
    "moments",
    "pool_taps",
    "resample_matrix",
    "resize_matrix",
    "rms_norm",
    "softmax",
    "taps",
    "transposed_frame",
    "window_sums",
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
    ends = pads[len(kernel) :]  # fewer than none: positions that no output sees
    padded = np.pad(X, [(0, 0), (0, 0), *((a, max(b, 0)) for a, b in zip(pads[: len(kernel)], ends, strict=True))])
    padded = padded[(..., *(slice(size + min(b, 0)) for size, b in zip(padded.shape[2:], ends, strict=True)))]
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


def pool_taps(
    sizes: Sequence[int],
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    padded: bool = False,
) -> tuple[tuple[int, ...], list[tuple[tuple[int, ...], list[tuple[int, int]]]]]:
    """A pool's number of outputs along each axis, and for each output the (number in the window, flat index) of its
    elements inside the input; of those in the padding, too, if padded, whose index means nothing.
    """
    rank = len(sizes)
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    pads = conv_pads(sizes, kernel_shape, strides, dilations, pads, auto_pad)
    out: list[int] = []
    for axis, size in enumerate(sizes):
        room = size + pads[axis] + pads[rank + axis] - (kernel_shape[axis] - 1) * dilations[axis] - 1
        count = (math.ceil if ceil_mode else math.floor)(room / strides[axis]) + 1
        out.append(count - (ceil_mode and (count - 1) * strides[axis] >= size + pads[axis]))
    found: list[tuple[tuple[int, ...], list[tuple[int, int]]]] = []
    for o in product(*map(range, out)):
        elements: list[tuple[int, int]] = []
        for number, tap in enumerate(product(*map(range, kernel_shape))):
            place = [a * s - p + t * d for a, s, p, t, d in zip(o, strides, pads, tap, dilations, strict=False)]
            most = [size + pads[rank + axis] * padded for axis, size in enumerate(sizes)]
            if all((padded or x >= 0) and x < bound for x, bound in zip(place, most, strict=True)):
                flat = sum(x * math.prod(sizes[axis + 1 :]) for axis, x in enumerate(place))
                elements.append((number, flat))
        found.append((o, elements))
    return tuple(out), found


def adaptive_matrix(size: int, outputs: int) -> Array:
    """Of adaptive average pooling along one axis, (outputs, size)."""
    rows = np.zeros((outputs, size))
    for o in range(outputs):
        start, end = o * size // outputs, math.ceil((o + 1) * size / outputs)
        rows[o, start:end] = 1 / (end - start)
    return rows


def resample_matrix(
    size: int, outputs: int, mode: str, rounding: str | None, scale: float, into: float, out: float
) -> Array:
    """Of DirectML's resampling along one axis, (outputs, size): x_out = (x_in + into) * scale + out."""
    rows = np.zeros((outputs, size))
    for o in range(outputs):
        x = (o - out) / scale - into
        f = x - math.floor(x)
        if mode == "LINEAR":
            places = [(math.floor(x), 1 - f), (math.floor(x) + 1, f)]
        else:
            near = {"INCREASING": math.ceil(x), "DECREASING": math.floor(x), None: math.ceil(x - 0.5)}[rounding]
            places = [(near, 1.0)]
        for place, weight in places:
            rows[o, min(max(place, 0), size - 1)] += weight
    return rows


def resize_matrix(
    axis: int,
    size: int,
    outputs: int,
    *,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    antialias: int = 0,
    scales: Sequence[float] | None = None,
    roi: Sequence[float] | None = None,
) -> Array:
    """Of ONNX Resize along one axis, (outputs, size)."""
    scale = scales[2 + axis] if scales else outputs / size
    rows = np.zeros((outputs, size))
    for o in range(outputs):
        outside = False
        match coordinate_transformation_mode:
            case "align_corners":
                x = o * (size - 1) / (outputs - 1) if outputs > 1 else 0.0
            case "asymmetric":
                x = o / scale
            case "tf_half_pixel_for_nn":
                x = (o + 0.5) / scale
            case "pytorch_half_pixel" if outputs == 1:
                x = 0.0
            case "half_pixel_symmetric":
                x = size / 2 * (1 - outputs / (scale * size)) + (o + 0.5) / scale - 0.5
            case "tf_crop_and_resize":
                assert roi is not None
                start, end = roi[2 + axis], roi[len(roi) // 2 + 2 + axis]
                x = (size - 1) * (start + o * (end - start) / (outputs - 1) if outputs > 1 else (start + end) / 2)
                outside = not 0 <= x <= size - 1
            case _:
                x = (o + 0.5) / scale - 0.5
        if mode == "nearest":
            half = x - 0.5 if nearest_mode == "round_prefer_floor" else x + 0.5
            near = {"floor": math.floor(x), "ceil": math.ceil(x), "round_prefer_floor": math.ceil(half)}
            terms = {near.get(nearest_mode, math.floor(half)): 1.0}.items()
        else:
            narrowing = min(scale, 1.0) if antialias else 1.0
            places = range(math.floor(x - 3 / narrowing), math.ceil(x + 3 / narrowing) + 1)
            distances = {i: abs(i - x) * narrowing for i in places}
            filters = {"linear": lambda d: max(1 - d, 0), "lanczos": lambda d: np.sinc(d) * np.sinc(d / 3) * (d < 3)}
            of_distance = filters.get(mode, lambda d: _cubic(d, cubic_coeff_a))
            terms = {i: of_distance(d) for i, d in distances.items()}.items()
        excluded = exclude_outside and (mode == "cubic" or antialias)
        kept = [(i, w) for i, w in terms if not excluded or 0 <= i < size]
        total = sum(w for _, w in kept) if excluded or antialias else 1.0
        for i, w in kept:
            rows[o, min(max(i, 0), size - 1)] += 0.0 if outside else w / total
    return rows


def _cubic(d: float, a: float) -> float:
    return (a + 2) * d**3 - (a + 3) * d**2 + 1 if d <= 1 else a * (d**3 - 5 * d**2 + 8 * d - 4) if d < 2 else 0.0


def conv_transpose(
    X: Array,
    W: Array,
    B: Array | None = None,
    *,
    strides: Any = None,
    dilations: Any = None,
    group: int = 1,
    **more: Any,
) -> Array:
    """ONNX ConvTranspose: X (N, C, spatial...), W (C, M/group, kernel...), B (M) -> (N, M, out...)."""
    spatial, kernel = X.shape[2:], W.shape[2:]
    strides, dilations = strides or [1] * len(kernel), dilations or [1] * len(kernel)
    whole, inside, _ = transposed_frame(spatial, kernel, strides, dilations, **more)
    grouped = X.reshape(len(X), group, -1, *spatial)
    weights = W.reshape(group, -1, *W.shape[1:])
    frame = np.zeros((len(X), group, W.shape[1], *whole))
    for tap, seen in taps(kernel, spatial, strides, dilations):
        frame[(..., *seen)] += np.einsum("ngc...,gcm->ngm...", grouped, weights[(..., *tap)])
    Y = frame[(..., *inside)]
    Y = Y.reshape(len(X), -1, *Y.shape[3:])
    return Y if B is None else Y + B.reshape(-1, *[1] * len(kernel))


def transposed_frame(
    spatial: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    *,
    kernel_shape: Sequence[int] | None = None,  # W's own
    pads: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
) -> tuple[list[int], tuple[slice, ...], list[int]]:
    """Sizes of an array that holds all windows and the output, where the output is in it, and the output's sizes."""
    axes = list(zip(spatial, kernel, strides, dilations, output_padding or [0] * len(kernel), strict=True))
    whole = [(size - 1) * stride + (k - 1) * dilation + 1 + more for size, k, stride, dilation, more in axes]
    if output_shape or auto_pad.startswith("SAME"):
        out = list(output_shape or [size * stride for size, stride in zip(spatial, strides, strict=True)])
        total = [max(size - wanted, 0) for size, wanted in zip(whole, out, strict=True)]
        begins = [pad // 2 if auto_pad == "SAME_UPPER" else pad - pad // 2 for pad in total]
    else:
        pads = pads or [0] * 2 * len(kernel)
        begins = list(pads[: len(kernel)])
        out = [size - begin - end for size, begin, end in zip(whole, begins, pads[len(kernel) :], strict=True)]
    inside = tuple(slice(begin, begin + size) for begin, size in zip(begins, out, strict=True))
    return [max(size, each.stop) for size, each in zip(whole, inside, strict=True)], inside, out


def window_sums(X: Array, axes: tuple[int, ...], size: int, turned: bool = False) -> Array:
    """Of each element the sum over (size - 1) / 2 neighbours on either side along the axes, the odd one behind it; or
    before it, if turned: the sum over the elements in whose windows it is.
    """
    for axis in axes:
        apart = np.subtract.outer(np.arange(X.shape[axis]), np.arange(X.shape[axis]))  # how far each is behind another
        rows = (apart <= (size - 1) // 2) & (apart >= -(size // 2))
        rows = rows.T if turned else rows
        X = np.moveaxis(np.where(rows, np.moveaxis(X, axis, -1)[..., None, :], 0).sum(-1), -1, axis)
    return X
