"""Cross entropy of softmax and labels, or probabilities, and its gradients.

Of each row of C logits z, with L = logsumexp z, p_j = exp(z_j - L), the label y and its weight s (of its class, or of
the row; 1 without weights; 0 where y is ignore_index):

    log_prob_j = z_j - L,   loss_i = -s log_prob_y / norm
    d_logits_j = dY s / norm (exp(log_prob_j) - [j = y]) + bias_j

norm is the sum of s over all rows for the reduction mean, else 1. Where it is 0 the gradient is 0, and where no label
counts the loss is, too, as in ONNX Runtime; PyTorch's loss is NaN there. Rows of ignored labels have a log_prob as any
other. With probabilities t in place of labels, [j = y] is t_j, loss_i = -sum t_j log_prob_j / norm, and mean divides by
the number of rows.

CrossEntropy has the logits and makes the loss and its gradient, in the logits' memory if asked. With e =
label_smoothing, w the weights of classes, their sum W, zl = z_loss, and z = softcap tanh(X / softcap) where softcap is
not 0 (z = X where they are capped already), its loss of a row, before it is divided by norm, and the gradient are

    (1-e) s (L - z_y) + e/C (W L - sum w_j z_j) + zl L^2
    dz_j = (1-e) s (p_j - [j = y]) + e/C (W p_j - w_j) + 2 zl L p_j,    dX_j = dz_j (1 - (z_j / softcap)^2)

and with probabilities, whose smoothed form is t_j = w_j ((1-e) probabilities_j + e/C),

    sum t_j (L - z_j) + zl L^2,    dz_j = p_j sum t_k - t_j + 2 zl L p_j

p_y - 1 is computed as -(sum of the other exponentials) / (sum of all): a gradient keeps its digits where p_y is nearly
1.

A label outside [0, C) that is not ignore_index is a DataError on the CPU. On a GPU, where nothing waits for the data,
its row's results are NaN. A row of minus infinities, or with plus infinity or NaN, is NaN.

Arithmetic is float32 (float64 for float64) and rounds once, at the store.

Sources: ONNX, SoftmaxCrossEntropyLoss 12 and 13; ONNX Runtime Training, com.microsoft 1 and the ai.onnx 9 operators of
these names. Beyond them: all float types, int32 labels, log_prob and the gradient in place, spatial dimensions in any
memory order. CrossEntropy is gradkern's own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any

from gradkern.errors import ArgumentError, AttributeValueError


def resolve(axes: Mapping[str, Any], attributes: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    """The attributes; raises ArgumentError for CrossEntropy with neither or both of labels and probabilities, and
    AttributeValueError for a label_smoothing above 1 or a factor that is not finite.
    """
    if "label_smoothing" in attributes:
        given = [name for name in ("labels", "probabilities") if name in names]
        if len(given) != 1:
            came = " and ".join(given) or "neither"
            raise ArgumentError(
                f"input labels and input probabilities stand for one another; expected one, came {came}"
            )
        if attributes["label_smoothing"] > 1:
            raise AttributeValueError(f"attribute label_smoothing is {attributes['label_smoothing']}; expected 0 to 1")
        if attributes.get("capped") and not attributes["softcap"]:
            raise AttributeValueError("attribute capped is 1 with softcap 0; expected softcap above 0")
        for name in ("z_loss", "softcap"):
            if not isfinite(attributes[name]):
                raise AttributeValueError(f"attribute {name} is {attributes[name]}; expected a finite number")
    return attributes
