"""Conv and ConvGrad of a 1x1 convolution: three axes of the arrays as they are, and NumPy's matrix products.

Y[n] = W * X[n] + B        dX[n] = W^T * dY[n] + B        dW = sum over n of  dY[n] * X[n]^T

for each group, with positions as columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import prod

import numpy as np

from gradkern.call import Call, Refusal, Tensor
from gradkern.cpu.element_types import arithmetic
from gradkern.ops.conv.geometry import Geometry


class Pointwise:
    """Computes Y, or the wanted ones of dX and dW."""

    def __init__(self, call: Call, geometry: Geometry, limit: int) -> None:
        tensors, dtype = {**call.inputs, **call.outputs}, call.inputs["W"].dtype
        if not geometry.pointwise:
            raise Refusal("takes only 1x1 convolutions with strides of 1 and no padding")
        if dtype != arithmetic(dtype):
            raise Refusal("takes only float32 and float64")
        if not all(_is_matrices(tensors[name]) for name in ("dY", "X", "dX", "Y") if name in tensors):
            raise Refusal("takes only arrays in which each image is a matrix")
        positions = prod(geometry.spatial)
        # the shapes of the matrices
        self._weights = geometry.group, geometry.filters, geometry.channels
        self._upstream = geometry.images, geometry.group, geometry.filters, positions
        self._data = geometry.images, geometry.group, geometry.channels, positions
        products = ("Y", "X", self._data, self._upstream), ("dX", "dY", self._upstream, self._data)
        self._products = [each for each in products if each[0] in call.outputs]
        self._sums_weights = "dW" in call.outputs
        self.scratch = call.inputs["W"].nbytes  # where NumPy must copy W to view its groups
        if "dW" in call.outputs and geometry.images > 1:
            self.scratch += prod(self._weights) * dtype.itemsize
        if self.scratch > limit:
            raise Refusal(f"needs {self.scratch} bytes of scratch; the policy's workspace_limit is {limit}")

    def __call__(self, arrays: Mapping[str, np.ndarray]) -> None:
        W, B = arrays["W"].reshape(self._weights), arrays["B"]
        for name, source, shape, result in self._products:
            matrices = arrays[name].reshape(result)  # a view, see _is_matrices
            np.matmul(W.swapaxes(1, 2) if name == "dX" else W, arrays[source].reshape(shape), out=matrices)
            if B.size:
                matrices += B.reshape(*result[1:3], 1)
        if self._sums_weights:
            upstream, data, dW = arrays["dY"].reshape(self._upstream), arrays["X"].reshape(self._data), arrays["dW"]
            total = np.zeros(self._weights, dW.dtype)
            share = np.empty_like(total)
            for image in range(len(data)):
                total += np.matmul(upstream[image], data[image].swapaxes(1, 2), out=share)
            dW[...] = total.reshape(dW.shape)


def _is_matrices(tensor: Tensor) -> bool:
    """Whether each image is a matrix of channels and positions to BLAS: its spatial axes step as one axis would, and
    positions or channels are adjacent.
    """
    steps = [(size, stride) for size, stride in zip(tensor.shape[1:], tensor.strides[1:], strict=True) if size != 1]
    spatial = steps if tensor.shape[1] == 1 else steps[1:]
    one_axis = all(outer == inner * size for (_, outer), (size, inner) in pairwise(spatial))
    return tensor.size == 0 or (one_axis and tensor.dtype.itemsize in (stride for _, stride in steps))
