"""ConvTranspose and ConvTransposeGrad, as results of the convolution whose gradient a transposed convolution is.

That convolution reads Y and gives X, with the same weights, strides and dilations:

    Y  = B[m] + its dX, for X as its dY           dX = its Y, for dY as its X
    dW = its dW, for X as its dY and dY as its X  dB = sum of dY over n and positions

So channels and filters change places, and so do the spatial dimensions of input and output. Y has along each axis

    strides*(spatial - 1) + (kernel - 1)*dilations + 1 + output_padding - pads_begin - pads_end

positions. With output_shape, or auto_pad SAME (spatial*strides), the size is given and pads follow from it, as ONNX has
it: pads beside an output_shape have no effect. Positions that no element of X reaches are the bias, or 0.

Sources: ONNX, ConvTranspose 11; com.microsoft ConvTransposeGrad of ONNX Runtime Training. Extensions: as of ConvGrad.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gradkern.call import Call
from gradkern.errors import AttributeValueError, ShapeError

__all__ = ["NAMES", "convolution_of", "is_transposed", "resolve"]

NAMES = {"X": "dY", "dY": "X", "Y": "dX", "dX": "Y"}
"""What arrays of a transposed convolution are to the convolution; others keep their names."""


def is_transposed(call: Call) -> bool:
    return call.operator.startswith("ConvTranspose")


def convolution_of(call: Call) -> Call:
    """The call of the convolution: for its kernels, not for a provider; its operator keeps its name."""
    axes, rank = call.axes, len(call.axes["spatial"])
    seen = {**axes, "C": axes["M"], "M": axes["C"], "C_per_group": axes["M_per_group"]}
    seen |= {"spatial": axes["out"], "out": axes["spatial"]}
    begins = call.attributes["pads"][:rank]
    extents = _extents(axes["kernel"], call.attributes["dilations"])
    sizes = zip(axes["spatial"], axes["out"], call.attributes["strides"], extents, begins, strict=True)
    # With these it gives X's size exactly. They are negative where Y has positions beyond all windows.
    ends = [(size - 1) * stride + extent - begin - out for size, out, stride, extent, begin in sizes]
    # Positions that are fewer than a stride make no window: pads of 0 serve these.
    ends = [0 if -stride < end < 0 else end for end, stride in zip(ends, call.attributes["strides"], strict=True)]
    return replace(
        call,
        inputs={NAMES.get(name, name): each for name, each in call.inputs.items()},
        outputs={NAMES.get(name, name): each for name, each in call.outputs.items()},
        axes=seen,
        attributes={**call.attributes, "pads": (*begins, *ends)},
    )


def resolve(axes: Mapping[str, Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
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
    if given is not None and auto_pad != "NOTSET":
        raise AttributeValueError(
            f"attribute pads is {given} and auto_pad is {auto_pad}; only one of them may be given"
        )
    zeros, strides = (0,) * len(spatial), attributes["strides"]
    more = attributes["output_padding"] or zeros
    extents = _extents(axes["kernel"], attributes["dilations"])
    steps = zip(spatial, strides, extents, more, strict=True)
    whole = tuple((size - 1) * stride + extent + end for size, stride, extent, end in steps)
    if shape is not None or auto_pad.startswith("SAME"):
        out = shape or tuple(size * stride for size, stride in zip(spatial, strides, strict=True))
        totals = [max(all_of_it - size, 0) for all_of_it, size in zip(whole, out, strict=True)]
        smaller, larger = [total // 2 for total in totals], [total - total // 2 for total in totals]
        pads = tuple(smaller + larger if auto_pad == "SAME_UPPER" else larger + smaller)
    else:
        pads = given or zeros * 2
        removed = zip(whole, pads[: len(spatial)], pads[len(spatial) :], strict=True)
        out = tuple(size - begin - end for size, begin, end in removed)
    if min(out) < 1:
        raise ShapeError(f"the output has spatial shape {out}, of {whole} less the pads; it needs at least 1 element")
    if axes.get("out", out) != out:
        raise ShapeError(f"input dY has spatial shape {axes['out']}; the forward transposed convolution gives {out}")
    return {**attributes, "output_padding": more, "output_shape": out, "pads": pads, "auto_pad": "NOTSET"} | (
        {} if "out" in axes else {"out": out}
    )


def _extents(kernel: tuple[int, ...], dilations: tuple[int, ...]) -> tuple[int, ...]:
    return tuple((size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True))
