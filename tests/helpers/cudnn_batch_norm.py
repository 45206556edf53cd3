"""Batch norms in words that pass between processes, and the problems they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes  # noqa: F401  NumPy then knows bfloat16
import numpy as np

from gradkern.call import Tensor
from gradkern.ops.batch_norm.cuda.problem import Problem
from gradkern.strides import c_strides

__all__ = ["Layout", "NormCase"]

Layout = Literal["first", "last", "gaps"]


@dataclass(frozen=True)
class NormCase:
    """A batch norm's gradient: data of a type in a layout, at addresses that are multiples of `alignment`.

    first, last: channels before or after the positions; gaps: first, every row longer than is used. Vectors have
    `vector_step` elements from one to the next; scale and the gradients of the parameters have the type `parameters`.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    layout: Layout = "first"
    parameters: str = "float32"
    statistics: str = "float32"
    outputs: tuple[str, ...] = ("dX", "dScale", "dBias")
    mode: Any = "auto"
    in_place: bool = False
    alignment: int = 16
    vector_alignment: int = 16
    vector_step: int = 1
    layout_of_dY: Layout | None = None

    @classmethod
    def of(cls, words: dict[str, Any]) -> NormCase:
        given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in words.items()}
        return cls(**given)

    def problem(self) -> Problem:
        X, parameter, statistic = self._data(self.layout), self._vector(self.parameters), self._vector(self.statistics)
        of: dict[str, Any] = {"dX": X, "dScale": parameter, "dBias": parameter}
        return Problem(
            self._data(self.layout_of_dY or self.layout),
            X,
            parameter,
            statistic,
            statistic,
            **{name: of[name] for name in self.outputs},
            mode=self.mode,
            in_place=self.in_place,
        )

    def _data(self, layout: Layout) -> Tensor:
        kind = np.dtype(self.dtype)
        if layout == "last":
            batch, *positions, channels = c_strides((self.shape[0], *self.shape[2:], self.shape[1]), kind.itemsize)
            return Tensor(kind, self.shape, (batch, channels, *positions), self.alignment)
        longer = (*self.shape[:-1], self.shape[-1] + 3) if layout == "gaps" else self.shape
        return Tensor(kind, self.shape, c_strides(longer, kind.itemsize), self.alignment)

    def _vector(self, dtype: str) -> Tensor:
        kind = np.dtype(dtype)
        return Tensor(kind, (self.shape[1],), (self.vector_step * kind.itemsize,), self.vector_alignment)
