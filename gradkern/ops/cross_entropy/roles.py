"""What the arrays of a call are to cross entropy: one set of words for all of the family's contracts."""

from __future__ import annotations

from dataclasses import dataclass

from gradkern.call import Call


@dataclass(frozen=True, slots=True)
class Roles:
    """The contract's names; None for what a call has not.

    data           logits; log_prob where only the gradient is wanted
    labels, probabilities   one of them
    class_weight   of shape (C); row_weight of the shape of the labels
    upstream       the gradient of the loss
    bias           added to the gradient; logit_bias to the logits, one number for each class
    row_loss       losses of rows, whatever the reduction
    """

    data: str
    axis: int  # of the classes
    labels: str | None
    probabilities: str | None
    class_weight: str | None
    row_weight: str | None
    upstream: str | None
    bias: str | None
    logit_bias: str | None
    loss: str | None
    log_prob: str | None
    gradient: str | None
    row_loss: str | None
    entropy: str | None

    @property
    def forward(self) -> bool:
        """Whether the data are logits."""
        return self.data != "log_prob"


def empty_is_nan(call: Call) -> bool:
    """Whether the loss of no rows that count is NaN, as in PyTorch."""
    return call.attributes["reduction"] == "mean" and call.attributes.get("empty") == "nan"


def roles_of(call: Call) -> Roles:
    def given(*names: str) -> str | None:
        return next((name for name in names if name in call.inputs), None)

    def wanted(*names: str) -> str | None:
        return next((name for name in names if name in call.outputs), None)

    data = given("scores", "logits", "X", "log_prob")
    assert data is not None
    by_rows = "rows" in call.axes and "H" not in call.axes
    target = given("labels", "label", "probabilities")
    assert target is not None
    dense = len(call.inputs[target].shape) == len(call.inputs[data].shape)
    weight = given("weights", "weight")
    return Roles(
        data,
        len(call.inputs[data].shape) - 1 if by_rows else 1,
        labels=None if dense else target,
        probabilities=target if dense else None,
        class_weight=None if by_rows else weight,
        row_weight=weight if by_rows else None,
        upstream=given("dY"),
        bias=given("bias"),
        logit_bias=given("B"),
        loss=wanted("output", "Y", "loss"),
        log_prob=wanted("log_prob"),
        gradient=wanted("d_logits", "dX"),
        row_loss=wanted("row_loss"),
        entropy=wanted("entropy"),
    )
