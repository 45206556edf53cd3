"""dW by its own formula, where the sums of a faster kernel are not finite.

Those kernels also multiply elements of X by zeros that stand between dY's elements and behind them, and a zero times an
infinity is a NaN that the formula does not have. Here only the formula's products are computed, by NumPy:

    dW[m, c, k] = sum over images n and outputs o of  dY[n, m, o] * X[n, c, o*strides + k*dilations - pads_begin]
"""

from __future__ import annotations

from itertools import product

import numpy as np

from gradkern.cpu.element_types import arithmetic
from gradkern.ops.conv.geometry import Geometry


def sum_products(geometry: Geometry, dY: np.ndarray, X: np.ndarray, dW: np.ndarray) -> None:
    """Compute the elements of dW, [filter, channel, tap] of float32 or float64, that are not finite. dY and X have
    three spatial axes.
    """
    compute = arithmetic(X.dtype)
    reaches = [(out - 1) * stride + 1 for out, stride in zip(geometry.out, geometry.strides, strict=True)]
    axes = zip(geometry.kernel, geometry.dilations, geometry.strides, reaches, strict=True)
    along = [[slice(k * step, k * step + reach, stride) for k in range(size)] for size, step, stride, reach in axes]
    begins = zip(along, geometry.pads_begin, geometry.spatial, strict=True)
    pads = [(0, 0), *((begin, max(0, taps[-1].stop - begin - size)) for taps, begin, size in begins)]
    total = np.zeros((geometry.taps, geometry.group, geometry.filters, geometry.channels), compute)
    for image in range(geometry.images):
        upstream = dY[image].astype(compute).reshape(geometry.group, geometry.filters, -1)
        data = np.pad(X[image].astype(compute), pads)
        for tap, place in enumerate(product(*along)):
            columns = data[:, *place].reshape(geometry.group, geometry.channels, -1)
            total[tap] += np.matmul(upstream, columns.swapaxes(1, 2))
    np.copyto(dW, np.moveaxis(total, 0, -1).reshape(dW.shape), where=~np.isfinite(dW))
