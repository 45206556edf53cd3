"""What the kernels of a quotient's gradients are compiled for, and their arguments."""

from __future__ import annotations

from dataclasses import dataclass

AXES = 4
ARGUMENTS = (  # strides are in bytes; along the last axis all is counted in vectors
    *("dY", "X", "other", "result", "written", "count", "reduced", "span", "tiles"),
    *(
        f"{kind}_{n}"
        for kind in ("size", "dY_stride", "X_stride", "other_stride", "written_stride")
        for n in range(AXES)
    ),
)
SUM_ARGUMENTS = ("parts", "result", "count", "number")


@dataclass(frozen=True, slots=True)
class DivisionConfig:
    """Of the gradient of X, either A or B, and perhaps that of the other one, where it is of the shape of dY.

    of_B       X is B
    writes     the other one's gradient, too
    width      elements of a vector
    spread     all elements of a vector are divided by one element of the other array, or it by them
    axes       of each axis "k", if X has it, "r", if it is added up, or "1", its size
    lanes      threads of a block along what is added up; the others have a sum each, or one for each of a vector
    direct     a block's sum is the result, of type `dtype`
    in_flight  vectors that a thread has loaded before it uses the first
    """

    dtype: str
    of_B: bool
    writes: bool
    width: int
    spread: bool
    axes: str
    lanes: int
    direct: bool
    native_bfloat16: bool
    threads: int = 256
    in_flight: int = 4

    @property
    def name(self) -> str:
        return f"sums_{self.axes}_{self.threads // self.lanes}x{self.lanes}x{self.width}"

    @property
    def sums(self) -> int:
        """Of a thread."""
        return self.width if self.axes[-1] == "k" else 1
