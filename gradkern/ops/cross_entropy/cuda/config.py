"""What the kernels of cross entropy are compiled for besides the row block's types and config."""

from __future__ import annotations

from dataclasses import dataclass

EXACT_LABELS = 1 << 24
"""Labels below are exact in float32, where they are among a row's numbers."""
LINE = 128  # bytes of memory
BLOCK, MOST_BLOCKS = 512, 256  # threads, and blocks, of the sums over rows
ARGUMENTS = (  # of their kernel
    *("labels", "weight", "ignore_index", "rows", "columns", "losses", "factors", "loss", "partials", "counter"),
)


@dataclass(frozen=True, slots=True)
class LossConfig:
    """The problem's kind, and constants of its arithmetic.

    labels     the type of the labels; "" for probabilities
    weight     the type of the weights; "" without
    by_rows    the weights are of rows, not of classes
    upstream   the type of the gradient of the loss; "" for 1
    each       there is one for each row
    mean       the loss is divided by what the kernel of sums found
    ignores    a label is ignored
    smoothing, z_loss, softcap, capped   of CrossEntropy
    weighted   with smoothing or probabilities: there are weights of classes for all columns
    gradient   the output is the gradient, not log_prob
    entropy    the second result is the entropy
    biased     with log_prob as data: the last input is added
    logit_bias  the last parameter is added to the logits
    overlaps    launches may overlap the ones before, from compute capability 9.0 on
    """

    labels: str
    weight: str
    by_rows: bool
    upstream: str
    each: bool
    mean: bool
    ignores: bool
    smoothing: float = 0.0
    z_loss: float = 0.0
    softcap: float = 0.0
    capped: bool = False
    weighted: bool = False
    gradient: bool = True
    entropy: bool = False
    biased: bool = False
    logit_bias: bool = False
    overlaps: bool = False

    @property
    def caps(self) -> bool:
        """Whether the kernel caps the logits."""
        return self.softcap > 0 and not self.capped
