"""The input of a search: a problem, and its implementations, the ways to compute it that are compared. All have one
protocol.

A module is an implementation of the problems that it takes, a call of an operator or a part of one, if it has

    configs(problem, device)         its configs for the problem, best first
    build(problem, device, config)   the candidate of a config

and it may have

    supports(problem, device)        why it does not take the problem, or None: without it, `configs` raises Refusal
    variations(problem, device, config)   configs that `configs` does not list, near a good one, best first
    named(problem, device, name)     the config of the candidate with this name, if the name says it; else None
    version()                        of the library that it calls: another one has other candidates and other times
    OWN_KERNELS                      its candidates are, or run, gradkern's own kernels

A config is JSON values: searches store it. Another compiler or library for an operator is another module in the list
of a task; it is compared with the others' results and times, and chosen, or refused with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradkern.call import Refusal, Tensor
from gradkern.cuda.device import Device
from gradkern.search.candidate import Candidate
from gradkern.system.importing import load

Config = Mapping[str, Any]
Arrays = tuple[np.ndarray[Any, Any], ...]
Reference = Callable[[Arrays, Arrays], Arrays]


@dataclass(frozen=True, slots=True)
class Implementation:
    """A module, or the name of one that is imported on first use, for one problem on one device. One that raises
    Refusal, a GradkernError or an ImportError is skipped, with that reason.

    name  unique among the implementations of a task; stored beside each config
    """

    name: str
    module: Any
    problem: Any
    device: Device

    @property
    def compiles(self) -> bool:
        return bool(self._of_module("OWN_KERNELS", False))

    def version(self) -> str:
        return str(self._of_module("version", str)())

    def supports(self) -> str | None:
        """Why it does not take the problem; None if it does. Nothing is compiled or run."""
        if self._of_module("supports") is not None:
            return self._of_module("supports")(self.problem, self.device)
        try:
            next(self.candidates())
        except Refusal as refusal:
            return str(refusal)
        return None

    def candidates(self) -> Iterator[Candidate]:
        """Of all configs, best first; those that compile when they are prepared come last. Raises Refusal if there is
        none.
        """
        reasons: dict[str, None] = {}
        late: list[Candidate] = []
        found = False
        for candidate in self._built(self._configs(), reasons):
            found = True
            if "compiles" in candidate.notes:
                late.append(candidate)
            else:
                yield candidate
        yield from late
        if not found:
            raise Refusal("; ".join(reasons) or "none of its configs fits")

    def build(self, config: Config) -> Candidate:
        return self._of_module("build")(self.problem, self.device, config)

    def named(self, name: str) -> Candidate | None:
        config = self._of_module("named", _nothing)(self.problem, self.device, name)
        return None if config is None else self.build(config)

    def variations(self, candidate: Candidate) -> Iterator[Candidate]:
        """Of other configs near a good candidate's, best first."""
        configs = self._of_module("variations", _nothing)(self.problem, self.device, candidate.recipe)
        return self._built(configs or (), {})

    def _configs(self) -> Iterable[Config]:
        reason = self._of_module("supports", _nothing)(self.problem, self.device)
        if reason is not None:
            raise Refusal(reason)
        return self._of_module("configs")(self.problem, self.device)

    def _built(self, configs: Iterable[Config], reasons: dict[str, None]) -> Iterator[Candidate]:
        """The candidates of those configs that can be built; `reasons` collects those of the others."""
        for config in configs:
            try:
                yield self.build(config)
            except Refusal as refusal:
                reasons[str(refusal)] = None

    def _of_module(self, name: str, default: Any = None) -> Any:
        return getattr(load(self.module) if isinstance(self.module, str) else self.module, name, default)


def _nothing(problem: Any, device: Device, *_: Any) -> None:
    return None


def candidates_of(module: Any, problem: Any, device: Device) -> Iterator[Any]:
    """Of all configs of a module, see Implementation."""
    return Implementation("", module, problem, device).candidates()


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
