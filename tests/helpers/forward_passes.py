"""Of every gradient operator the forward pass whose gradients it computes, on given inputs: where finite differences
come from.

A new operator's forward pass has its one place here, as its formula has in `helpers.reference`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from helpers import forward
from helpers.forward import Array

__all__ = ["FORWARD_PASSES", "ForwardPass"]

EPSILON = 0.1  # large, so that no row of few columns bends within the step of a difference
Arrays = dict[str, np.ndarray]  # an operator's inputs by name


@dataclass(frozen=True)
class ForwardPass:
    """All in float64."""

    run: Callable[[Mapping[str, Array]], Array]
    """The output for these parameters."""
    parameters: Mapping[str, Array]
    gradients: Mapping[str, str]
    """The operator's output that is the gradient of a parameter."""
    upstream: Array
    """The gradient of the loss by the output."""


def _exact(array: np.ndarray) -> Array:
    return array.astype(np.float64)


def _store(inputs: Arrays, **values: Array) -> None:
    """Replace inputs by values, in the shapes and types that they had."""
    for name, value in values.items():
        inputs[name] = value.reshape(inputs[name].shape).astype(inputs[name].dtype)


# --- each makes the statistics and results among the inputs those of its forward pass --------------------------------


def _with_every_row(parameters: Mapping[str, Array], axis: int) -> Array:
    """X, to which a residual is added, and something to every row."""
    X = parameters["X"] + parameters["branch"]
    return X + parameters["added"].reshape(X.shape[axis % X.ndim :])


def _layer_norm(inputs: Arrays, *, axis: int = -1) -> ForwardPass:
    X, scale = _exact(inputs["X"]), _exact(inputs["scale"])
    mean, variance = forward.moments(X, tuple(range(axis % X.ndim, X.ndim)))
    _store(inputs, mean=mean, inv_std_dev=1 / np.sqrt(variance + EPSILON))
    return ForwardPass(
        lambda p: forward.layer_norm(_with_every_row(p, axis), p["scale"], p["bias"], axis, EPSILON),
        {
            "X": X,
            "scale": scale,
            "bias": np.zeros(scale.shape),
            "added": np.zeros(scale.shape),
            "branch": np.zeros(X.shape),
        },
        {"X": "X_grad", "scale": "scale_grad", "bias": "bias_grad", "added": "X_grad_sum", "branch": "branch_grad"},
        _exact(inputs["Y_grad"]),
    )


def _rms_norm(inputs: Arrays, *, axis: int = -1) -> ForwardPass:
    X, scale = _exact(inputs["X"]), _exact(inputs["scale"])
    mean_square = (X**2).mean(tuple(range(axis % X.ndim, X.ndim)))
    _store(inputs, inv_std_var=1 / np.sqrt(mean_square + EPSILON))
    return ForwardPass(
        lambda p: forward.rms_norm(_with_every_row(p, axis), p["scale"], axis, EPSILON),
        {"X": X, "scale": scale, "added": np.zeros(scale.shape), "branch": np.zeros(X.shape)},
        {"X": "X_grad", "scale": "scale_grad", "added": "X_grad_sum", "branch": "branch_grad"},
        _exact(inputs["Y_grad"]),
    )


def _invertible_layer_norm(inputs: Arrays, *, axis: int = -1) -> ForwardPass:
    X, scale, bias = (_exact(inputs[name]) for name in ("Y", "scale", "bias"))  # X is as Y was drawn
    _, variance = forward.moments(X, tuple(range(axis % X.ndim, X.ndim)))
    Y = forward.layer_norm(X, scale, bias, axis, EPSILON)
    _store(inputs, Y=Y, inv_std_var=1 / np.sqrt(variance + EPSILON))
    return ForwardPass(
        lambda p: forward.layer_norm(p["X"], p["scale"], p["bias"], axis, EPSILON),
        {"X": X, "scale": scale, "bias": bias},
        {"X": "X_grad", "scale": "scale_grad", "bias": "bias_grad"},
        _exact(inputs["Y_grad"]),
    )


def _batch_norm(inputs: Arrays) -> ForwardPass:
    X, Scale = _exact(inputs["X"]), _exact(inputs["Scale"])
    mean, variance = forward.moments(X, (0, *range(2, X.ndim)))
    _store(inputs, saved_mean=mean, saved_inv_std=1 / np.sqrt(variance + EPSILON))
    return ForwardPass(
        lambda p: forward.batch_norm(p["X"], p["Scale"], p["bias"], EPSILON) + p["residual"],
        {"X": X, "Scale": Scale, "bias": np.zeros(Scale.shape), "residual": np.zeros(X.shape)},
        {"X": "dX", "Scale": "dScale", "bias": "dBias", "residual": "dZ"},
        _exact(inputs["dY"]),
    )


def _batch_of_which_X_is_the_first_part(
    inputs: Arrays, count: int | None = None
) -> tuple[Array, Array, Array, Array, Array]:
    """The whole X and dY, where each channel has `count` elements, by default twice as many as in the part; the mean,
    the variance and 1 / std of the whole, which are stored.
    """
    X, D, random = _exact(inputs["X"]), _exact(inputs["dY"]), np.random.default_rng(2)
    part = X.size // X.shape[1]
    more = (len(X) * (count or 2 * part) // part - len(X), *X.shape[1:])
    X, D = np.concatenate([X, random.standard_normal(more)]), np.concatenate([D, random.standard_normal(more)])
    mean, variance = forward.moments(X, (0, *range(2, X.ndim)))
    inv_std = 1 / np.sqrt(variance + EPSILON)
    _store(inputs, saved_mean=mean, saved_inv_std=inv_std)
    return X, D, mean, variance, inv_std


def _batch_norm_sums(inputs: Arrays) -> ForwardPass:
    """The sums are rates of the part's own loss."""
    X, D = _exact(inputs["X"]), _exact(inputs["dY"])
    _, _, mean, variance, _ = _batch_of_which_X_is_the_first_part(inputs)
    channels = X.shape[1]

    def run(p: Mapping[str, Array]) -> Array:
        both = np.concatenate([p["scale"], p["bias"]]) + p["both"]
        scale, bias = (each.reshape(mean.shape[1:]) for each in np.split(both, 2))
        return forward.dml_batch_norm(X, mean, variance, scale, bias, EPSILON)

    parameters = {"scale": np.ones(channels), "bias": np.zeros(channels), "both": np.zeros(2 * channels)}
    return ForwardPass(run, parameters, {"scale": "dScale", "bias": "dBias", "both": "sums"}, D)


def _batch_norm_from_sums(inputs: Arrays, *, count: int | None = None) -> ForwardPass:
    part = _exact(inputs["X"])
    if count is None:
        counts = np.arange(1.0, inputs["counts"].size + 1)
        count = 2 * part.size // part.shape[1]
        _store(inputs, counts=counts / counts.sum() * count)
    X, D, mean, _, inv_std = _batch_of_which_X_is_the_first_part(inputs, count)
    others = (0, *range(2, X.ndim))
    _store(inputs, dScale=(D * (X - mean) * inv_std).sum(others), dBias=D.sum(others))
    Scale, bias, rest = _exact(inputs["Scale"]), np.zeros(X.shape[1]), X[len(part) :]
    return ForwardPass(
        lambda p: forward.batch_norm(np.concatenate([p["X"], rest]), Scale, bias, EPSILON), {"X": part}, {"X": "dX"}, D
    )


def _dml_batch_norm(inputs: Arrays, *, Epsilon: float) -> ForwardPass:
    mean, variance, scale = (_exact(inputs[name]) for name in ("Mean", "Variance", "Scale"))
    return ForwardPass(
        lambda p: forward.dml_batch_norm(p["Input"], mean, variance, p["Scale"], p["bias"], Epsilon),
        {"Input": _exact(inputs["Input"]), "Scale": scale, "bias": np.zeros(scale.shape)},
        {"Input": "OutputGradient", "Scale": "OutputScaleGradient", "bias": "OutputBiasGradient"},
        _exact(inputs["InputGradient"]),
    )


def _dml_batch_norm_training(inputs: Arrays, *, Epsilon: float) -> ForwardPass:
    """Mean and variance among the inputs become those of Input."""
    X, scale = _exact(inputs["Input"]), _exact(inputs["Scale"])
    axes = tuple(axis for axis, size in enumerate(scale.shape) if size == 1)
    mean, variance = forward.moments(X, axes)
    _store(inputs, Mean=mean, Variance=variance)

    def run(p: Mapping[str, Array]) -> Array:
        return forward.dml_batch_norm(p["Input"], *forward.moments(p["Input"], axes), p["Scale"], p["bias"], Epsilon)

    gradients = {"Input": "OutputGradient", "Scale": "OutputScaleGradient", "bias": "OutputBiasGradient"}
    parameters = {"Input": X, "Scale": scale, "bias": np.zeros(scale.shape)}
    return ForwardPass(run, parameters, gradients, _exact(inputs["InputGradient"]))


def _dml_clip(inputs: Arrays, *, Min: float = 0.0, Max: float = np.inf) -> ForwardPass:
    """The input moves away from where the slope jumps."""
    X = _exact(inputs["Input"])
    for limit in (Min, Max):
        X = np.where(np.abs(X - limit) < 0.1, X + 0.25, X)
    _store(inputs, Input=X)
    gradients = {"Input": "OutputGradient"}
    return ForwardPass(
        lambda p: np.clip(p["Input"], Min, Max), {"Input": _exact(inputs["Input"])}, gradients,
        _exact(inputs["InputGradient"]),
    )  # fmt: skip


def _local_response_norm(
    inputs: Arrays,
    *,
    CrossChannel: int,
    LocalSize: int,
    Alpha: float = 1e-4,
    Beta: float = 0.75,
    Bias: float = 1.0,
) -> ForwardPass:
    X = _exact(inputs["Input"])
    axes = (1,) if CrossChannel else tuple(range(2, X.ndim))

    def run(p: Mapping[str, Array]) -> Array:
        return p["Input"] * (Bias + Alpha / LocalSize * forward.window_sums(p["Input"] ** 2, axes, LocalSize)) ** -Beta

    return ForwardPass(run, {"Input": X}, {"Input": "OutputGradient"}, _exact(inputs["InputGradient"]))


def _roi_align(inputs: Arrays, **given: Any) -> ForwardPass:
    """Sample by sample: the mean of the bilinear interpolations in each cell."""
    D, images = _exact(inputs["InputGradient"]), inputs["BatchIndices"].astype(int)
    corners, least = given.get("AlignRegionsToCorners", 0), given.get("MinimumSamplesPerOutput", 1)

    def coordinates(v1: float, v2: float, axis: str, outputs: int) -> list[list[float]]:
        scale, offset = given.get(f"SpatialScale{axis}", 1.0), given.get("InputPixelOffset", 0.5)
        n = max(math.ceil(abs(v2 - v1) * scale / outputs), least)
        along = [(s + 0.5) / max(n * outputs - corners, 1) for s in range(n * outputs)]
        at = [v1 * scale + t * (v2 - v1) * scale - offset for t in along]
        return [at[cell * n : cell * n + n] for cell in range(outputs)]

    def value(image: Array, y: float, x: float) -> Array:
        height, width = image.shape[1:]
        if not (-1 <= y <= height and -1 <= x <= width):
            return np.zeros(len(image))
        y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
        top, left = int(y), int(x)
        below, right = min(top + 1, height - 1), min(left + 1, width - 1)
        above = image[:, top, left] * (left + 1 - x) + image[:, top, right] * (x - left)
        return above * (top + 1 - y) + (
            image[:, below, left] * (left + 1 - x) + image[:, below, right] * (x - left)
        ) * (y - top)

    def run(p: Mapping[str, Array]) -> Array:
        found = np.zeros(D.shape)
        for r, (x1, y1, x2, y2) in enumerate(p["ROI"]):
            for oy, ys in enumerate(coordinates(y1, y2, "Y", D.shape[2])):
                for ox, xs in enumerate(coordinates(x1, x2, "X", D.shape[3])):
                    image = p["Input"][images[r]]
                    found[r, :, oy, ox] = np.mean([value(image, y, x) for y in ys for x in xs], 0)
        return found

    parameters = {name: _exact(inputs[name]) for name in ("Input", "ROI")}
    return ForwardPass(run, parameters, {"Input": "OutputGradient", "ROI": "OutputROIGradient"}, D)


def _dml_slice(data: Array, _: Any, InputWindowOffsets: Any, InputWindowSizes: Any, InputWindowStrides: Any) -> Array:
    windows = zip(InputWindowOffsets, InputWindowSizes, strict=True)
    window = data[tuple(slice(offset, offset + size) for offset, size in windows)]
    return window[tuple(slice(None, None, step) for step in InputWindowStrides)]


def _group_norm(
    inputs: Arrays, *, groups: int, activation: str = "none", channels_last: int = 0, **_: Any
) -> ForwardPass:
    """The statistics among the inputs become those of X."""
    X, gamma, beta = (_exact(inputs[name]) for name in ("X", "gamma", "beta"))
    first = np.moveaxis(X, -1, 1) if channels_last else X
    mean, variance = forward.moments(first.reshape(len(X), groups, -1), (2,))
    _store(inputs, mean=mean, inv_std=1 / np.sqrt(variance + EPSILON))
    zeros, ones = np.zeros(first.shape[:2]), [1] * (X.ndim - 2)

    def run(p: Mapping[str, Array]) -> Array:
        first = np.moveaxis(p["X"], -1, 1) if channels_last else p["X"]
        y = forward.group_norm(first, p["gamma"], p["beta"], groups, EPSILON)
        y = y * (1 + p["sample_scale"].reshape(*zeros.shape, *ones)) + p["sample_shift"].reshape(*zeros.shape, *ones)
        y = forward.activated(y, activation)
        return np.moveaxis(y, 1, -1) if channels_last else y

    return ForwardPass(
        run,
        {"X": X, "gamma": gamma, "beta": beta, "sample_scale": zeros, "sample_shift": zeros},
        {
            "X": "dX",
            "gamma": "dgamma",
            "beta": "dbeta",
            "sample_scale": "sample_scale_grad",
            "sample_shift": "sample_shift_grad",
        },
        _exact(inputs["dY"]),
    )


def _bias_gelu(inputs: Arrays) -> ForwardPass:
    return _gelu(inputs, forward.bias_gelu)


def _bias_fast_gelu(inputs: Arrays) -> ForwardPass:
    return _gelu(inputs, forward.bias_fast_gelu)


def _gelu(inputs: Arrays, gelu: Callable[[Array, Array], Array]) -> ForwardPass:
    parameters = {"X": _exact(inputs["X"]), "B": _exact(inputs["B"])}
    return ForwardPass(lambda p: gelu(p["X"], p["B"]), parameters, {"X": "dX", "B": "dB"}, _exact(inputs["dY"]))


def _activation(inputs: Arrays, *, of: Callable[..., Array], inverse: Any = None, **numbers: float) -> ForwardPass:
    """Inputs are moved away from 0, where slopes may jump. With an inverse the output becomes Y, and the input is that
    of Y as its type has it.
    """
    X = _exact(inputs["X" if inverse is None else "Y"])
    X = np.where(X < 0, -0.1, 0.1) + np.clip(X, -2.5, 2.5)
    _store(inputs, **({"X": X} if inverse is None else {"Y": of(X, **numbers)}))
    X = _exact(inputs["X"]) if inverse is None else inverse(_exact(inputs["Y"]), **numbers)
    return ForwardPass(lambda p: of(p["X"], **numbers), {"X": X}, {"X": "dX"}, _exact(inputs["dY"]))


def _masked(inputs: Arrays, *, mask: str = "mask", bits: bool = False, ratio: float = 0.0) -> ForwardPass:
    gradient, dY = ("dx", inputs["dy"]) if "dy" in inputs else ("dX", inputs["dY"])
    kept = inputs[mask]
    if bits:
        kept = np.array([kept[n // 32] >> np.uint32(n % 32) & 1 for n in range(dY.size)]).reshape(dY.shape)
    factors = kept / (1 - ratio)
    return ForwardPass(lambda p: p["X"] * factors, {"X": 0 * _exact(dY)}, {"X": gradient}, _exact(dY))


def _division(inputs: Arrays) -> ForwardPass:
    """B is moved away from 0, where the quotient bends within the step of a difference."""
    _store(inputs, B=_exact(inputs["B"]) + 2 * np.sign(_exact(inputs["B"])))
    parameters = {"A": _exact(inputs["A"]), "B": _exact(inputs["B"])}
    return ForwardPass(lambda p: p["A"] / p["B"], parameters, {"A": "dA", "B": "dB"}, _exact(inputs["dY"]))


def _gated(inputs: Arrays, *, gate: Callable[[Array], Array]) -> ForwardPass:
    """Y, which the gradients give out again, is another output whose gradient is 0."""
    parameters = {"A": _exact(inputs["A"]), "B": _exact(inputs["B"])}
    run = lambda p: gate(p["A"]) * p["B"]  # noqa: E731
    return ForwardPass(run, parameters, {"A": "dA", "B": "dB"}, _exact(inputs["dY"]))


def _geglu(inputs: Arrays, *, approximate: str = "none") -> ForwardPass:
    gelu = forward.bias_fast_gelu if approximate == "tanh" else forward.bias_gelu
    return _gated(inputs, gate=lambda a: gelu(a, np.zeros(())))


def _softmax_dropout(inputs: Arrays, *, axis: int, ratio: float = 0.5) -> ForwardPass:
    X, factors = _exact(inputs["softmax_y"]), inputs["mask"] / (1 - ratio)
    axes = tuple(range(axis % X.ndim, X.ndim))
    _store(inputs, softmax_y=forward.softmax(X, axes))
    run = lambda p: forward.softmax(p["X"], axes) * factors  # noqa: E731
    return ForwardPass(run, {"X": X}, {"X": "dx"}, _exact(inputs["dy"]))


def _softmax(inputs: Arrays, *, single: bool, log: bool = False, axis: int | None = None) -> ForwardPass:
    name = "X" if log else "Y"  # of the output, which is drawn as the input is
    X = _exact(inputs[name])
    first = (axis if axis is not None else -1 if single else 1) % X.ndim
    axes = (first,) if single else tuple(range(first, X.ndim))

    def run(p: Mapping[str, Array]) -> Array:
        Y = forward.softmax(p["X"], axes)
        return np.log(Y) if log else Y

    _store(inputs, **{name: run({"X": X})})
    return ForwardPass(run, {"X": X}, {"X": "dX"}, _exact(inputs["dY"]))


def _loss(
    inputs: Arrays,
    *,
    axis: int = 1,
    by_rows: bool = False,
    reduction: str = "mean",
    ignore_index: int | None = None,
) -> ForwardPass:
    """The scores are as log_prob was drawn. The gradient's bias is that of a second output."""
    scores, target = _exact(inputs["log_prob"]), inputs["label"]
    rows = (scores.shape[0], *scores.shape[2:]) if axis == 1 else scores.shape[:-1]
    weight = _exact(inputs["weight"]) if "weight" in inputs else np.ones(rows if by_rows else scores.shape[axis])
    if target.shape == scores.shape:
        _store(inputs, label=np.equal(target, target.max(axis, keepdims=True)) * 1.0)
        shares, counted = _exact(inputs["label"]), np.ones(rows)
    else:
        counted = (target != ignore_index) * (weight if by_rows else weight[target])
        shares = np.moveaxis(np.equal(target[..., None], np.arange(scores.shape[axis])), -1, axis) * 1.0
    norm = {"mean": counted.sum(), "sum": 1.0, "none": 1.0}[reduction]
    bias = _exact(inputs["bias"]) if "bias" in inputs else np.zeros(scores.shape)

    def run(p: Mapping[str, Array]) -> Array:
        losses = -(np.log(forward.softmax(p["scores"], (axis % scores.ndim,))) * shares).sum(axis) * counted / norm
        return np.append(losses.ravel() if reduction == "none" else losses.sum(), (bias * p["scores"]).sum())

    _store(inputs, log_prob=np.log(forward.softmax(scores, (axis % scores.ndim,))))
    return ForwardPass(run, {"scores": scores}, {"scores": "d_logits"}, np.append(_exact(inputs["dY"]).ravel(), 1.0))


def _conv(inputs: Arrays, *, of: Callable[..., Array], **attributes: Any) -> ForwardPass:
    X, W = _exact(inputs["X"]), _exact(inputs["W"])
    return ForwardPass(
        lambda p: of(p["X"], p["W"], p["bias"], **attributes),
        {"X": X, "W": W, "bias": np.zeros(inputs["dY"].shape[1])},
        {"X": "dX", "W": "dW", "bias": "dB"},
        _exact(inputs["dY"]),
    )


def _max_pool_grad(
    inputs: Arrays, *, input_size: Sequence[int], index_base: str = "tensor", **windows: Any
) -> ForwardPass:
    """Of an input that is largest where the indices are: the elements that they choose."""
    D, shape = _exact(inputs["dY"]), (*inputs["dY"].shape[:2], *input_size)
    out, taps_of = forward.pool_taps(input_size, **windows)
    size, indices = math.prod(input_size), inputs["Indices"].astype(np.int64)
    if indices.dtype != inputs["Indices"].dtype:
        for o, elements in taps_of:
            at = (slice(None), slice(None), *o)
            indices[at] = np.vectorize(dict(elements).__getitem__)(indices[at])
    planes = np.arange(shape[0] * shape[1]).reshape(*shape[:2], *[1] * len(out))
    flat = indices % size + planes * size
    return ForwardPass(lambda p: p["X"].ravel()[flat], {"X": np.zeros(shape)}, {"X": "dX"}, D)


def _average_pool_grad(inputs: Arrays, *, input_size: Sequence[int], **windows: Any) -> ForwardPass:
    counted, divisor = windows.pop("count_include_pad", 0), windows.pop("divisor_override", None)
    D = _exact(inputs["dY"])
    _, taps_of = forward.pool_taps(input_size, **windows)
    _, padded = forward.pool_taps(input_size, padded=True, **windows)

    def run(p: Mapping[str, Array]) -> Array:
        planes, Y = p["X"].reshape(*D.shape[:2], -1), np.zeros(D.shape)
        for (o, elements), (_, every) in zip(taps_of, padded, strict=True):
            count = divisor or len(every if counted else elements)
            Y[(slice(None), slice(None), *o)] = planes[:, :, [i for _, i in elements]].sum(2) / count
        return Y

    return ForwardPass(run, {"X": np.zeros((*D.shape[:2], *input_size))}, {"X": "dX"}, D)


def _dml_pool(inputs: Arrays, *, OutputSizes: Any = None, IncludePadding: int = 0, **more: Any) -> ForwardPass:
    """An average, or a maximum of elements that are far apart."""
    D = _exact(inputs["InputGradient"])
    windows: dict[str, Any] = {"kernel_shape": more["WindowSize"], "strides": more["Strides"]}
    windows |= {"pads": [*more["StartPadding"], *more["EndPadding"]], "dilations": more.get("Dilations")}
    if "Input" in inputs:
        shape = inputs["Input"].shape
        _store(inputs, Input=np.random.default_rng(5).permutation(math.prod(shape)) / 8.0)
    X = _exact(inputs["Input"]) if "Input" in inputs else np.zeros((*D.shape[:2], *OutputSizes))
    _, taps_of = forward.pool_taps(X.shape[2:], **windows)
    _, padded = forward.pool_taps(X.shape[2:], padded=True, **windows)

    def run(p: Mapping[str, Array]) -> Array:
        planes, Y = p["Input"].reshape(*D.shape[:2], -1), np.zeros(D.shape)
        for (o, elements), (_, every) in zip(taps_of, padded, strict=True):
            seen = planes[:, :, [i for _, i in elements]]
            mean = seen.sum(2) / len(every if IncludePadding else elements)
            Y[(slice(None), slice(None), *o)] = seen.max(2) if "Input" in inputs else mean
        return Y

    return ForwardPass(run, {"Input": X}, {"Input": "OutputGradient"}, D)


def _along_axes(inputs: Arrays, *, input_size: Sequence[int], matrix: Callable[..., Array], **more: Any) -> ForwardPass:
    D = _exact(inputs["dY"])

    def run(p: Mapping[str, Array]) -> Array:
        Y = p["X"]
        for axis, size in enumerate(input_size):
            rows = matrix(axis, size, D.shape[2 + axis], **more)
            Y = np.moveaxis(np.tensordot(rows, Y, (1, 2 + axis)), 0, 2 + axis)
        return Y

    return ForwardPass(run, {"X": np.zeros((*D.shape[:2], *input_size))}, {"X": "dX"}, D)


def _resample(
    inputs: Arrays,
    *,
    OutputSizes: Sequence[int],
    InterpolationMode: str,
    RoundingDirection: str | None = None,
    **more: Sequence[float],
) -> ForwardPass:
    names = ("Scales", "InputPixelOffsets", "OutputPixelOffsets")
    offsets = list(zip(*(more[name] for name in names), strict=True))[2:]

    def matrix(axis: int, size: int, outputs: int) -> Array:
        return forward.resample_matrix(size, outputs, InterpolationMode, RoundingDirection, *offsets[axis])

    found = _along_axes({"dY": inputs["InputGradient"]}, input_size=OutputSizes[2:], matrix=matrix)
    return replace(found, gradients={"X": "OutputGradient"})


def _adaptive_matrix(_axis: int, size: int, outputs: int) -> Array:
    return forward.adaptive_matrix(size, outputs)


def _rotary(inputs: Arrays, *, interleaved: int = 0, rotary_embedding_dim: int = 0) -> ForwardPass:
    """By rotation matrices."""
    cos, sin = _exact(inputs["cos_cache"]), _exact(inputs["sin_cache"])
    if "position_ids" in inputs:
        cos, sin = (each[inputs["position_ids"]] for each in (cos, sin))
    half, elements = cos.shape[-1], inputs["dY"].shape[-1]
    matrix = np.zeros((*cos.shape[:2], elements, elements)) + np.eye(elements)
    for k in range(half):
        first, second = (2 * k, 2 * k + 1) if interleaved else (k, k + half)
        matrix[:, :, first, first] = matrix[:, :, second, second] = cos[..., k]
        matrix[:, :, first, second], matrix[:, :, second, first] = -sin[..., k], sin[..., k]
    X = np.random.default_rng(2).standard_normal(inputs["dY"].shape)
    return ForwardPass(
        lambda p: np.einsum("bsij,bnsj->bnsi", matrix, p["X"]), {"X": X}, {"X": "dX"}, _exact(inputs["dY"])
    )


def _read(
    inputs: Arrays,
    of: Callable[..., Array],
    upstream: str = "dY",
    output: str = "dX",
    attribute: str = "shape",
    **more: Any,
) -> ForwardPass:
    """Of operators that copy elements of their input."""
    data, indices = np.random.default_rng(3).standard_normal(more.pop(attribute)), inputs.get("indices")
    return ForwardPass(
        lambda p: of(p["data"], indices, **more), {"data": data}, {"data": output}, _exact(inputs[upstream])
    )


def _gather(data: Array, indices: Any, axis: int = 0, padding_idx: int | None = None) -> Array:
    """What is read at padding_idx is a constant."""
    found = np.take(data, indices, axis, mode="wrap")
    if padding_idx is None:
        return found
    size, first = data.shape[axis], axis % data.ndim
    padding = (indices % size == padding_idx % size).reshape((*indices.shape, *[1] * (data.ndim - 1 - first)))
    return np.where(padding, 0.0, found)


def _gather_elements(data: Array, indices: Array, axis: int = 0) -> Array:
    places: list[Any] = [*np.indices(indices.shape)]
    places[axis] = indices
    return data[tuple(places)]


def _gather_nd(data: Array, indices: Array, batch_dims: int = 0) -> Array:
    batch = np.indices(indices.shape[:-1])[:batch_dims]
    return data[(*batch, *np.moveaxis(indices, -1, 0))]


def _slice(data: Array, _: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Array:
    cut = [slice(None)] * data.ndim
    for n, axis in enumerate(range(len(starts)) if axes is None else axes):
        cut[axis] = slice(starts[n], ends[n], steps[n] if steps else 1)
    return data[tuple(cut)]


FORWARD_PASSES: dict[str, Callable[..., ForwardPass]] = {  # of (inputs, **attributes)
    **dict.fromkeys(("DmlAveragePoolingGrad", "DmlMaxPoolingGrad"), _dml_pool),
    **dict.fromkeys(("DmlResampleGrad", "DmlResampleGrad1"), _resample),
    "MaxPoolGrad": _max_pool_grad,
    "AveragePoolGrad": _average_pool_grad,
    "GlobalAveragePoolGrad": partial(_along_axes, matrix=_adaptive_matrix),
    "AdaptiveAveragePoolGrad": partial(_along_axes, matrix=_adaptive_matrix),
    "ResizeGrad": partial(_along_axes, matrix=forward.resize_matrix),
    "GatherGrad": partial(_read, of=_gather),
    "GatherElementsGrad": partial(_read, of=_gather_elements),
    "GatherNDGrad": partial(_read, of=_gather_nd, upstream="update", output="output"),
    "SliceGrad": partial(_read, of=_slice),
    "BatchNormalizationGrad": _batch_norm,
    "BatchNormalizationGradSums": _batch_norm_sums,
    "BatchNormalizationGradFromSums": _batch_norm_from_sums,
    "LayerNormalizationGrad": _layer_norm,
    "SimplifiedLayerNormalizationGrad": _rms_norm,
    "InvertibleLayerNormalizationGrad": _invertible_layer_norm,
    "ConvGrad": partial(_conv, of=forward.conv),
    "ConvTransposeGrad": partial(_conv, of=forward.conv_transpose),
    "BiasGeluGrad_dX": _bias_gelu,
    "BiasFastGeluGrad_dX": _bias_fast_gelu,
    "DmlBatchNormalizationGrad": _dml_batch_norm,
    "DmlBatchNormalizationTrainingGrad": _dml_batch_norm_training,
    **dict.fromkeys(("DmlActivationReluGrad", "DmlElementWiseClipGrad", "DmlElementWiseClipGrad1"), _dml_clip),
    "DmlLocalResponseNormalizationGrad": _local_response_norm,
    "DmlRoiAlignGrad": _roi_align,
    "DmlSliceGrad": partial(
        _read, of=_dml_slice, upstream="InputGradient", output="OutputGradient", attribute="OutputSizes"
    ),
    "GroupNormGrad": _group_norm,
    "RotaryEmbeddingGrad": _rotary,
    "SoftmaxCrossEntropyLossGrad": _loss,
    "SoftmaxCrossEntropyLossInternalGrad": _loss,
    "SparseSoftmaxCrossEntropyGrad": partial(_loss, axis=-1, by_rows=True),
    "SoftmaxCrossEntropyGrad": partial(_loss, axis=-1),
    "SoftmaxGrad": partial(_softmax, single=False),
    "SoftmaxGrad_13": partial(_softmax, single=True),
    "LogSoftmaxGrad": partial(_softmax, single=False, log=True),
    "LogSoftmaxGrad_13": partial(_softmax, single=True, log=True),
    "GeluGrad": partial(_activation, of=lambda x: forward.bias_gelu(x, np.zeros(()))),
    "FastGeluGrad": partial(_activation, of=lambda x: forward.bias_fast_gelu(x, np.zeros(()))),
    "QuickGeluGrad": partial(_activation, of=lambda x, alpha=1.702: x / (1 + np.exp(-alpha * x))),
    "ReluGrad": partial(_activation, of=lambda x: forward.activated(x, "relu")),
    "LeakyReluGrad": partial(
        _activation,
        of=lambda x, alpha=0.01: forward.activated(x, "leaky_relu", alpha),
        inverse=lambda y, alpha=0.01: np.where(y > 0, y, y / alpha),
    ),
    "SigmoidGrad": partial(_activation, of=lambda x: 1 / (1 + np.exp(-x)), inverse=lambda y: np.log(y / (1 - y))),
    "DivGrad": _division,
    "SwiGLUGrad": partial(_gated, gate=lambda a: a / (1 + np.exp(-a))),
    "GeGLUGrad": _geglu,
    "DropoutGrad": partial(_masked, ratio=0.5),
    "BitmaskDropoutGrad": partial(_masked, bits=True, ratio=0.5),
    "FakeQuantGrad": partial(_masked, mask="gradient_mask"),
    "SoftmaxDropoutGrad": _softmax_dropout,
    "TanhGrad": partial(_activation, of=np.tanh, inverse=np.arctanh),
}
