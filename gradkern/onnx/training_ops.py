"""Operators of ONNX Runtime's training graphs beyond the registry's, for arrays of NumPy and tensors of PyTorch alike.

Each is a function of the arrays' namespace by the Array API standard, the inputs in order, None for one that is left
out, and the attributes by name. Where the registry has the operator, too, this table answers for types that it refuses.
Contracts: onnxruntime v1.19.2, training_op_defs.cc and contrib_defs.cc.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradkern.dispatch.run import run
from gradkern.errors import AttributeValueError, DataError, ShapeError
from gradkern.onnx.table import Table

TRAINING = Table()
operator = TRAINING.operator


def _number(value: Any, default: float) -> float:
    """The number in an array on the host with a single element."""
    return default if value is None else np.asarray(value).reshape(-1)[0].item()


def _sizes(value: Any) -> tuple[int, ...]:
    return tuple(np.asarray(value).tolist())


# --- products and element-wise ----------------------------------------------------------------------------------------

_ACTIVATIONS = {
    "Relu": lambda xp, y, alpha: xp.where(y > 0, y, xp.zeros_like(y)),
    "LeakyRelu": lambda xp, y, alpha: xp.where(y > 0, y, y * float(alpha)),
    "Tanh": lambda xp, y, alpha: xp.tanh(y),
    "Sigmoid": lambda xp, y, alpha: 1 / (1 + xp.exp(-y)),
}


def _swapped(xp: Any, x: Any, batch: int, matrix: int) -> Any:
    """A matrix in its last two axes; with `batch` its rows are axis 0, and the axes of the batch follow."""
    x = xp.moveaxis(x, 0, -2) if batch else x
    return xp.matrix_transpose(x) if matrix and x.ndim > 1 else x


@operator()
def FusedMatMul(xp: Any, A: Any, B: Any, *, alpha: float = 1, transA: int = 0, transB: int = 0, transBatchA: int = 0,
                transBatchB: int = 0) -> Any:  # fmt: skip
    product = xp.matmul(_swapped(xp, A, transBatchA, transA), _swapped(xp, B, transBatchB, transB))
    return product if alpha == 1 else product * float(alpha)


@operator()
def FusedGemm(xp: Any, A: Any, B: Any, C: Any = None, *, activation: str, alpha: float = 1, beta: float = 1,
              transA: int = 0, transB: int = 0, activation_alpha: float = 0.01) -> Any:  # fmt: skip
    y = FusedMatMul(xp, A, B, alpha=alpha, transA=transA, transB=transB)
    y = y if C is None else y + float(beta) * C
    if activation not in _ACTIVATIONS:
        raise AttributeValueError(f"activation is {activation!r}; expected one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[activation](xp, y, activation_alpha)


@operator()
def Gelu(xp: Any, X: Any) -> Any:
    return run("BiasGelu", X, xp.zeros(X.shape[-1:], dtype=X.dtype, device=X.device)).C


@operator()
def FastGelu(xp: Any, X: Any, bias: Any = None) -> Any:
    bias = xp.zeros(X.shape[-1:], dtype=X.dtype, device=X.device) if bias is None else bias
    return run("BiasFastGelu", X, bias).C


@operator()
def QuickGelu(xp: Any, X: Any, *, alpha: float = 1.702) -> Any:
    return X / (1 + xp.exp(-float(alpha) * X))


@operator()
def BatchNormInternal(
    xp: Any, *inputs: Any, epsilon: float = 1e-5, momentum: float = 0.9, training_mode: int = 0
) -> Any:
    wanted = ("Y", "running_mean", "running_var", "saved_mean", "saved_inv_std")
    attributes = {"epsilon": float(epsilon), "momentum": float(momentum), "training_mode": training_mode}
    return tuple(run("BatchNormalization", *inputs, outputs=wanted, **attributes))


@operator(host=(1, 2))
def FakeQuant(xp: Any, X: Any, scale: Any, zero_point: Any, *, quant_min: int = 0, quant_max: int = 255) -> Any:
    step, zero = _number(scale, 1), _number(zero_point, 0)
    levels = xp.round(X / step) + zero
    kept = (levels >= quant_min) & (levels <= quant_max)
    return (xp.clip(levels, quant_min, quant_max) - zero) * step, kept


# --- dropout ----------------------------------------------------------------------------------------------------------


@operator(domain="", host=(1, 2))
def Dropout(xp: Any, data: Any, ratio: Any = None, training: Any = None, *, seed: int | None = None) -> Any:
    """ONNX's own: onnx.reference gives float32 for any type."""
    return _dropped(xp, data, ratio, training, seed)


def _dropped(xp: Any, x: Any, ratio: Any, training: Any, seed: int | None) -> tuple[Any, Any]:
    """Dropout of x and its mask. Another seed, or none, gives another mask, and no library gives another's."""
    rate = _number(ratio, 0.5)
    if not 0 <= rate < 1:
        raise AttributeValueError(f"ratio is {rate}; expected at least 0 and less than 1")
    if not _number(training, False) or rate == 0:
        return x, xp.ones(tuple(x.shape), dtype=xp.bool, device=x.device)
    if isinstance(x, np.ndarray):
        mask = np.random.default_rng(seed).random(x.shape) >= rate
    else:
        generator = None if seed is None else xp.Generator(device=x.device).manual_seed(seed)
        mask = xp.rand(x.shape, device=x.device, generator=generator) >= rate
    return xp.where(mask, x, xp.zeros_like(x)) * (1 / (1 - rate)), mask


def _bits(xp: Any, mask: Any) -> Any:
    """A mask in words of 32 bits, the lowest bit first."""
    flat = xp.astype(xp.reshape(mask, (-1,)), xp.int64)
    padded = xp.concat([flat, xp.zeros(-flat.shape[0] % 32, dtype=xp.int64, device=mask.device)])
    powers = 2 ** xp.arange(32, dtype=xp.int64, device=mask.device)
    return xp.astype(xp.sum(xp.reshape(padded, (-1, 32)) * powers, axis=1), xp.uint32)


@operator(host=(3, 4))
def BiasDropout(xp: Any, data: Any, bias: Any, residual: Any = None, ratio: Any = None, training: Any = None, *,
                seed: int | None = None) -> Any:  # fmt: skip
    y, mask = _dropped(xp, data + bias, ratio, training, seed)
    return y if residual is None else y + residual, mask


@operator(host=(1, 2))
def BitmaskDropout(xp: Any, data: Any, ratio: Any = None, training: Any = None, *, seed: int | None = None) -> Any:
    y, mask = _dropped(xp, data, ratio, training, seed)
    return y, _bits(xp, mask)


@operator(host=(3, 4))
def BitmaskBiasDropout(xp: Any, *inputs: Any, seed: int | None = None) -> Any:
    y, mask = BiasDropout(xp, *inputs, seed=seed)
    return y, _bits(xp, mask)


@operator(host=(2,))
def BiasSoftmaxDropout(xp: Any, data: Any, bias: Any, ratio: Any = None, *, axis: int, is_inner_broadcast: int,
                       seed: int | None = None) -> Any:  # fmt: skip
    if not is_inner_broadcast:  # the bias has the outermost axes and those of a row
        bias = xp.reshape(bias, (*bias.shape[: bias.ndim - data.ndim + axis], *(1,) * (data.ndim - bias.ndim),
                                 *bias.shape[bias.ndim - data.ndim + axis :]))  # fmt: skip
    rows = xp.reshape(data + bias, (math.prod(data.shape[:axis]), -1))
    e = xp.exp(rows - xp.max(rows, axis=1, keepdims=True))
    softmax = xp.reshape(e / xp.sum(e, axis=1, keepdims=True), data.shape)
    return *_dropped(xp, softmax, ratio, True, seed), softmax


# --- shapes and sums --------------------------------------------------------------------------------------------------


def _ends(sizes: Any, whole: int, name: str) -> list[int]:
    """Where parts of these sizes end; there are no others."""
    sizes = _sizes(sizes)
    if min(sizes, default=0) < 0 or sum(sizes) != whole:
        raise ShapeError(f"{name} has the sizes {sizes}; expected sizes with the sum {whole}")
    return np.cumsum(sizes, dtype=np.int64).tolist()


@operator()
def ConcatTraining(xp: Any, *inputs: Any, axis: int) -> Any:
    return xp.concat(list(inputs), axis=axis), np.array([each.shape[axis] for each in inputs], np.int64)


@operator(host=(1,))
def SplitTraining(xp: Any, X: Any, split: Any, *, axis: int = 0) -> Any:
    ends = _ends(split, X.shape[axis], "split")
    lead = (slice(None),) * (axis % X.ndim)
    return tuple(X[(*lead, slice(begin, end))] for begin, end in zip([0, *ends], ends, strict=False))


@operator(host=(1,))
def ReduceSumTraining(xp: Any, data: Any, axes: Any, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
    chosen = _sizes(axes)
    if not chosen and noop_with_empty_axes:
        return data
    return xp.sum(data, axis=chosen or None, keepdims=bool(keepdims), dtype=data.dtype)


@operator(host=range(1, 64))
def View(xp: Any, X: Any, *shapes: Any) -> Any:
    ends = _ends([math.prod(_sizes(each)) for each in shapes], math.prod(X.shape), "shapes")
    parts = zip([0, *ends], ends, shapes, strict=False)
    return tuple(xp.reshape(xp.reshape(X, (-1,))[begin:end], _sizes(shape)) for begin, end, shape in parts)


@operator(result="bool")
def Group(xp: Any, *inputs: Any) -> Any:
    return np.array([True])


@operator()
def PassThrough(xp: Any, *inputs: Any) -> Any:
    return inputs


@operator(host=(2,))
def PadAndUnflatten(xp: Any, X: Any, indices: Any, unflatten_dims: Any) -> Any:
    dims = _sizes(unflatten_dims)
    flat = xp.zeros((math.prod(dims), *X.shape[1:]), dtype=X.dtype, device=X.device)
    flat[indices] = X
    return xp.reshape(flat, (*dims, *X.shape[1:]))


def _norm(xp: Any, arrays: Sequence[Any]) -> Any:
    """The Euclidean norm in float64, where squares do not overflow."""
    return xp.sqrt(sum(xp.sum(xp.astype(each, xp.float64) ** 2) for each in arrays))


@operator(result="bool")
def All(xp: Any, X: Any) -> Any:
    return xp.all(X)


# --- accumulation and optimizers --------------------------------------------------------------------------------------


def _check_alike(**sequences: Sequence[Any]) -> None:
    """Each has arrays of the first one's shapes: before any is written."""
    (first, arrays), *others = ((name, [tuple(x.shape) for x in several]) for name, several in sequences.items())
    for name, shapes in others:
        if shapes != arrays:
            raise ShapeError(f"{name} has shapes {shapes}; expected those of {first}, {arrays}")


@operator(writes=(0,), host=(2,))
def InPlaceAccumulator(xp: Any, old_sum: Any, value: Any, update_signal: Any = None) -> Any:
    if _number(update_signal, True):
        old_sum += xp.astype(value, old_sum.dtype)
    return old_sum


@operator(writes=(0,), host=(2,), result="bool")
def InPlaceAccumulatorV2(xp: Any, accumulation_buffer: Any, value: Any, overwrite_flag: Any = None) -> Any:
    if _number(overwrite_flag, False):
        accumulation_buffer[...] = value
    else:
        accumulation_buffer += xp.astype(value, accumulation_buffer.dtype)
    return np.array([True]), accumulation_buffer


@operator(writes=(0,))
def ZeroGradient(xp: Any, old_gradient: Any, reset_signal: Any) -> Any:
    old_gradient[...] = 0
    return old_gradient


@operator(writes=(2, 4, 5), host=(0, 1, 6), result="bool")
def AdamWOptimizer(xp: Any, lr: Any, step: Any, weights: Any, gradients: Any, momentums_1: Any, momentums_2: Any,
                   update_signal: Any = None, *, alpha: float = 0.9, beta: float = 0.999, epsilon: float = 1e-8,
                   weight_decay: float = 1e-2, correct_bias: int = 1, adam_mode: int = 0) -> Any:  # fmt: skip
    """Mode 0 decays the weights first, as PyTorch does; mode 1 last, as Hugging Face did."""
    if not _number(update_signal, True):
        return np.array([False]), weights, momentums_1, momentums_2
    _check_alike(weights=weights, gradients=gradients, momentums_1=momentums_1, momentums_2=momentums_2)
    rate, count = _number(lr, 0), int(_number(step, 1))
    if correct_bias and count < 1:
        raise DataError(f"step is {count}; expected 1 or more")
    first, second, decay = float(alpha), float(beta), rate * float(weight_decay)
    c1, c2 = (1 - first**count, 1 - second**count) if correct_bias else (1.0, 1.0)
    for w, g, m1, m2 in zip(weights, gradients, momentums_1, momentums_2, strict=True):
        m1 *= first
        m1 += (1 - first) * g
        m2 *= second
        m2 += (1 - second) * g * g
        if adam_mode == 0:
            w -= decay * w
            w -= rate * m1 / (c1 * (xp.sqrt(m2) / c2**0.5 + float(epsilon)))
        else:
            w -= rate * c2**0.5 / c1 * m1 / (xp.sqrt(m2) + float(epsilon))
            w -= decay * w
    return np.array([True]), weights, momentums_1, momentums_2


@operator(writes=(1,), host=(0, 3), result="bool")
def SGDOptimizerV2(xp: Any, lr: Any, weights: Any, gradients: Any, update_signal: Any = None) -> Any:
    if not _number(update_signal, True):
        return np.array([False]), weights
    _check_alike(weights=weights, gradients=gradients)
    for w, g in zip(weights, gradients, strict=True):
        w -= _number(lr, 0) * g
    return np.array([True]), weights


@operator(writes=(0,))
def InplaceClipGradNorm(xp: Any, gradients: Any, *, max_norm: float = 1, norm_type: str = "fro") -> Any:
    factor = xp.clip(float(max_norm) / (_norm(xp, gradients) + 1e-6), None, 1.0)
    for each in gradients:
        each *= factor
    return gradients
