"""Max pooling with indices, and the gradients of max and average pools in one to three dimensions.

Output position o, a tuple with one index per spatial axis, has the window of input positions
o*strides - pads_begin + t*dilations, 0 <= t < kernel_shape; those inside the input count.

    MaxPool              Y[n, c, o] = the largest X of the window, of equal ones the first, NaN above all; its index
    MaxPoolGrad          dX[n, c, i] = sum of dY[n, c, o] over the o whose index is i
    AveragePoolGrad      dX[n, c, i] = sum of dY[n, c, o] / count[o] over the o whose window contains i
    GlobalAveragePoolGrad    one window, of all of the input
    AdaptiveAveragePoolGrad  windows from floor(o * input / output) to ceil((o + 1) * input / output), exclusive

Indices are of int64, flat in row-major order over all of X (ONNX) or over each of its planes (PyTorch), or of uint8,
the number of t in row-major order over kernel_shape: an eighth of the memory. One that is no element of its window is
refused on the CPU; on a GPU its dY is lost, or counts elsewhere in dX. count[o] is the number of elements inside; with
count_include_pad of those in the padded input; or divisor_override.

Every element of dX is the sum over its own windows, in one order: no atomics, the same bits each time. Arithmetic is
float32 (float64 for float64) and rounds once, at the store. dX is channels-last in memory if dY is.

DirectML's DmlAveragePoolingGrad is AveragePoolGrad, and DmlMaxPoolingGrad is MaxPool and MaxPoolGrad: it takes the
input of the forward pass in place of indices, and of equal elements the first of each window.

Sources: ONNX, MaxPool 12 and AveragePool 19; MaxPoolGrad and AveragePoolGrad of ONNX Runtime Training, with the
attributes of these; PyTorch's pools; DirectML, AVERAGE_POOLING_GRAD and MAX_POOLING_GRAD. Where nothing but the forward
pass's input has the shape of dX, it is the attribute input_size, or that of an array for dX.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import Any

from gradkern.errors import AttributeValueError, ShapeError
from gradkern.ops.conv import same_size, window_pads


def resolve(axes: Mapping[str, Any], attributes: Mapping[str, Any], names: Collection[str] = ()) -> dict[str, Any]:
    """The resolved attributes: pads in place of auto_pad; and `out`, of MaxPool.

    Raises ShapeError or AttributeValueError where dY is not the output of such a pool.
    """
    if "WindowSize" in attributes:
        resolve(axes, onnx_windows(attributes))  # the errors of ONNX's
        return dict(attributes)
    spatial = axes.get("spatial")
    if "kernel_shape" not in attributes or spatial is None:
        return dict(attributes)
    kernel, strides, dilations = (attributes[name] for name in ("kernel_shape", "strides", "dilations"))
    extents = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    pads = window_pads(attributes["auto_pad"], attributes["pads"], spatial, strides, extents)
    rank = len(spatial)
    average = "count_include_pad" in attributes
    if average and attributes["divisor_override"] == 0:
        raise AttributeValueError("attribute divisor_override is 0; nothing is divided by it")
    if not average and any(pad >= extent for pad, extent in zip(pads, 2 * extents, strict=True)):
        raise AttributeValueError(f"attribute pads is {pads}; a window covers {extents}, and has to reach the input")
    if attributes["auto_pad"].startswith("SAME"):
        out = same_size(spatial, strides)
    else:
        ceil = bool(attributes["ceil_mode"])
        out = tuple(
            _outputs(spatial[axis], pads[axis], pads[rank + axis], extents[axis], strides[axis], ceil)
            for axis in range(rank)
        )
    if min(out) < 1:
        raise ShapeError(f"a window covers {extents}, more than the padded input of {spatial}: the pool has no output")
    if axes.get("out", out) != out:
        raise ShapeError(f"input dY has spatial shape {axes['out']}; the pool of an input of {spatial} gives {out}")
    if attributes.get("indices_type") == "uint8" and prod(kernel) > 256:
        raise AttributeValueError(f"attribute kernel_shape is {kernel}; uint8 counts up to 256 elements of a window")
    return {**attributes, "pads": pads, "auto_pad": "NOTSET"} | ({} if "out" in axes else {"out": out})


def _outputs(size: int, begin: int, end: int, extent: int, stride: int, ceil: bool) -> int:
    """Rounded up, the last window still begins in the input or before it."""
    room = size + begin + end - extent
    outputs = (room + (stride - 1 if ceil else 0)) // stride + 1
    return outputs - 1 if ceil and (outputs - 1) * stride >= size + begin else outputs


def onnx_windows(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """ONNX's attributes of DirectML's windows."""
    found = {"kernel_shape": attributes["WindowSize"], "strides": attributes["Strides"]}
    found |= {"pads": (*attributes["StartPadding"], *attributes["EndPadding"]), "auto_pad": "NOTSET", "ceil_mode": 0}
    found |= {"dilations": attributes.get("Dilations", (1,) * len(attributes["Strides"]))}
    if "IncludePadding" in attributes:
        return {**found, "count_include_pad": attributes["IncludePadding"], "divisor_override": None}
    return {**found, "index_base": "plane"}
