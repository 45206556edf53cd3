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

from dataclasses import replace

from gradkern.call import Call
from gradkern.ops.conv import extents_of

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
    extents = extents_of(axes["kernel"], call.attributes["dilations"])
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
