"""A convolution and its gradients by candidates for rearranged arrays, with copies around them: channels-last arrays,
or fewer, wider groups.

Tensor cores need contiguous channels. cuDNN's engines for other orders convert the arrays themselves, or use no tensor
cores. Copies run at memory bandwidth, so that an engine for channels-last arrays, or gradkern's kernel for few
channels, may gain more than they cost.

Of channels-last arrays of 16 bits cuDNN computes groups of 4, 8, 16 or 32 channels; others, as the 24 of RegNetY, it
transposes and pads: two to three times the time of a convolution in wider groups (bfloat16 on an H200).
Channels of neighbouring groups are neighbours in memory. So `count` groups are one group whose filters are 0 for the
channels of the others: more products, and the same arrays X and dY. Only W or dW is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
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
from gradkern.strides import end_to_end, memory_order

OWN_KERNELS = True

_COMPILES: frozenset[Note] = frozenset({"compiles_once"})  # the copies' kernels
_ALIGNED = 256  # bytes: alignment of a copy
_MOST, _MOST_MERGED = 16, 8
"""Engines that are tried for channels-last arrays, and for each of _COUNTS widths of groups: cuDNN's heuristics list
useful ones first, and variations of the best follow.
"""
_COUNTS = 2
_WIDTH, _VECTOR = 192, 8  # channels of a merged group: about so many are fastest; they are a multiple of a vector


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


def copying(problem: Problem, count: int, device: Device, inner: Candidate) -> CopyingCandidate:
    """A candidate for the problem from one for that of rearranged(problem)[count]."""
    other = rearranged(problem)[count]
    before = [Move(place, held, own, view) for place, held, own, view in _moved(problem, problem.inputs, other.inputs)]
    outputs = (problem.output,), (other.output,)
    after = [Move(place, held, view, own) for place, held, own, view in _moved(problem, *outputs)]
    return CopyingCandidate(_prefix(count), device, inner, before, after)


def configs(problem: Problem, device: Device) -> Iterator[Mapping[str, Any]]:
    """Of gradkern's own kernel, if there is one, and of the most promising of cuDNN's engines for tensor cores. Raises
    Refusal if nothing would be copied, or if tensor cores do not have the type.
    """
    for count, other in rearranged(problem).items():
        if count == 1:
            with suppress(Refusal):
                yield from few_channels.configs(other, device)
        if isinstance(device, DryRunDevice):  # it only collects the copies' kernels: cuDNN may be missing
            yield {**Untried.recipe, **_merging(count)}
            continue
        found = candidates_of(cudnn, other, device)
        if problem.dtype == "float32":
            found = (each for each in found if "tf32" in each.notes)
        for each in islice(found, _MOST if count == 1 else _MOST_MERGED):
            yield {**each.recipe, **_merging(count)}


def build(problem: Problem, device: Device, config: Mapping[str, Any]) -> CopyingCandidate:
    """A candidate from its inner candidate's config. Raises Refusal if this cuDNN or this device does not take it."""
    count, other = _of_config(problem, config)
    inner: Candidate
    if "kernel" in config:
        inner = few_channels.build(other, device, config)
    else:
        inner = Untried() if isinstance(device, DryRunDevice) else cudnn.build(other, device, config)
    made = copying(problem, count, device, inner)
    made.recipe = config
    return made


def named(problem: Problem, device: Device, name: str) -> Mapping[str, Any] | None:
    """The config of an inner candidate's name."""
    for count, other in rearranged(problem).items():
        inner = name.removeprefix(_prefix(count))
        if inner == few_channels.NAME != name:
            return {"kernel": inner}
        if inner != name and (found := cudnn.named(other, device, inner)) is not None:
            return {**found, **_merging(count)}
    return None


def variations(problem: Problem, device: Device, config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The candidate's engine with other knobs."""
    if "kernel" not in config:
        count, other = _of_config(problem, config)
        for each in cudnn.variations(other, device, config):
            yield {**each, **_merging(count)}


def rearranged(problem: Problem) -> dict[int, Problem]:
    """The problems whose candidates compute its result, the most promising first, by the number of its groups that are
    one of theirs: with 1 it is the problem on channels-last arrays. Raises Refusal if there is none.
    """
    if problem.channels_last != problem:
        return {1: problem.channels_last}
    geometry = problem.geometry
    if not problem.of_padded_groups:
        raise Refusal("its arrays are channels-last, or tensor cores have no kernels for its type or rank")
    counts = [each for each in range(2, geometry.group + 1) if geometry.group % each == 0]
    widths = {each: each * geometry.channels for each in counts if each * geometry.channels % _VECTOR == 0}
    if not widths:
        raise Refusal("its groups make none of whole vectors of channels")
    best = sorted(widths, key=lambda count: max(widths[count] / _WIDTH, _WIDTH / widths[count]))[:_COUNTS]
    return {count: _merged(problem, count) for count in best}


def _merged(problem: Problem, count: int) -> Problem:
    """The problem with so many groups in one."""
    geometry, (filters, channels, *taps) = problem.geometry, problem.W.shape
    W = problem.W._replace(shape=(filters, channels * count, *taps))
    wider = {"group": geometry.group // count, "channels": channels * count, "filters": geometry.filters * count}
    return replace(problem, W=end_to_end(W, memory_order(problem.W)), geometry=replace(geometry, **wider))


def _of_config(problem: Problem, config: Mapping[str, Any]) -> tuple[int, Problem]:
    count = config.get("merged", 1)
    other = rearranged(problem).get(count)
    if other is None:
        raise Refusal(f"it has no candidates for {count} groups in one")
    return count, other


def _merging(count: int) -> Mapping[str, Any]:
    """What a config has besides that of the inner candidate."""
    return {} if count == 1 else {"merged": count}


def _prefix(count: int) -> str:
    """Of a candidate's name, before that of the inner candidate."""
    return "channels_last_" if count == 1 else f"merged{count}_"


def _moved(
    problem: Problem, own: tuple[Tensor, ...], other: tuple[Tensor, ...]
) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
    """Of arrays that are different for another problem: the place, that problem's array, and views of both whose
    elements are the same.
    """
    for place, (one, held) in enumerate(zip(own, other, strict=True)):
        if one != held:
            same = one.shape == held.shape
            yield place, held, *((one, held) if same else (_blocks(one, problem, held), _blocks(held, problem, held)))


def _blocks(W: Tensor, problem: Problem, merged: Tensor) -> Tensor:
    """The filters of all groups, of the call's W or the merged one, with axes (merged group, group in it, filter,
    channel, taps): there a group's begin at its own channels.
    """
    geometry, (of_filter, of_channel, *of_taps) = problem.geometry, W.strides
    count, group = merged.shape[1] // geometry.channels, geometry.filters * of_filter
    shape = (geometry.group // count, count, geometry.filters, geometry.channels, *W.shape[2:])
    within = group + geometry.channels * of_channel * (W.shape[1] > geometry.channels)
    return W._replace(shape=shape, strides=(count * group, within, of_filter, of_channel, *of_taps))
