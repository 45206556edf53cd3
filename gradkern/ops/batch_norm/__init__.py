"""Batch normalization in training, with the mean and variance of the batch, and its gradient.

Channels are the second axis, with m elements each. BatchNormalization:

    mean = sum of X/m,  variance = sum of (X - mean)^2/m,  both over all but the channels
    saved_mean = mean,  saved_inv_std = 1/sqrt(variance + epsilon)
    Y = act(t + Z),  t = (X - saved_mean) saved_inv_std scale + B
    running_mean = input_mean momentum + mean (1 - momentum)
    running_var = input_var momentum + variance (1 - momentum)    with unbiased=1, variance m/(m - 1)

act is none, relu (0 where t + Z <= 0; NaN stays NaN), leaky_relu (activation_alpha (t + Z) where not t + Z > 0), silu
(t/(1 + exp(-t))), relu6, hardswish, elu or gelu (t Phi(t)), as PyTorch has them. Z is an optional residual.
X, Y and Z (N, C, spatial...) have type T; scale and B (C) type T1;
running statistics type T2, and those of the batch type U. Arithmetic is float32 (float64 for float64) and rounds once,
at the store. The statistics are accurate for a mean far from 0, too. Running statistics are computed if they are named
as outputs; out={"running_mean": input_mean, ...} updates them in place. For an empty batch its statistics are 0, and
running statistics do not change.

BatchNormalizationGrad, with xh = (X - saved_mean) saved_inv_std:

    D = (dY + dY2) act'    dZ = D,  the gradient of the residual
    dBias = sum of D,  dScale = sum of D xh,  both over all but the channels
    dX = Scale saved_inv_std/m (m D - dBias - xh dScale)

dY2 is a second gradient of Y, if Y has two users. Without an activation D is dY, or dY + dY2. relu's derivative is 0
where Y <= 0, and leaky_relu's is activation_alpha where not Y > 0; NaN is treated as in PyTorch. Without a residual, B
may replace Y: t is then recomputed as in the forward pass. The others' derivatives need t, and so B, and have no
residual. dY, X, dX and the other arrays of X's shape have type T; Scale, B, dScale and dBias (C) type T1; the
statistics (C) type T2.
Arithmetic is float32 (float64 for float64). If dZ of 16 bits is requested, the other gradients may be computed from the
rounded dZ. The statistics may be any values, not only those of X. epsilon is accepted for compatibility: saved_inv_std
already includes it.

On a GPU a search finds the fastest of gradkern's kernels. Policy.kernel pins one of them by name.

If mean and variance are constants, as in inference or with running statistics, dX has only its first term:
DmlBatchNormalizationGrad, with the same sums.

Sources: ONNX, BatchNormalization 15 with training_mode=1, whose batch statistics are not outputs; ONNX Runtime
Training, BatchNormalizationGrad of com.microsoft 1, implemented with cuDNN. Extensions: activation, residual, dY2 and
unbiased; bfloat16, any rank from 2 on, channels-last arrays by their strides and without a copy, empty arrays, every
output optional, Y over X or Z, dX over dY or X, dZ over dY or dY2.

A batch in parts: synchronised batch norm
-----------------------------------------
If each device has a part of the batch, and the statistics are those of all parts, the gradient takes two steps:

    BatchNormalizationGradSums       dScale and dBias of one part
    (the caller)                     adds them up over all parts: an all-reduce
    BatchNormalizationGradFromSums   dX of one part, with m the elements of each channel in all parts

m is the attribute count, or the sum of the input counts. counts has a number for each part and stays on the device: the
host does not wait for it, and one plan serves batches of every size. Counts are not checked. Counts over 2^24 are
rounded in float32, as is everything that is computed from them.

Parts may have any sizes, and may be empty. Sums and statistics have one type, float32 for data of 16 bits: nothing is
rounded or overflows before all sums are added. The total sums are the gradients of Scale and bias, to be rounded to the
parameters' type if that is narrower. Both steps in NumPy, with two parts of different sizes:

>>> import numpy as np
>>> import gradkern
>>> random = np.random.default_rng(0)
>>> X, dY = random.standard_normal((2, 6, 3, 4, 4))
>>> scale = random.standard_normal(3)
>>> mean, inv_std = X.mean((0, 2, 3)), 1 / np.sqrt(X.var((0, 2, 3)) + 1e-5)
>>> parts = [(dY[:4], X[:4]), (dY[4:], X[4:])]

>>> sums = np.zeros((2, 3))
>>> for part in parts:
...     sums += gradkern.run("BatchNormalizationGradSums", *part, mean, inv_std)
>>> step = "BatchNormalizationGradFromSums"
>>> dX = [gradkern.run(step, *part, scale, mean, inv_std, *sums, count=6 * 4 * 4).dX for part in parts]

>>> whole = gradkern.run("BatchNormalizationGrad", dY, X, scale, mean, inv_std)
>>> bool(np.allclose(np.concatenate(dX), whole.dX, rtol=0, atol=1e-14))
True
>>> bool(np.allclose(sums, whole[1:3], rtol=0, atol=1e-13))
True

The forward pass takes three steps, with the statistics of all parts from those of each part:

    BatchNormalizationStatistics         mean, variance and m of one part, as one message of 2 C + 1 numbers
    (the caller)                         gathers the messages of all parts: an all-gather
    BatchNormalizationMergeStatistics    mean, 1/sqrt(variance + epsilon) and m of all parts; running statistics, too
    BatchNormalizationFromStatistics     Y of one part

The merge of n elements in a part and m in all is by T. F. Chan, G. H. Golub and R. J. LeVeque, Updating formulae and a
pairwise algorithm for computing sample variances, 1979,

    mean = sum of n/m mean_part,  variance = sum of n/m (variance_part + (mean_part - mean)^2)

Its running statistics are those of BatchNormalization with unbiased=1, except that the variance of one element is 0,
and that statistics of an empty batch are 0: as in PyTorch's SyncBatchNorm.

With one process for each device, as in torch.distributed, both sums of the gradient are one message, `sums`, too:

    dScale, dBias, sums = gradkern.run("BatchNormalizationGradSums", dY, X, mean, inv_std, outputs=[..., "sums"])
    torch.distributed.all_reduce(sums)
    dX = gradkern.run("BatchNormalizationGradFromSums", dY, X, scale, mean, inv_std, *sums.split(C), counts).dX

These are the two steps of torch.nn.SyncBatchNorm, batch_norm_backward_reduce and batch_norm_backward_elemt, except for
the second sum: PyTorch's is that of D (X - mean), dScale/inv_std.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf, prod
from typing import Any

from gradkern.errors import ArgumentError, AttributeValueError, ShapeError

_MOST = 2**63 - 1
DERIVATIVE_FROM_SIGN = ("relu", "leaky_relu")
"""Activations whose derivative the output's sign tells."""


def resolve(axes: Mapping[str, Any], attributes: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    """The attributes; raises AttributeValueError where the whole batch would be smaller than its part, and where its
    size is not told, or told twice, and for an infinite activation_alpha; ShapeError for statistics of no whole number
    of channels; ArgumentError for a gradient that lacks what its activation needs, or has what it does not.
    """
    if attributes.get("activation_alpha") == inf:
        raise AttributeValueError("attribute activation_alpha is inf; expected a finite number, 0 or more")
    if "dY" in names and "activation" in attributes:
        _check_activation(attributes["activation"], names)
    if "part_statistics" in names and "numbers" in axes:
        _check_message(axes["numbers"], axes.get("C"))
    if "X" in names and not {"scale", "Scale"} & {*names}:  # the steps whose result is a message to the other parts
        return {**attributes, "numbers": 2 * axes["C"] + ("dY" not in names)}
    if "count" not in attributes:
        return attributes
    if (attributes["count"] is None) != ("parts" in axes):
        came = "both are given" if "parts" in axes else "neither is given"
        raise AttributeValueError(f"attribute count and input counts stand for one another; expected one, {came}")
    part = axes["N"] * prod(axes["spatial"])
    if attributes["count"] is not None and not part <= attributes["count"] <= _MOST:
        raise AttributeValueError(
            f"attribute count is {attributes['count']}; expected {part} to {_MOST}, "
            f"as X alone has {part} elements of each channel"
        )
    return attributes


def _check_message(numbers: int, channels: int | None) -> None:
    """Of running statistics, if they are given, there are as many as of a part."""
    came = f"input part_statistics has {numbers} numbers of each part"
    if numbers % 2 == 0:
        raise ShapeError(f"{came}; expected an odd number, 2 C + 1 for C channels")
    if channels is not None and numbers != 2 * channels + 1:
        raise ShapeError(f"{came}; expected {2 * channels + 1}, as input_mean and input_var have {channels} channels")


def _check_activation(activation: str, names: Collection[str]) -> None:
    """What each activation takes: relu and leaky_relu Y, or B if there is no residual; the others B."""
    given = [name for name in ("Y", "B") if name in names]
    came = " and ".join(given) or "neither"
    if activation == "none" and given:
        raise ArgumentError(f"input {given[0]} is given with activation none, which does not need it")
    if activation in DERIVATIVE_FROM_SIGN and len(given) != 1:
        raise ArgumentError(f"activation {activation} takes input Y or input B; expected one of them, came {came}")
    if activation in DERIVATIVE_FROM_SIGN and "dZ" in names and "Y" not in names:
        raise ArgumentError(
            f"output dZ with activation {activation} needs input Y in place of B: B does not tell the residual"
        )
    if activation in ("none", *DERIVATIVE_FROM_SIGN):
        return
    if given != ["B"]:
        raise ArgumentError(f"activation {activation} takes input B and not input Y; came {came}")
    if "dZ" in names:
        raise ArgumentError(f"output dZ is wanted with activation {activation}, whose gradient has no residual")
