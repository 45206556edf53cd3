"""A convolution in groups as one in fewer, wider groups: cuDNN's engines for channels-last arrays of 16 bits.

cuDNN computes groups of 4, 8, 16 or 32 channels; others, as the 24 of RegNetY, it transposes and pads, which takes two
to three times as long as a convolution in wider groups (bfloat16 on an H200). Channels of neighbouring groups are
neighbours in memory. So `count` groups are one group whose filters are 0 for the channels of the others: more products,
and the same arrays X and dY. Only W or dW is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from gradkern.call import Refusal, Tensor
from gradkern.cuda.device import Device
from gradkern.cuda.dry_run import DryRunDevice
from gradkern.ops.conv.cuda import cudnn
from gradkern.ops.conv.cuda.channels_last import CopyingCandidate, Move
from gradkern.ops.conv.cuda.cudnn import version as version
from gradkern.ops.conv.cuda.problem import Problem
from gradkern.search.dry_run import Untried
from gradkern.search.implementation import candidates_of
from gradkern.strides import end_to_end, memory_order

OWN_KERNELS = True

_COUNTS, _ENGINES = 2, 8  # that are tried
_WIDTH, _VECTOR = 192, 8  # channels of a merged group: about so many are fastest; they are a multiple of a vector


def configs(problem: Problem, device: Device) -> Iterator[Mapping[str, Any]]:
    """The most promising of cuDNN's engines for merged groups of a good width, then for the next best. Raises Refusal
    where no groups are to be merged.
    """
    for count in _counts(problem):
        inner = merged(problem, count)
        if isinstance(device, DryRunDevice):  # it only collects the copies' kernels: cuDNN may be missing
            yield {**Untried.recipe, "merged": count}
            continue
        for each in islice(candidates_of(cudnn, inner, device), _ENGINES):
            yield {**each.recipe, "merged": count}


def build(problem: Problem, device: Device, config: Mapping[str, Any]) -> CopyingCandidate:
    """A candidate from its inner candidate's config. Raises Refusal if this cuDNN or this device does not take it."""
    count = config["merged"]
    inner = merged(problem, count)
    candidate = Untried() if isinstance(device, DryRunDevice) else cudnn.build(inner, device, config)
    of_call, of_inner = blocks(problem.W, problem, count), blocks(inner.W, problem, count)
    is_result = problem.gradient == "dW"
    before = [] if is_result else [Move(1, inner.W, of_call, of_inner)]
    after = [Move(0, inner.W, of_inner, of_call)] if is_result else []
    made = CopyingCandidate(f"merged{count}_", device, candidate, before, after)
    made.recipe = config
    return made


def named(problem: Problem, device: Device, name: str) -> Mapping[str, Any] | None:
    """The config of an inner candidate's name."""
    prefix, _, inner = name.partition("_")
    count = prefix.removeprefix("merged")
    if not count.isdigit() or int(count) not in _counts(problem):
        return None
    found = cudnn.named(merged(problem, int(count)), device, inner)
    return None if found is None else {**found, "merged": int(count)}


def variations(problem: Problem, device: Device, config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The candidate's engine with other knobs."""
    for each in cudnn.variations(merged(problem, config["merged"]), device, config):
        yield {**each, "merged": config["merged"]}


def merged(problem: Problem, count: int) -> Problem:
    """The problem with so many groups in one."""
    geometry, (filters, channels, *taps) = problem.geometry, problem.W.shape
    W = problem.W._replace(shape=(filters, channels * count, *taps))
    wider = {"group": geometry.group // count, "channels": channels * count, "filters": geometry.filters * count}
    return replace(problem, W=end_to_end(W, memory_order(problem.W)), geometry=replace(geometry, **wider))


def blocks(W: Tensor, problem: Problem, count: int) -> Tensor:
    """The filters of all groups, of the call's W or the merged one, with axes (merged group, group in it, filter,
    channel, taps): there a group's begin at its own channels.
    """
    geometry, (of_filter, of_channel, *of_taps) = problem.geometry, W.strides
    is_merged = W.shape[1] > geometry.channels
    group = geometry.filters * of_filter
    shape = (geometry.group // count, count, geometry.filters, geometry.channels, *W.shape[2:])
    within = group + geometry.channels * of_channel * is_merged
    return W._replace(shape=shape, strides=(count * group, within, of_filter, of_channel, *of_taps))


def _counts(problem: Problem) -> tuple[int, ...]:
    """Groups that become one. Raises Refusal where none do."""
    geometry = problem.geometry
    if not problem.of_padded_groups:
        raise Refusal("groups are merged where cuDNN pads each: channels-last, 16 bits, no power of two of channels")
    counts = [each for each in range(2, geometry.group + 1) if geometry.group % each == 0]
    widths = {each: each * geometry.channels for each in counts if each * geometry.channels % _VECTOR == 0}
    if not widths:
        raise Refusal("its groups make none of whole vectors of channels")
    return tuple(sorted(widths, key=lambda count: max(widths[count] / _WIDTH, _WIDTH / widths[count]))[:_COUNTS])
