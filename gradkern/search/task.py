"""The input of a search: a problem, and the sources of its candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

import numpy as np

from gradkern.call import Tensor
from gradkern.cuda.device import Device
from gradkern.search.candidate import Candidate
from gradkern.system.importing import load

__all__ = [
    "Arrays",
    "CandidateModule",
    "Compiling",
    "ModuleSource",
    "Named",
    "Reference",
    "Source",
    "Task",
    "Varied",
    "Versioned",
]

Arrays = tuple[np.ndarray[Any, Any], ...]
Reference = Callable[[Arrays, Arrays], Arrays]

Problem = TypeVar("Problem")
Asked = TypeVar("Asked", contravariant=True)


class Source(Protocol):
    """A source of candidates for one problem on one device. A source that raises Refusal, a GradkernError or an
    ImportError is skipped, with that reason.

    name        unique among the sources of a task; stored beside each candidate's recipe
    version     of the candidates' libraries: a result is valid for one version only
    candidates  the most promising first
    rebuild     a candidate from its recipe
    named       a candidate from its name, if that is enough; None for other names
    variations  other settings of the algorithm of a good candidate
    """

    @property
    def name(self) -> str: ...
    def version(self) -> str: ...
    def candidates(self) -> Iterator[Candidate]: ...
    def rebuild(self, recipe: Mapping[str, Any]) -> Candidate: ...
    def named(self, name: str) -> Candidate | None: ...
    def variations(self, candidate: Candidate) -> Iterator[Candidate]: ...


class CandidateModule(Protocol[Asked]):
    """The functions of a ModuleSource's module. Versioned, Named, Varied and Compiling are optional extensions."""

    def candidates(self, problem: Asked, device: Device, /) -> Iterator[Candidate]:
        """All candidates for the problem, best first. Raises Refusal, with the reason, if there is none."""
        ...

    def rebuild(self, problem: Asked, device: Device, recipe: Mapping[str, Any], /) -> Candidate:
        """The candidate with this recipe, not yet prepared. Raises Refusal if there is none here."""
        ...


@runtime_checkable
class Versioned(Protocol):
    """A module with candidates of a library."""

    def version(self) -> str:
        """Name and version of the library: another one has other candidates, and other times for the same ones."""
        ...


@runtime_checkable
class Named(Protocol):
    """A module that can rebuild candidates from their names."""

    def named(self, problem: Any, device: Device, name: str, /) -> Candidate | None:
        """The candidate with this name, not yet prepared; None if no candidate has such a name. Raises Refusal if there
        is none here.
        """
        ...


@runtime_checkable
class Varied(Protocol):
    """A module whose candidates have more settings than `candidates` lists."""

    def variations(self, candidate: Any, /) -> Iterator[Candidate]:
        """The same algorithm with other settings, the most promising first."""
        ...


@runtime_checkable
class Compiling(Protocol):
    """A module with candidates that are, or run, gradkern's own kernels."""

    OWN_KERNELS: bool


@dataclass(frozen=True, slots=True)
class ModuleSource(Generic[Problem]):
    """The candidates of a module (a CandidateModule), imported on first use."""

    name: str
    module: str
    problem: Problem
    device: Device

    @property
    def compiles(self) -> bool:
        return isinstance(load(self.module), Compiling)

    def version(self) -> str:
        module: object = load(self.module)
        return module.version() if isinstance(module, Versioned) else ""

    def candidates(self) -> Iterator[Candidate]:
        return self._module().candidates(self.problem, self.device)

    def rebuild(self, recipe: Mapping[str, Any]) -> Candidate:
        return self._module().rebuild(self.problem, self.device, recipe)

    def named(self, name: str) -> Candidate | None:
        module: object = load(self.module)
        return module.named(self.problem, self.device, name) if isinstance(module, Named) else None

    def variations(self, candidate: Candidate) -> Iterator[Candidate]:
        module: object = load(self.module)
        return module.variations(candidate) if isinstance(module, Varied) else iter(())

    def _module(self) -> CandidateModule[Problem]:
        return cast(CandidateModule[Problem], load(self.module))


@dataclass(frozen=True, slots=True)
class Task:
    """One problem.

    kind       problems of one kind tend to have the same slow candidates: "ConvGrad dX float32 channels-last"
    detail     distinguishes it from others of its kind, in messages
    key        all that the result may depend on, besides the policy, the device and the sources' versions
    inputs, outputs   the arguments of candidates, in order
    terms      the most products that are added in one element of an output
    sources    their candidates are tried in turns, in this order
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
    sources: tuple[Source, ...]
    reference: Reference | None = None

    @property
    def title(self) -> str:
        return f"{self.kind} {self.detail}".strip()

    def source(self, name: str) -> Source:
        return next(each for each in self.sources if each.name == name)
