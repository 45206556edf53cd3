"""Batch norm's passes over elements with an activation and a residual: the output, and the gradient at the activation's
input.

    t = (X - mean) r scale + bias,  Y = act(t + Z)
    gradient = (D + D2) act'(t),    relu and leaky_relu may use the sign of Y instead of t's

relu and its derivative are 0 where t <= 0: NaN passes through both. leaky_relu is t where t > 0 and else alpha t, with
the derivative 1 or alpha. silu(t) = t s, silu'(t) = s (1 + t (1 - s)) with s = 1/(1 + exp(-t)). gelu is t Phi(t).
relu6 is t between 0 and 6, hardswish t relu6(t + 3)/6, elu t where t > 0 and else alpha (exp(t) - 1). t is the same
number, bit for bit, in both passes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numba
from numba import types

from gradkern.cpu import threads
from gradkern.cpu.compile import AS_WRITTEN, INLINE, by_types, kernel
from gradkern.cpu.element_types import destination, load, real, store, zeros
from gradkern.cpu.gelu import SCALE, exact_gelu, exact_gelu_gradient, scaled_exp
from gradkern.cpu.runs import RUNS_TYPES, Runs, column_task, plane_task
from gradkern.cpu.threads import QUEUE, take

ARRAYS = ("X", "scale", "mean", "inv_std", "bias", "D", "D2", "Y", "Z", "out", "rounded")
"""The arrays of the kernels. X is always given. Without D the output is computed, with D the gradient."""
_KINDS = {type(None): types.none, bool: types.boolean, int: types.int64, float: types.float64}
_RELU6, _HARDSWISH, _ELU = range(3)
_PIECEWISE = {"relu6": _RELU6, "hardswish": _HARDSWISH, "elu": _ELU}
"""Activations that one kernel has, with a test for each element."""


@numba.njit(**AS_WRITTEN)
def _normalised(x: float, mu: float, gain: float, bias: float) -> float:
    return (x - mu) * gain + bias


@by_types(**AS_WRITTEN)
def _sigmoids(t: Any) -> Any:
    """s = 1/(1 + exp(-t)), and 1 - s."""
    if t == types.float64:

        def sigmoids64(t: Any) -> Any:
            e = math.exp(-abs(t))
            v = 1.0 / (1.0 + e)
            return (e * v, v) if t < 0.0 else (v, e * v)

        return sigmoids64

    def sigmoids32(t: Any) -> Any:
        e = scaled_exp(-abs(t))
        v = types.float32(1) / (SCALE + e)
        return (e * v, SCALE * v) if t < types.float32(0) else (SCALE * v, e * v)

    return sigmoids32


@numba.njit(**INLINE)
def _piecewise(t: float, X: Any, piecewise: int, alpha: float) -> float:
    if piecewise == _ELU:
        return t if t > real(X, 0) else real(X, alpha) * math.expm1(t)
    if piecewise == _RELU6:
        return real(X, 0) if t <= real(X, 0) else real(X, 6) if t >= real(X, 6) else t
    if t <= real(X, -3):
        return real(X, 0)
    return t if t >= real(X, 3) else t * (t + real(X, 3)) / real(X, 6)


@numba.njit(**INLINE)
def _piecewise_derivative(t: float, X: Any, piecewise: int, alpha: float) -> float:
    if piecewise == _ELU:
        return real(X, 1) if t > real(X, 0) else real(X, alpha) * math.exp(t)
    if piecewise == _RELU6:
        return real(X, 0) if t <= real(X, 0) or t >= real(X, 6) else real(X, 1)
    if t < real(X, -3):
        return real(X, 0)
    return real(X, 1) if t > real(X, 3) else t / real(X, 3) + real(X, 0.5)


@numba.njit(**INLINE)
def _output(t: float, X: Any, relu: Any, silu: Any, gelu: Any, piecewise: Any, alpha: Any) -> float:
    if piecewise is not None:
        return _piecewise(t, X, piecewise, alpha)
    if relu is not None:
        return real(X, 0) if t <= real(X, 0) else t
    if alpha is not None:
        return t if t > real(X, 0) else real(X, alpha) * t
    if silu is not None:
        return t * _sigmoids(t)[0]
    if gelu is not None:
        return exact_gelu(t)
    return t


@numba.njit(**INLINE)
def _derivative(t: float, X: Any, silu: Any) -> float:
    if silu is not None:
        s, rest = _sigmoids(t)
        return s * (real(X, 1) + t * rest)
    return real(X, 0) if t <= real(X, 0) else real(X, 1)


@numba.njit(**INLINE)
def _value(
    at: int, X: Any, mu: float, gain: float, bias: float, B: Any, D: Any, D2: Any, Y: Any, Z: Any, relu: Any, silu: Any,
    gelu: Any, piecewise: Any, alpha: Any,
) -> float:  # fmt: skip
    """For one element; `bias` is used if there is B."""
    t = real(X, 0)
    if B is not None:
        t = _normalised(load(X, at), mu, gain, bias)
    if D is None:
        if Z is not None:
            t += load(Z, at)
        return _output(t, X, relu, silu, gelu, piecewise, alpha)
    d = load(D, at)
    if D2 is not None:
        d += load(D2, at)
    if Y is not None:
        t = load(Y, at)
    if piecewise is not None:
        return d * _piecewise_derivative(t, X, piecewise, alpha)
    if silu is not None:
        return d * _derivative(t, X, silu)
    if gelu is not None:
        return d * exact_gelu_gradient(t)
    if relu is not None:
        return real(X, 0) if t <= real(X, 0) else d
    if alpha is not None:
        return d if t > real(X, 0) else real(X, alpha) * d
    return d


@kernel
def _planes(
    queue: Any, X: Any, scale: Any, mean: Any, inv_std: Any, B: Any, D: Any, D2: Any, Y: Any, Z: Any, out: Any,
    rounded: Any, relu: Any, silu: Any, gelu: Any, piecewise: Any, alpha: Any, channel_offsets: Any,
    reduced_offsets: Any, length: int, channels_per_task: int, reduced_per_task: int, run_per_task: int, repeats: int,
) -> None:  # fmt: skip
    """For runs of elements of one channel; see runs. Missing arrays are None."""
    channels = channel_offsets.size
    target = destination(out, X, Z)
    task = take(queue)
    while task >= 0:
        _, first_channel, last_channel, first, last, begin, end = plane_task(
            task, channels, reduced_offsets.size, length, channels_per_task, reduced_per_task, run_per_task
        )
        for index in range(first, last):
            for channel in range(first_channel, last_channel):
                offset = channel_offsets[channel] + reduced_offsets[index]
                mu, gain, bias = real(X, 0), real(X, 0), real(X, 0)
                if B is not None:
                    mu, gain = load(mean, channel), load(scale, channel) * load(inv_std, channel)
                    bias = load(B, channel)
                for at in range(offset + begin, offset + end):
                    value = _value(at, X, mu, gain, bias, B, D, D2, Y, Z, relu, silu, gelu, piecewise, alpha)
                    store(target, at, value)
                    if rounded is not None:
                        store(rounded, at, value)
        task = take(queue)


@kernel
def _columns(
    queue: Any, X: Any, scale: Any, mean: Any, inv_std: Any, B: Any, D: Any, D2: Any, Y: Any, Z: Any, out: Any,
    rounded: Any, relu: Any, silu: Any, gelu: Any, piecewise: Any, alpha: Any, channel_offsets: Any,
    reduced_offsets: Any, length: int, channels_per_task: int, reduced_per_task: int, run_per_task: int, repeats: int,
) -> None:  # fmt: skip
    """The same for columns, each its own channel."""
    target = destination(out, X, Z)
    channels = channel_offsets.size
    task = take(queue)
    while task >= 0:
        _, channel_index, first, last, begin, width = column_task(
            task, channels, reduced_offsets.size, length, reduced_per_task, run_per_task
        )
        columns = width // repeats
        mu, gain, bias = zeros(X, width), zeros(X, width), zeros(X, width)
        if B is not None:
            for column in range(width):
                channel = channel_index * length + begin + column % columns
                mu[column] = load(mean, channel)
                gain[column] = load(scale, channel) * load(inv_std, channel)
                bias[column] = load(B, channel)
        for index in range(first, last):
            offset = channel_offsets[channel_index] + reduced_offsets[index] + begin
            for column in range(min(width, X.size - offset)):
                at = offset + column
                m, g, b = load(mu, column), load(gain, column), load(bias, column)
                value = _value(at, X, m, g, b, B, D, D2, Y, Z, relu, silu, gelu, piecewise, alpha)
                store(target, at, value)
                if rounded is not None:
                    store(rounded, at, value)
        task = take(queue)


class Elements:
    """One of these passes: kinds holds Numba's types of the arrays that it has, by their names in ARRAYS; alpha is
    leaky_relu's.
    """

    def __init__(self, runs: Runs, kinds: Mapping[str, Any], activation: str, alpha: float = 0.0) -> None:
        self._runs = runs
        self._tasks = math.prod(runs.parts)
        flags = [True if activation == each else None for each in ("relu", "silu", "gelu")]
        piecewise = _PIECEWISE.get(activation)
        self._activation = [*flags, piecewise, float(alpha) if activation in ("leaky_relu", *_PIECEWISE) else None]
        self._compiled = (_columns if runs.columns else _planes)(
            QUEUE,
            *(kinds.get(name, types.none) for name in ARRAYS),
            *(_KINDS[type(each)] for each in self._activation),
            *RUNS_TYPES,
        )

    def __call__(self, arrays: Mapping[str, Any]) -> None:
        """arrays: those of `kinds`."""
        given = [arrays.get(name) for name in ARRAYS]
        threads.run(
            self._compiled, self._tasks, arrays["X"].nbytes * 3, *given, *self._activation, *self._runs.arguments
        )
