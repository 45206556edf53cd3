"""What a search is asked: a problem, and where the candidates for it come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from gradkern.call import Tensor
from gradkern.search.candidate import Candidate

__all__ = ["ModuleSource", "Source", "Task", "Truth"]

Arrays = tuple[np.ndarray, ...]
Truth = Callable[[Arrays, Arrays], Arrays]


class Source(Protocol):
    """Where candidates for one problem on one device come from. Each may raise Unfit, or anything: it is left out then.

    name        unique among the sources of a task; the store keeps it beside each candidate's recipe
    version     of the libraries that the candidates are in: a search holds for one version only
    candidates  the most promising first
    rebuild     a candidate again, from its recipe
    variations  other settings of the algorithm of a candidate that did well
    """

    @property
    def name(self) -> str: ...
    def version(self) -> str: ...
    def candidates(self) -> Iterator[Candidate]: ...
    def rebuild(self, recipe: Mapping[str, Any]) -> Candidate: ...
    def variations(self, candidate: Candidate) -> Iterator[Candidate]: ...


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """A module's candidates(problem, which) and rebuild(problem, which, recipe), imported when first needed.

    The module may also have variations(candidate) and version().
    """

    name: str
    module: str
    problem: Any
    device: Any

    def version(self) -> str:
        asked = getattr(import_module(self.module), "version", None)
        return "" if asked is None else str(asked())

    def candidates(self) -> Iterator[Candidate]:
        return import_module(self.module).candidates(self.problem, self.device)

    def rebuild(self, recipe: Mapping[str, Any]) -> Candidate:
        return import_module(self.module).rebuild(self.problem, self.device, recipe)

    def variations(self, candidate: Candidate) -> Iterator[Candidate]:
        asked = getattr(import_module(self.module), "variations", None)
        return iter(()) if asked is None else asked(candidate)


@dataclass(frozen=True, slots=True)
class Task:
    """One problem.

    kind     problems of one kind tend to have the same slow candidates: "ConvGrad dX float32"
    detail   what tells it from others of its kind, for people to read
    key      all that the answer may depend on, beside the policy, the device and the sources' versions
    inputs, outputs   what the candidates are called with, in order
    terms    how many products are added up in one element of an output, at most
    sources  in the order in which their candidates are tried, in turns
    truth    from the inputs as arrays, the float64 values of every output at given places; for each output an array of
             places, a row of indices each, few of them different in the first two axes. Asked where candidates disagree
    """

    kind: str
    detail: str
    key: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    terms: int
    sources: tuple[Source, ...]
    truth: Truth | None = None

    @property
    def title(self) -> str:
        return f"{self.kind} {self.detail}".strip()

    def source(self, name: str) -> Source:
        return next(each for each in self.sources if each.name == name)
