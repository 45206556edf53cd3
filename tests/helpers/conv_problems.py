"""A convolution, or a gradient of it, from its tensors, as the candidates of the CUDA provider see it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gradkern.call import Tensor
from gradkern.ops.conv.cuda.problem import Problem
from gradkern.ops.conv.geometry import Geometry


def conv_problem(
    gradient: Any,
    dY: Tensor,
    X: Tensor,
    W: Tensor,
    group: int = 1,
    strides: tuple[int, ...] = (),
    dilations: tuple[int, ...] = (),
    pads_begin: tuple[int, ...] = (),
    pads_end: tuple[int, ...] = (),
    B: Tensor | None = None,
) -> Problem:
    """dY is Y in a forward pass. With strides and dilations of 1 and without padding, where nothing is given."""
    ones, zeros = (1,) * (len(X.shape) - 2), (0,) * (len(X.shape) - 2)
    axes = {"N": X.shape[0], "M": W.shape[0], "C_per_group": W.shape[1]}
    axes |= {"spatial": X.shape[2:], "kernel": W.shape[2:], "out": dY.shape[2:]}
    attributes = {"group": group, "strides": strides or ones, "dilations": dilations or ones}
    attributes |= {"pads": (*(pads_begin or zeros), *(pads_end or zeros))}
    geometry = Geometry.of(axes, attributes)
    if gradient == "Y":
        return Problem("Y", dY, X, W, geometry, B)
    return Problem(gradient, dY, X, W, geometry)


def bias_problem(dY: Tensor, dB: Tensor) -> Problem:
    """dB of a 1x1 convolution with as many channels as filters."""
    W = dY._replace(shape=(dY.shape[1], *dY.shape[1:2], *[1] * (len(dY.shape) - 2)))
    return replace(conv_problem("dB", dY, dY, W), B=dB)
