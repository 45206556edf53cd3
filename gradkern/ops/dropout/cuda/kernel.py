"""The kernels of the gradients of masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.cuda import float32

from gradkern.cuda.device_code.function import device_function
from gradkern.kernels.elementwise.config import ElementwiseConfig, ElementwiseTypes
from gradkern.kernels.elementwise.kernel import elementwise_kernel


def build(types: ElementwiseTypes, config: ElementwiseConfig) -> Callable[..., None]:
    """The kernel for these types and this config."""
    ZERO = 0.0 if types.compute == "float64" else float32(0)

    @device_function
    def kept(d: Any, mask: Any, _: Any, r: Any) -> Any:
        return d * r[0] if mask > ZERO else ZERO

    return elementwise_kernel(types, config, kept)
