"""Candidates that take given times to give given results, and the bench and the clock they run on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradkern.call import Refusal, Tensor
from gradkern.cuda.device import Device
from gradkern.errors import ProviderError
from gradkern.search.crosscheck import Difference
from gradkern.search.implementation import Task

TENSOR = Tensor(np.dtype("float32"), (4, 4), (16, 4), 16)
DEVICE = Device(0, (9, 0), 132, 232448)
UNWRITTEN = float("nan")


@dataclass(eq=False)
class FakeCandidate:
    """`result` stands for the outputs: 1 is right."""

    name: str
    seconds: float = 1e-3
    origin: str = ""
    result: float = 1.0
    notes: frozenset[Any] = frozenset()
    workspace: int = 0
    unfit: str = ""
    fault: str = ""  # of the device, when it runs
    variants: tuple[FakeCandidate, ...] = ()
    runs: int = 0
    prepared: int = 0
    loading: float = 0.0  # seconds that its first run takes beside
    compiling: float = 0.0  # seconds that its preparation takes
    bench: FakeBench | None = None  # whose clock goes on by them

    def __post_init__(self) -> None:
        self.origin = self.origin or self.name

    @property
    def recipe(self) -> Mapping[str, Any]:
        return {"name": self.name}

    def prepare(self) -> None:
        self.prepared += 1
        if self.bench is not None:
            self.bench.now += self.compiling
        if self.unfit:
            raise Refusal(self.unfit)

    def __call__(self, *_: Any, **__: Any) -> None:
        raise AssertionError("only a bench runs a fake")


@dataclass(frozen=True)
class FakeSource:
    name: str
    held: tuple[FakeCandidate, ...]
    revision: str = "1"
    says_all: str = ""  # the origin of candidates that can be made from their names
    device: Device = DEVICE
    compiles = False

    def version(self) -> str:
        return self.revision

    def candidates(self) -> Iterator[FakeCandidate]:
        yield from self.held

    def supports(self) -> str | None:
        return None

    def build(self, config: Mapping[str, Any]) -> FakeCandidate:
        every = [*self.held, *(each for one in self.held for each in one.variants)]
        found = [each for each in every if each.name == config["name"]]
        if not found:
            raise Refusal("it is gone")
        return found[0]

    def named(self, name: str) -> FakeCandidate | None:
        made = [each for one in self.held for each in one.variants if one.origin == self.says_all]
        return next((each for each in made if each.name == name), None)

    def variations(self, candidate: FakeCandidate) -> Iterator[FakeCandidate]:
        yield from candidate.variants


@dataclass
class FakeBench:
    """A bench whose clock goes on by what the candidates take."""

    now: float = 0.0
    order: list[str] = field(default_factory=list)
    timed: list[str] = field(default_factory=list)  # in the order of the repeats
    copies: list[float] = field(default_factory=list)
    result: float = 0.0
    closed: bool = False
    dead: bool = False
    reference: float | None = None  # what float64 says, where it is asked
    asked: list[float] = field(default_factory=list)
    asking: float = 0.0  # seconds that it takes

    def clock(self) -> float:
        return self.now

    def run(self, candidate: Any) -> float:
        self.order.append(candidate.name)
        if candidate.fault:
            self.dead = True
            raise ProviderError(candidate.fault)
        self.result = candidate.result
        return self._took(candidate)

    def times(self, candidate: Any, repeats: int) -> list[float]:
        self.timed += [candidate.name] * repeats
        return [self._took(candidate) for _ in range(repeats)]

    def _took(self, candidate: FakeCandidate) -> float:
        seconds = candidate.seconds + (0.0 if candidate.runs else candidate.loading)
        candidate.runs += 1
        self.now += seconds
        return seconds

    def complete(self) -> bool:
        return not np.isnan(self.result)

    def copy(self) -> int:
        self.copies.append(self.result)
        return len(self.copies) - 1

    def compare(self, copy: int) -> tuple[Difference, ...]:
        apart = abs(self.result - self.copies[copy])
        return (Difference(apart, apart),)

    def alive(self) -> bool:
        return not self.dead

    def errors(self, copy: int) -> tuple[float, ...] | None:
        self.asked.append(self.copies[copy])
        self.now += self.asking
        return None if self.reference is None else (abs(self.copies[copy] - self.reference),)

    def close(self) -> None:
        self.closed = True


def task(*sources: FakeSource | tuple[FakeCandidate, ...], key: str = "problem", dtype: str = "float32") -> Task:
    """A task of these sources, or of sources with these candidates."""
    made: Any = tuple(
        each if isinstance(each, FakeSource) else FakeSource(f"source{number}", each)
        for number, each in enumerate(sources)
    )
    output = Tensor(np.dtype(dtype), (4, 4), (16, 4), 16)
    return Task("a gradient", "", key, (TENSOR,), (output,), 100, made)
