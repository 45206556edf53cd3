"""Candidates of gradkern's own that read memory once: see kernels/channels/persistent_kernel.py, for arrays in C order,
and channels_last_kernel.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from gradkern.call import Refusal
from gradkern.cuda.device import Device
from gradkern.cuda.launch import LaunchPlan
from gradkern.kernels.channels.channels_last_config import RowsPartition, persistent_time, streaming_time
from gradkern.kernels.channels.persistent_plan import (
    Named,
    channels_last_plan,
    fitting_partitions,
    persistent_plan,
    resident_configs,
)
from gradkern.kernels.channels.times import ChannelsLastTimes, times
from gradkern.ops.batch_norm.cuda.parts import NAMES
from gradkern.ops.batch_norm.cuda.problem import Problem
from gradkern.search.plan import PlanCandidate

OWN_KERNELS = True
_TRIED = 2
# It won the search for 45 of 49 random arrays in C order with planes of at least this many elements that fit a config,
# and for 9 of 19 with smaller planes.
_LEAST_PLANE = 128
_CERTAIN = 1.25  # predicted ratio of the streaming kernel's time, at least, for channels-last arrays: a safety margin


def configs(problem: Problem, device: Device) -> list[Mapping[str, Any]]:
    """Of the kernel for the order of the array, the fastest predicted configs. Raises Refusal, with the reasons, if
    there is none.
    """
    return [each.recipe for each in _fitting(problem, device)[:_TRIED]]


def comes_first(problem: Problem, device: Device) -> bool:
    """Whether it should be faster than the streaming kernel, and so serve calls until a search."""
    try:
        first = _fitting(problem, device)[0]
    except Refusal:
        return False
    return first.should_be_faster


def build(problem: Problem, device: Device, config: Mapping[str, Any]) -> PersistentCandidate:
    """The candidate of a config. Raises Refusal if it does not fit."""
    for each in _fitting(problem, device):
        if each.recipe == config:
            return each
    raise Refusal(f"no channel fits {config['cluster_size']} blocks")


class PersistentCandidate(PlanCandidate):
    """One launch; the order of all additions is fixed."""

    def __init__(
        self, name: str, recipe: Mapping[str, int], should_be_faster: bool, make: Callable[[], LaunchPlan]
    ) -> None:
        super().__init__(name, "gradkern persistent", recipe, make)
        self.should_be_faster = should_be_faster  # than the streaming kernel


def _fitting(problem: Problem, device: Device) -> list[PersistentCandidate]:
    if not problem.activation_recomputable:
        raise Refusal("it knows no second gradient, no residual and no activation that Y tells")
    reasons: list[str] = []
    for of_order in (_channels_first, _channels_last):
        try:
            return list(of_order(problem, device))
        except Refusal as refusal:
            reasons.append(str(refusal))
    raise Refusal("; ".join(dict.fromkeys(reasons)))


def _channels_first(problem: Problem, device: Device) -> Iterator[PersistentCandidate]:
    if problem.activation != "none":
        raise Refusal("in C order it knows no activation")
    named, is_faster = _named(problem), problem.positions >= _LEAST_PLANE
    for config, partition in resident_configs(named, device):
        make = partial(persistent_plan, config, partition, device, list(named))
        yield PersistentCandidate(
            f"persistent_{config.cluster_size}_slices", {"cluster_size": config.cluster_size}, is_faster, make
        )


def _channels_last(problem: Problem, device: Device) -> Iterator[PersistentCandidate]:
    named = _named(problem)
    for partition in fitting_partitions(named, device, problem.activation):
        cluster_size, vectors = partition.cluster_size, partition.vectors
        make = partial(channels_last_plan, partition, device, list(named))
        recipe, is_faster = {"cluster_size": cluster_size, "vectors": vectors}, _should_be_faster(partition, device)
        yield PersistentCandidate(f"persistent_{cluster_size}_slices_{vectors}_vectors", recipe, is_faster, make)


def _should_be_faster(partition: RowsPartition, device: Device) -> bool:
    of = times(ChannelsLastTimes, device.capability[0])
    return _CERTAIN * persistent_time(partition, of) < streaming_time(partition, of)


def _named(problem: Problem) -> Named:
    tensors = {name: getattr(problem, name) for name in NAMES}
    return {NAMES[name]: (name, tensor) for name, tensor in tensors.items() if tensor is not None}
