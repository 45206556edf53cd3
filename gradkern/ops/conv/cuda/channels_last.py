"""A convolution and its gradients by candidates for channels-last arrays, with copies of arrays in other layouts.

Tensor cores need contiguous channels. cuDNN's engines for other orders convert the arrays themselves, or use no tensor
cores. Copies run at memory bandwidth, so that an engine for channels-last arrays, or gradkern's kernel for few
channels, may gain more than they cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

from gradkern.call import Refusal, Tensor
from gradkern.cuda.contiguous import copy_launch
from gradkern.cuda.device import Device, check, driver
from gradkern.cuda.device_code.columns import round_up
from gradkern.cuda.dry_run import DryRunDevice
from gradkern.cuda.launch import Launch
from gradkern.ops.conv.cuda import cudnn
from gradkern.ops.conv.cuda.cudnn import version as version
from gradkern.ops.conv.cuda.few_channels import candidates as few_channels
from gradkern.ops.conv.cuda.problem import Problem
from gradkern.search.candidate import Candidate, Note
from gradkern.search.dry_run import Untried
from gradkern.search.implementation import candidates_of

OWN_KERNELS = True

_PREFIX = "channels_last_"
_COMPILES: frozenset[Note] = frozenset({"compiles_once"})  # the copies' kernels
_ALIGNED = 256  # bytes: alignment of a copy
_MOST = 16
"""Engines that are tried: cuDNN's heuristics list useful ones first, and variations of the best follow."""


class Move(NamedTuple):
    """A copy between an array of the call and one in the workspace."""

    place: int  # among inputs or outputs
    held: Tensor  # in the workspace
    source: Tensor
    target: Tensor


class CopyingCandidate:
    """A candidate for another problem of the same result, with the copies before and after it.

    prefix         of the inner candidate's name
    before, after  the copies; elements of an array in the workspace that none writes are 0
    """

    def __init__(
        self, prefix: str, device: Device, inner: Candidate, before: Iterable[Move], after: Iterable[Move]
    ) -> None:
        self.device, self.inner = device, inner
        self.name, self.origin, self.recipe = f"{prefix}{inner.name}", inner.origin, inner.recipe
        self.notes = inner.notes | _COMPILES
        self.workspace = 0
        self._moves = list(before), list(after)
        self._before: list[tuple[Move, int, Launch]] = []  # with offsets in the workspace
        self._after: list[tuple[Move, int, Launch]] = []

    def prepare(self) -> None:
        self.inner.prepare()
        self.workspace = self.inner.workspace
        self._before, self._after = ([self._copy(each) for each in moves] for moves in self._moves)

    def _copy(self, move: Move) -> tuple[Move, int, Launch]:
        offset = round_up(self.workspace, _ALIGNED)
        self.workspace = offset + move.held.nbytes
        return move, offset, copy_launch(move.source, move.target, self.device)

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        read, written = list(inputs), list(outputs)
        for (place, held, source, _), offset, launch in self._before:
            read[place] = workspace + offset
            if held.size > source.size:
                check(driver.cuMemsetD8Async(read[place], 0, held.nbytes, stream), "writing zeros")
            launch((inputs[place], read[place]), stream)
        for move, offset, _ in self._after:
            written[move.place] = workspace + offset
        self.inner(tuple(read), tuple(written), workspace, stream)
        for move, _, launch in self._after:
            launch((written[move.place], outputs[move.place]), stream)


def channels_last_candidate(problem: Problem, device: Device, inner: Candidate) -> CopyingCandidate:
    """The candidate for the same problem on channels-last arrays, with copies of those in other orders."""
    laid = _laid(problem)
    before = [Move(place, other, one, other) for place, one, other in _moved(problem.inputs, laid.inputs)]
    after = [Move(place, one, one, other) for place, one, other in _moved((laid.output,), (problem.output,))]
    return CopyingCandidate(_PREFIX, device, inner, before, after)


def configs(problem: Problem, device: Device) -> Iterator[Mapping[str, Any]]:
    """Of gradkern's own kernel, if there is one, and of the most promising of cuDNN's engines for tensor cores. Raises
    Refusal if nothing would be copied, or if tensor cores do not have the type.
    """
    laid = _laid(problem)
    with suppress(Refusal):
        yield from few_channels.configs(laid, device)
    if isinstance(device, DryRunDevice):  # it only collects the copies' kernels: cuDNN may be missing
        yield Untried.recipe
        return
    found = candidates_of(cudnn, laid, device)
    if problem.dtype == "float32":
        found = (each for each in found if "tf32" in each.notes)
    yield from (each.recipe for each in islice(found, _MOST))


def build(problem: Problem, device: Device, config: Mapping[str, Any]) -> CopyingCandidate:
    """A candidate from its inner candidate's config. Raises Refusal if this cuDNN or this device does not take it."""
    laid = _laid(problem)
    if "kernel" in config:
        return channels_last_candidate(problem, device, few_channels.build(laid, device, config))
    inner = Untried() if isinstance(device, DryRunDevice) else cudnn.build(laid, device, config)
    return channels_last_candidate(problem, device, inner)


def named(problem: Problem, device: Device, name: str) -> Mapping[str, Any] | None:
    """The config of an inner candidate's name."""
    inner = name.removeprefix(_PREFIX)
    if inner == name or inner == few_channels.NAME:
        return None if inner == name else {"kernel": inner}
    return cudnn.named(_laid(problem), device, inner)


def variations(problem: Problem, device: Device, config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The candidate's engine with other knobs."""
    return iter(()) if "kernel" in config else cudnn.variations(_laid(problem), device, config)


def _laid(problem: Problem) -> Problem:
    """The problem on channels-last arrays. Raises Refusal if it is the same."""
    made = problem.channels_last
    if made == problem:
        raise Refusal("its arrays are channels-last, or tensor cores have no kernels for its type or rank")
    return made


def _moved(sources: tuple[Tensor, ...], targets: tuple[Tensor, ...]) -> Iterator[tuple[int, Tensor, Tensor]]:
    """For arrays in other layouts: the place, and the source and target of the copy."""
    pairs = enumerate(zip(sources, targets, strict=True))
    return ((place, source, target) for place, (source, target) in pairs if source != target)
