"""A convolution and its gradients by candidates for channels-last arrays, with copies of arrays in other layouts.

Tensor cores need contiguous channels. cuDNN's engines for other orders convert the arrays themselves, or use no tensor
cores. Copies run at memory bandwidth, so that an engine for channels-last arrays, or gradkern's kernel for few
channels, may gain more than they cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from gradkern.call import Refusal, Tensor
from gradkern.cuda.contiguous import copy_launch
from gradkern.cuda.device import Device
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

Copies = list[tuple[int, int, Launch]]
"""For each copied array: its place among inputs or outputs, its offset in the workspace, and the launch."""


class ChannelsLastCandidate:
    """A candidate for the same problem on channels-last arrays, with the copies that it needs."""

    def __init__(self, problem: Problem, device: Device, inner: Candidate) -> None:
        self.problem, self.device, self.inner = problem, device, inner
        self.name, self.origin, self.recipe = f"{_PREFIX}{inner.name}", inner.origin, inner.recipe
        self.notes = inner.notes | _COMPILES
        self.workspace = 0
        self._before: Copies = []
        self._after: Copies = []

    def prepare(self) -> None:
        self.inner.prepare()
        self.workspace, laid = self.inner.workspace, _laid(self.problem)
        before, after = (self.problem.inputs, laid.inputs), ((laid.output,), (self.problem.output,))
        self._before = [self._copy(*each) for each in _moved(*before)]
        self._after = [self._copy(*each) for each in _moved(*after)]

    def _copy(self, place: int, source: Tensor, target: Tensor) -> tuple[int, int, Launch]:
        offset = round_up(self.workspace, _ALIGNED)
        self.workspace = offset + source.nbytes
        return place, offset, copy_launch(source, target, self.device)

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        read, written = list(inputs), list(outputs)
        for place, offset, launch in self._before:
            read[place] = workspace + offset
            launch((inputs[place], read[place]), stream)
        for place, offset, _ in self._after:
            written[place] = workspace + offset
        self.inner(tuple(read), tuple(written), workspace, stream)
        for place, _, launch in self._after:
            launch((written[place], outputs[place]), stream)


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


def build(problem: Problem, device: Device, config: Mapping[str, Any]) -> ChannelsLastCandidate:
    """A candidate from its inner candidate's config. Raises Refusal if this cuDNN or this device does not take it."""
    laid = _laid(problem)
    if "kernel" in config:
        return ChannelsLastCandidate(problem, device, few_channels.build(laid, device, config))
    inner = Untried() if isinstance(device, DryRunDevice) else cudnn.build(laid, device, config)
    return ChannelsLastCandidate(problem, device, inner)


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
