"""Conv and ConvGrad: a convolution, and its three gradients. ConvTranspose and its gradients: see `transposed`.

Conv, for image n, filter m and output position o (a tuple with one index per spatial axis):

    Y[n, m, o] = B[m] + sum over c, k of  W[m, c, k] * X[n, channel(m, c), o*strides + k*dilations - pads_begin]

where X is zero outside its bounds, c runs over C/group channels, and channel(m, c) = (m // (M/group)) * (C/group) + c.
Without B there is no bias. ConvGrad, for an upstream gradient dY of Y's shape:

    dX[n, c', i] = sum over the (m, c, k, o) with channel(m, c) = c' and o*strides + k*dilations - pads_begin = i
                   of  W[m, c, k] * dY[n, m, o]
    dW[m, c, k]  = sum over n, o of  dY[n, m, o] * X[n, channel(m, c), o*strides + k*dilations - pads_begin]
    dB[m]        = sum over n, o of  dY[n, m, o]

Arithmetic is float32 (float64 for float64), or TF32 if the policy allows it and a search finds it faster. It rounds
once, at the store. New arrays for Y and dX are channels-last in memory if X is.

Sources: ONNX, Conv 11; com.microsoft ConvGrad of ONNX Runtime Training, with the attributes of ONNX Conv.
Extensions: bfloat16, channels-last arrays by their strides, empty batches, each gradient optional.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gradkern.errors import AttributeValueError, ShapeError


def resolve(axes: Mapping[str, Any], attributes: Mapping[str, Any], names: Collection[str] = ()) -> dict[str, Any]:
    """The resolved attributes: full tuples, and pads in place of auto_pad; and `out`, if there is no dY.

    Raises ShapeError or AttributeValueError if the arrays are not those of a convolution: channels and groups that do
    not match, a kernel_shape other than W's, a dY of another shape than the forward convolution's output.
    """
    spatial, kernel = axes["spatial"], axes["kernel"]
    _check_kernel(kernel, attributes["kernel_shape"])
    strides = _per_axis(attributes["strides"], spatial)
    dilations = _per_axis(attributes["dilations"], spatial)
    if "output_padding" in attributes:
        full = {"kernel_shape": kernel, "strides": strides, "dilations": dilations}
        return _transposed(axes, {**attributes, **full})
    _check_channels(axes["C"], axes["M"], axes["C_per_group"], attributes["group"])
    extents = extents_of(kernel, dilations)
    pads = window_pads(attributes["auto_pad"], attributes["pads"], spatial, strides, extents)
    # SAME is defined by its output; everything else by its pads, and must leave room for the kernel.
    if attributes["auto_pad"].startswith("SAME"):
        out = same_size(spatial, strides)
    else:
        out = _out_size(spatial, strides, extents, pads)
    if axes.get("out", out) != out:
        raise ShapeError(f"input dY has spatial shape {axes['out']}; the forward convolution gives {out}")
    explicit = {"kernel_shape": kernel, "pads": pads, "strides": strides, "dilations": dilations, "auto_pad": "NOTSET"}
    return {**attributes, **explicit} | ({} if "out" in axes else {"out": out})


def _transposed(axes: Mapping[str, Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The resolved attributes: full tuples, pads in place of auto_pad and output_shape; and `out`, if there is no dY.

    attributes: with kernel_shape, strides and dilations as they are for every convolution. Raises ShapeError or
    AttributeValueError if the arrays are not those of a transposed convolution.
    """
    spatial, group = axes["spatial"], attributes["group"]
    if axes["C"] % group:
        raise ShapeError(f"input X has {axes['C']} channels (axis 1); C must be divisible by group, which is {group}")
    if 0 in spatial:
        raise ShapeError(f"input X has spatial shape {spatial}; every axis of it needs at least 1 element")
    given, auto_pad, shape = attributes["pads"], attributes["auto_pad"], attributes["output_shape"]
    _check_pads(given, auto_pad)
    zeros, strides = (0,) * len(spatial), attributes["strides"]
    more = attributes["output_padding"] or zeros
    extents = extents_of(axes["kernel"], attributes["dilations"])
    steps = zip(spatial, strides, extents, more, strict=True)
    whole = tuple((size - 1) * stride + extent + end for size, stride, extent, end in steps)
    if shape is not None or auto_pad.startswith("SAME"):
        out = shape or tuple(size * stride for size, stride in zip(spatial, strides, strict=True))
        totals = [max(all_of_it - size, 0) for all_of_it, size in zip(whole, out, strict=True)]
        pads = _divided(totals, auto_pad)
    else:
        pads = given or zeros * 2
        removed = zip(whole, pads[: len(spatial)], pads[len(spatial) :], strict=True)
        out = tuple(size - begin - end for size, begin, end in removed)
    if min(out) < 1:
        raise ShapeError(f"the output has spatial shape {out}, of {whole} less the pads; it needs at least 1 element")
    if axes.get("out", out) != out:
        raise ShapeError(f"input dY has spatial shape {axes['out']}; the forward transposed convolution gives {out}")
    # output_padding stands for what output_shape has beyond all windows: resolved again they are the same
    rank = len(spatial)
    more = tuple(
        size - all_of_it + end + begin + after
        for size, all_of_it, end, begin, after in zip(out, whole, more, pads[:rank], pads[rank:], strict=True)
    )
    explicit = {"output_padding": more, "output_shape": None, "pads": pads, "auto_pad": "NOTSET"}
    return {**attributes, **explicit} | ({} if "out" in axes else {"out": out})


def extents_of(kernel: tuple[int, ...], dilations: tuple[int, ...]) -> tuple[int, ...]:
    """What a window covers along each axis."""
    return tuple((size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True))


def _check_channels(channels: int, filters: int, per_group: int, group: int) -> None:
    if channels != per_group * group:
        raise ShapeError(
            f"input X has {channels} channels (axis 1); W's axis 1 is {per_group} with group {group}, "
            f"which needs {per_group * group}"
        )
    if filters % group:
        raise ShapeError(f"input W has {filters} filters (axis 0); M must be divisible by group, which is {group}")


def _check_kernel(kernel: tuple[int, ...], kernel_shape: tuple[int, ...] | None) -> None:
    if kernel_shape is not None and kernel_shape != kernel:
        raise ShapeError(f"kernel_shape {kernel_shape} disagrees with W, whose kernel is {kernel}")
    if 0 in kernel:
        raise ShapeError(f"input W has kernel {kernel}; every axis of it needs at least 1 element")


def _check_pads(pads: tuple[int, ...] | None, auto_pad: str) -> None:
    if pads is not None and auto_pad != "NOTSET":
        raise AttributeValueError(f"attribute pads is {pads} and auto_pad is {auto_pad}; only one of them may be given")


def _per_axis(values: tuple[int, ...] | None, spatial: tuple[int, ...]) -> tuple[int, ...]:
    return (1,) * len(spatial) if values is None else values


def window_pads(
    auto_pad: str,
    pads: tuple[int, ...] | None,
    spatial: tuple[int, ...],
    strides: tuple[int, ...],
    extents: tuple[int, ...],
) -> tuple[int, ...]:
    """Elements before each spatial axis and then after each, of windows that cover `extents` elements."""
    if auto_pad == "NOTSET":
        return (0,) * (2 * len(spatial)) if pads is None else pads
    _check_pads(pads, auto_pad)
    if auto_pad == "VALID":
        return (0,) * (2 * len(spatial))
    totals = [
        max((out - 1) * stride + extent - size, 0)
        for out, size, stride, extent in zip(same_size(spatial, strides), spatial, strides, extents, strict=True)
    ]
    return _divided(totals, auto_pad)


def _divided(totals: list[int], auto_pad: str) -> tuple[int, ...]:
    """Pads of these totals: of an odd one, the end has one more with SAME_UPPER, else the beginning."""
    smaller, larger = [total // 2 for total in totals], [total - total // 2 for total in totals]
    return tuple(smaller + larger if auto_pad == "SAME_UPPER" else larger + smaller)


def same_size(spatial: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Outputs along each spatial axis with auto_pad SAME_UPPER or SAME_LOWER."""
    return tuple(-(-size // stride) for size, stride in zip(spatial, strides, strict=True))


def _out_size(
    spatial: tuple[int, ...], strides: tuple[int, ...], extents: tuple[int, ...], pads: tuple[int, ...]
) -> tuple[int, ...]:
    rank = len(spatial)
    padded = tuple(size + pads[axis] + pads[rank + axis] for axis, size in enumerate(spatial))
    if any(extent > size for extent, size in zip(extents, padded, strict=True)):
        raise ShapeError(
            f"the kernel covers {extents} with dilation, larger than the padded input {padded}: "
            "the forward convolution has no output"
        )
    return tuple((size - extent) // stride + 1 for size, extent, stride in zip(padded, extents, strides, strict=True))
