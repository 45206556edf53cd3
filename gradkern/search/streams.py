"""Several candidates as one: each computes some of the outputs from some of the inputs, on one stream or on two."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from gradkern.call import Refusal
from gradkern.cuda.device import Device
from gradkern.cuda.side_stream import fork
from gradkern.search.candidate import Candidate, Note
from gradkern.search.store import SearchResult

__all__ = ["BoundCandidate", "Enqueue", "StreamsCandidate", "build", "configs", "worth_two"]

Enqueue = Callable[[tuple[int, ...], tuple[int, ...], int, int], None]
"""A callable with a Candidate's arguments: inputs, outputs, workspace and stream."""
_ALIGNED = 256
_ONE, _TWO = "one_stream", "two_streams"
_SPLIT_SECONDS = 15e-6
"""The least cost of a second stream for the host: 14 to 40 microseconds a call on the host of two H200, where the
device gained at most 6. If the host limits a training step, a smaller gain is a loss.
"""


@dataclass(frozen=True, slots=True)
class BoundCandidate:
    """A candidate, and the places of its inputs and outputs among those of a call."""

    candidate: Candidate
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    provisional: bool = False  # as of Choice

    def of_call(self) -> Enqueue:
        """Enqueues it, given all inputs and outputs of a call."""
        candidate, read, written = self.candidate, _picker(self.inputs), _picker(self.outputs)
        return lambda inputs, outputs, workspace, stream: candidate(read(inputs), written(outputs), workspace, stream)


def _picker(places: tuple[int, ...]) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    if len(places) == 1:
        place = places[0]
        return lambda every: (every[place],)
    pick: Any = itemgetter  # faster than Python code
    return pick(*places)


class StreamsCandidate:
    """Prepared candidates, run in sequence; or the first on the caller's stream and the others on a second stream."""

    def __init__(self, members: tuple[BoundCandidate, ...], device: Device, streams: int) -> None:
        self.members, self.device, self.streams = members, device, streams
        self.name = self.origin = _ONE if streams == 1 else _TWO
        self.notes: frozenset[Note] = frozenset[Note]().union(*(each.candidate.notes for each in members))
        self.recipe: Mapping[str, Any] = {"streams": streams}
        first, *others = (each.candidate.workspace for each in members)
        # concurrent candidates have separate workspaces
        self._second_workspace = -(-first // _ALIGNED) * _ALIGNED if streams == 2 else 0
        self.workspace = self._second_workspace + max(others) if streams == 2 else max(first, *others)
        self._enqueue = tuple(each.of_call() for each in members)

    def prepare(self) -> None:
        pass

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        if self.streams == 1:
            for enqueue in self._enqueue:
                enqueue(inputs, outputs, workspace, stream)
            return
        first, *others = self._enqueue
        side = fork(self.device, stream)
        side.split()
        for enqueue in others:
            enqueue(inputs, outputs, workspace + self._second_workspace, side.stream)
        first(inputs, outputs, workspace, stream)
        side.join()


def worth_two(result: SearchResult) -> bool:
    """Whether two streams save more device time than they cost the host, by a search among the two."""
    seconds = {each.name: each.seconds for each in result.ranking}
    one, two = seconds.get(_ONE), seconds.get(_TWO)
    return one is None or (two is not None and one - two > _SPLIT_SECONDS)


def configs(members: tuple[BoundCandidate, ...], device: Device) -> tuple[Mapping[str, Any], ...]:
    """The same candidates on one stream and on two."""
    return ({"streams": 1}, {"streams": 2})


def build(members: tuple[BoundCandidate, ...], device: Device, config: Mapping[str, Any]) -> StreamsCandidate:
    """The candidate of a config."""
    if config.get("streams") not in (1, 2):
        raise Refusal(f"there are one and two streams, not {config.get('streams')!r}")
    return StreamsCandidate(members, device, config["streams"])
