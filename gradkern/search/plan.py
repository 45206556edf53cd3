"""The plan of a call with kernels chosen by searches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from gradkern.call import Launching, Plan, Refusal, Repeatable
from gradkern.cuda.device import Device, OutOfMemoryError, activate, check, driver, in_turn, is_current
from gradkern.cuda.recording import Recording
from gradkern.cuda.scratch import scratch
from gradkern.cuda.torch_memory import LARGE, borrow, give_back
from gradkern.errors import ProviderError
from gradkern.search.candidate import Candidate, Note
from gradkern.search.store import SearchResult
from gradkern.search.tuner import Choice

Choices = Mapping[str, Choice]
"""The chosen candidates, by their results."""
Enqueue = Callable[[tuple[int, ...], tuple[int, ...], int, int], None]
"""A callable with a Candidate's arguments: inputs, outputs, workspace and stream."""


@dataclass(frozen=True, slots=True)
class BoundCandidate:
    """A candidate, and the places of its inputs and outputs among those of a call."""

    candidate: Candidate
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

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


class SearchPlan:
    """Runs the winners one after another, with scratch memory of the stream, or of PyTorch's allocator for large
    workspaces. Writes zeros for gradients without terms.

    bind   the choices as candidates on the call's arrays
    zeros  (place among the outputs, bytes) of outputs that are zero
    """

    def __init__(
        self,
        device: Device,
        choices: Choices,
        bind: Callable[[Choices], tuple[BoundCandidate, ...]],
        zeros: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self.choices = dict(choices)
        self._device, self._bind, self._zeros = device, bind, zeros
        self._make_ready()

    def _make_ready(self) -> None:
        """Prepare what every call needs."""
        bound = self._bind(self.choices)
        self._enqueue = tuple(each.of_call() for each in bound)
        self._bytes = max((each.candidate.workspace for each in bound), default=0)

    @property
    def kernel(self) -> str:
        """The winner for each result, as a policy can pin them."""
        return "; ".join(f"{name}: {each.candidate.name}" for name, each in self.choices.items()) or "zeros"

    @property
    def scratch(self) -> int:
        return self._bytes

    @property
    def REPEATABLE(self) -> bool:
        """See gradkern.call.Repeatable."""
        found = [each.candidate for each in self.choices.values()]
        return not self._zeros and all(isinstance(each, Repeatable) and each.REPEATABLE for each in found)

    @property
    def provisional(self) -> bool:
        """Whether a search may still choose other candidates."""
        return any(choice.provisional for choice in self.choices.values())

    @property
    def results(self) -> Mapping[str, SearchResult | None]:
        """The result of the search that chose the kernel, by output."""
        return {name: choice.result for name, choice in self.choices.items()}

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        if not is_current(self._device):
            with activate(self._device):
                self(inputs, outputs, stream)
            return
        with in_turn:
            workspace, lent = self._workspace(stream) if self._bytes else (0, False)
            try:
                for enqueue in self._enqueue:
                    enqueue(inputs, outputs, workspace, stream)
            finally:
                if lent:
                    give_back(workspace)
            for place, size in self._zeros:
                check(driver.cuMemsetD8Async(outputs[place], 0, size, stream), "writing zeros")

    def _workspace(self, stream: int) -> tuple[int, bool]:
        """The address of the workspace, and whether it must be returned. If it cannot be allocated, the next candidates
        with smaller workspaces replace the current ones.
        """
        while True:
            try:
                large = self._bytes > LARGE and not isinstance(stream, Recording)
                lent = borrow(self._device, stream, self._bytes) if large else None
                return (scratch(self._device, stream, self._bytes)[1], False) if lent is None else (lent, True)
            except OutOfMemoryError as error:
                name = max(self.choices, key=lambda each: self.choices[each].candidate.workspace)
                try:
                    self.choices[name] = self.choices[name].smaller()
                    self._make_ready()
                except Refusal as unfit:
                    raise ProviderError(f"{error}; no other kernel for {name}: {unfit}") from error


class PlanCandidate:
    """A plan as a candidate. It takes its scratch memory itself: `workspace` says how much; what is given is not used.

    origin, recipe: as of Candidate
    make            makes the plan; compiles its kernels
    """

    notes: frozenset[Note] = frozenset({"compiles_once"})

    def __init__(self, name: str, origin: str, recipe: Mapping[str, Any], make: Callable[[], Plan]) -> None:
        self.name, self.origin, self.recipe = name, origin, recipe
        self.workspace = 0
        self.alone: Plan | None = None
        self._make = make

    @property
    def REPEATABLE(self) -> bool:
        """See gradkern.call.Repeatable."""
        return isinstance(self.alone, Repeatable) and self.alone.REPEATABLE

    @property
    def kernel(self) -> str:
        """The name that Policy.kernel pins it by."""
        return self.name

    def prepare(self) -> None:
        if self.alone is None:
            self.alone = self._make()
            self.workspace = self.alone.scratch

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        if self.alone is None:
            raise RuntimeError("prepare has not been called")
        self.alone(inputs, outputs, stream)


class WinnerPlan(SearchPlan):
    """One winner computes all results of a call."""

    def __init__(self, device: Device, choice: Choice, results: str) -> None:
        super().__init__(device, {results: choice}, _bound)
        # the plan of gradkern's own kernels: without the search's plan around it, it costs the host far less
        self._alone: Plan | None = getattr(choice.candidate, "alone", None)

    @property
    def kernel(self) -> str:
        candidate: Any = next(iter(self.choices.values())).candidate
        return candidate.kernel if isinstance(candidate, PlanCandidate) else candidate.name

    @property
    def scratch(self) -> int:
        return super().scratch if self._alone is None else self._alone.scratch

    @property
    def launches(self) -> tuple[Any, ...]:
        """Of a kernel of gradkern's own; what libraries launch is not known."""
        return self._alone.launches if isinstance(self._alone, Launching) else ()

    @property
    def within(self) -> Plan:
        return self if self._alone is None else self._alone

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], stream: int) -> None:
        if self._alone is not None:
            self._alone(inputs, outputs, stream)
        else:
            super().__call__(inputs, outputs, stream)


def _bound(choices: Choices) -> tuple[BoundCandidate, ...]:
    (choice,) = choices.values()
    task = choice.task
    return (BoundCandidate(choice.candidate, tuple(range(len(task.inputs))), tuple(range(len(task.outputs)))),)
