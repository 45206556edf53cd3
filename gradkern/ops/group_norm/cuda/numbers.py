"""The numbers of a channel of a sample, for the kernels: device functions that load them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import float32, float64, int64

from gradkern.cuda.device_code import intrinsics as i
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.cuda.device_code.function import device_function
from gradkern.ops.group_norm.cuda.config import GroupNormConfig

__all__ = ["number_access", "parameters_of"]


def number_access(dtype: str, compute: str, native_bfloat16: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The device functions number(address, place) and put(address, place, value), of an array of this type."""
    ITEM, FLOAT = ITEMSIZE[dtype], float64 if compute == "float64" else float32
    load, store = i.loader("global", dtype, 1), i.storer("global", dtype, 1, native_bfloat16)

    @device_function
    def number(address: int, place: int) -> Any:
        one = cuda.local.array(1, FLOAT)
        load(one, address + int64(place) * ITEM)
        return one[0]

    @device_function
    def put(address: int, place: int, value: Any) -> None:
        one = cuda.local.array(1, FLOAT)
        one[0] = value
        store(address + int64(place) * ITEM, one)

    return number, put


def parameters_of(config: GroupNormConfig) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Device functions of a channel c of a sample, with the number nc = n C + c:

    more(sample_scale, nc)                                 1 + s
    gain_and_bias(gamma, beta, sample_scale, sample_shift, c, nc)   gamma (1 + s), beta (1 + s) + t
    """
    arrays, FLOAT = config.arrays, float64 if config.compute == "float64" else float32
    GAMMA, BETA = "gamma" in arrays, "beta" in arrays
    SCALE, SHIFT = "sample_scale" in arrays, "sample_shift" in arrays
    parameter, _ = number_access(config.parameter, config.compute, config.native_bfloat16)
    of_sample, _ = number_access(config.data, config.compute, config.native_bfloat16)

    @device_function
    def more(sample_scale: int, nc: int) -> Any:
        if SCALE:
            return FLOAT(1) + of_sample(sample_scale, nc)
        return FLOAT(1)

    @device_function
    def gain_and_bias(gamma: int, beta: int, sample_scale: int, sample_shift: int, c: int, nc: int) -> Any:
        gain, bias, factor = FLOAT(1), FLOAT(0), more(sample_scale, nc)
        if GAMMA:
            gain = parameter(gamma, c)
        if BETA:
            bias = parameter(beta, c)
        gain, bias = gain * factor, bias * factor
        if SHIFT:
            bias += of_sample(sample_shift, nc)
        return gain, bias

    return more, gain_and_bias
