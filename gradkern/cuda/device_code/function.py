"""The decorator of functions that kernels call."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from gradkern.cuda.compile import front_end
from gradkern.cuda.device_code.alike import once_for_alike
from gradkern.cuda.front_end.folding import folded

_numba: Any = import_module("numba.cuda")  # it has no types


@once_for_alike
def device_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function that kernels call: it is always inlined. Kernels share equal functions: each is folded and
    typed once.
    """
    own = front_end()
    if own is not None:
        return own.DeviceFunction(function)
    return _numba.jit(device=True, inline="always")(folded(function))
