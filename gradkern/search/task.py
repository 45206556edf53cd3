"""The input of a search: a problem, and the implementations to choose from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradkern.call import Tensor
from gradkern.search.implementation import Implementation

Arrays = tuple[np.ndarray[Any, Any], ...]
Reference = Callable[[Arrays, Arrays], Arrays]


@dataclass(frozen=True, slots=True)
class Task:
    """One problem.

    kind       problems of one kind tend to have the same slow candidates: "ConvGrad dX float32 channels-last"
    detail     distinguishes it from others of its kind, in messages
    key        all that the result may depend on, besides the policy, the device and the versions of the sources
    inputs, outputs   the arguments of candidates, in order
    terms      the most products that are added in one element of an output
    sources    the implementations; their candidates are tried in turns, in this order
    reference  from the inputs as arrays, the float64 values of every output at given places; for each output an array
               of places, a row of indices each, few of them different in the first two axes. Called if candidates
               disagree
    """

    kind: str
    detail: str
    key: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    terms: int
    sources: tuple[Implementation, ...]
    reference: Reference | None = None

    @property
    def title(self) -> str:
        return f"{self.kind} {self.detail}".strip()

    def source(self, name: str) -> Implementation:
        return next(each for each in self.sources if each.name == name)
