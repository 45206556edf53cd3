"""The decorator of functions that kernels call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from numba import cuda
from numba.cuda.core import config

from gradkern.cuda.compile import front_end
from gradkern.cuda.folding import folded

__all__ = ["device_function"]

SIMULATED = bool(config.ENABLE_CUDASIM)


def device_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that kernels call at no cost: it is always inlined. Under the simulator it runs as Python, folded as
    it would be compiled.
    """
    own = None if SIMULATED else front_end()
    if own is not None:
        return own.DeviceFunction(function)
    return cast(Any, cuda).jit(device=True, inline="always")(folded(function))
