"""Several candidates as one: each computes some of the outputs from some of the inputs, on one stream or on two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gradkern.cuda.device import Device
from gradkern.cuda.side_stream import fork
from gradkern.search.candidate import Candidate, Note, Unfit

__all__ = ["Part", "Together", "TogetherSource"]

_ALIGNED = 256


@dataclass(frozen=True, slots=True)
class Part:
    """A candidate, and which of the whole's inputs and outputs are its own, in its order."""

    candidate: Candidate
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def run(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        read = tuple([inputs[place] for place in self.inputs])
        self.candidate(read, tuple([outputs[place] for place in self.outputs]), workspace, stream)


class Together:
    """Prepared parts, one after another; or the first on the caller's stream and the others beside it."""

    def __init__(self, parts: tuple[Part, ...], device: Device, streams: int) -> None:
        self.parts, self.device, self.streams = parts, device, streams
        self.name = self.origin = "one_stream" if streams == 1 else "two_streams"
        self.notes: frozenset[Note] = frozenset().union(*(part.candidate.notes for part in parts))
        self.recipe: Mapping[str, Any] = {"streams": streams}
        first, *others = (part.candidate.workspace for part in parts)
        # where the second stream's workspace begins
        self._beside = -(-first // _ALIGNED) * _ALIGNED if streams == 2 else 0
        self.workspace = self._beside + max(others) if streams == 2 else max(first, *others)

    def prepare(self) -> None:
        pass

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        if self.streams == 1:
            for part in self.parts:
                part.run(inputs, outputs, workspace, stream)
            return
        first, *others = self.parts
        side = fork(self.device, stream)
        side.split()
        for part in others:
            part.run(inputs, outputs, workspace + self._beside, side.stream)
        first.run(inputs, outputs, workspace, stream)
        side.join()


@dataclass(frozen=True, slots=True)
class TogetherSource:
    """Both ways to run the same parts."""

    parts: tuple[Part, ...]
    device: Device
    name: str = "together"

    def version(self) -> str:
        return ""

    def candidates(self) -> Iterator[Candidate]:
        yield Together(self.parts, self.device, 1)
        yield Together(self.parts, self.device, 2)

    def rebuild(self, recipe: Mapping[str, Any]) -> Candidate:
        if recipe.get("streams") not in (1, 2):
            raise Unfit(f"there are one and two streams, not {recipe.get('streams')!r}")
        return Together(self.parts, self.device, recipe["streams"])

    def variations(self, candidate: Candidate) -> Iterator[Candidate]:
        return iter(())
