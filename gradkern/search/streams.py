"""Several candidates as one: each computes some of the outputs from some of the inputs, on one stream or on two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gradkern.cuda.device import Device
from gradkern.cuda.side_stream import fork
from gradkern.search.candidate import Candidate, Note, Unfit

__all__ = ["BoundCandidate", "StreamsCandidate", "StreamsSource"]

_ALIGNED = 256


@dataclass(frozen=True, slots=True)
class BoundCandidate:
    """A candidate, and which of a call's inputs and outputs are its own, in its order."""

    candidate: Candidate
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    provisional: bool = False  # as of Choice

    def run(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        read = tuple([inputs[place] for place in self.inputs])
        self.candidate(read, tuple([outputs[place] for place in self.outputs]), workspace, stream)


class StreamsCandidate:
    """Prepared candidates, one after another; or the first on the caller's stream and the others on a second one."""

    def __init__(self, members: tuple[BoundCandidate, ...], device: Device, streams: int) -> None:
        self.members, self.device, self.streams = members, device, streams
        self.name = self.origin = "one_stream" if streams == 1 else "two_streams"
        self.notes: frozenset[Note] = frozenset[Note]().union(*(each.candidate.notes for each in members))
        self.recipe: Mapping[str, Any] = {"streams": streams}
        first, *others = (each.candidate.workspace for each in members)
        # what runs at the same time has workspaces apart
        self._second_workspace = -(-first // _ALIGNED) * _ALIGNED if streams == 2 else 0
        self.workspace = self._second_workspace + max(others) if streams == 2 else max(first, *others)

    def prepare(self) -> None:
        pass

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        if self.streams == 1:
            for each in self.members:
                each.run(inputs, outputs, workspace, stream)
            return
        first, *others = self.members
        side = fork(self.device, stream)
        side.split()
        for each in others:
            each.run(inputs, outputs, workspace + self._second_workspace, side.stream)
        first.run(inputs, outputs, workspace, stream)
        side.join()


@dataclass(frozen=True, slots=True)
class StreamsSource:
    """The same candidates on one stream and on two."""

    members: tuple[BoundCandidate, ...]
    device: Device
    name: str = "streams"

    def version(self) -> str:
        return ""

    def candidates(self) -> Iterator[Candidate]:
        yield StreamsCandidate(self.members, self.device, 1)
        yield StreamsCandidate(self.members, self.device, 2)

    def rebuild(self, recipe: Mapping[str, Any]) -> Candidate:
        if recipe.get("streams") not in (1, 2):
            raise Unfit(f"there are one and two streams, not {recipe.get('streams')!r}")
        return StreamsCandidate(self.members, self.device, recipe["streams"])

    def variations(self, candidate: Candidate) -> Iterator[Candidate]:
        return iter(())
