"""Group normalization and its gradient; instance normalization is the one with a group for each channel.

A sample's channels are divided into groups of C/G, with m elements each:

    mean = sum of X/m,  variance = sum of (X - mean)^2/m,  both over a group of a sample
    inv_std = 1/sqrt(variance + epsilon),  xh = (X - mean) inv_std
    Y = act((xh gamma + beta) (1 + s) + t)

gamma and beta (C) are parameters of a channel; s and t (N, C), sample_scale and sample_shift, are numbers of a sample's
channel, as the time embedding of diffusion models. Whatever is not given has no effect. act is one of
batch norm's or gelu. SkipGroupNorm normalizes S = X + skip + bias, rounded to the type of X, and gives it out.

GroupNormGrad, with D = dY act'((xh gamma + beta) (1 + s) + t) and A = gamma (1 + s):

    P = sum of D,  Q = sum of D xh,  both over one channel of one sample
    dX = inv_std (A D - sum of A P/m - xh sum of A Q/m) + residual_grad,  the sums over the channels of a group
    dgamma = sum of (1 + s) Q,  dbeta = sum of (1 + s) P,  both over the batch
    sample_scale_grad = gamma Q + beta P,  sample_shift_grad = P

Q is a sum of products with xh. PyTorch's sums of D X and of D cancel where the mean is much larger than the deviation.
The statistics are accurate for such data, too: a mean, then squares of deviations from it. They may have any values in
the gradient. A group of one element has dX = 0 (with residual_grad, that). Of an empty batch sums are 0, and of groups
of nothing the statistics are 0.

Data has type T; gamma, beta and their gradients type M; statistics type U. Arithmetic is float32 (float64 for float64)
and rounds once, at the store.

Sources: ONNX, GroupNormalization 21 and InstanceNormalization 6; ONNX Runtime, GroupNorm and SkipGroupNorm of
com.microsoft 1, without a gradient there. Beyond them: statistics as outputs, activations, sample_scale and
sample_shift, one to three spatial dimensions or none, bfloat16 and float64, channels-last arrays by their strides
and without a copy, empty arrays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from typing import Any

from gradkern.errors import ArgumentError, AttributeValueError


def resolve(axes: Mapping[str, Any], attributes: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    """The attributes. Raises AttributeValueError for an infinite activation_alpha, ArgumentError for a gradient of an
    activation without the beta that its derivative depends on, and for dgamma or dbeta without gamma.
    """
    if attributes.get("activation_alpha") == inf:
        raise AttributeValueError("attribute activation_alpha is inf; expected a finite number, 0 or more")
    if "dY" in names:
        if attributes["activation"] != "none" and "gamma" in names and "beta" not in names:
            raise ArgumentError(
                f"activation {attributes['activation']} takes input beta where gamma is given; it is not given"
            )
        for output in ("dgamma", "dbeta"):
            if output in names and "gamma" not in names:
                raise ArgumentError(f"output {output} is wanted without input gamma")
    return attributes


def activation_of(attributes: Mapping[str, Any]) -> str:
    """The activation's name; GroupNorm's is a number."""
    activation = attributes["activation"]
    return ("none", "silu")[activation] if isinstance(activation, int) else activation
