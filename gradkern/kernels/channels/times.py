"""Coefficients of the cost models that choose between configs: data for an architecture, in times.json.

`tools/fit.py MODEL` measures configs on the GPU at hand, fits the coefficients to their times and writes them there.
Times are microseconds, bandwidths bytes per microsecond.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

DATA = Path(__file__).with_name("times.json")


@dataclass(frozen=True, slots=True)
class ChannelsLastTimes:
    """Of the persistent kernel of channels-last arrays, and of the streaming kernel in its stead."""

    launch: float
    round: float  # for every item of a block
    exchange: float  # for every item of a cluster
    doubling: float  # for every doubling of the cluster size
    bandwidth: float
    short_rows: float  # overhead of a block's part of a row, in bytes
    block_bandwidth: float  # of one block
    step: float  # for a row of each thread
    launch_by_registers: float  # these two for vectors of one 2-byte element
    step_by_registers: float
    streaming: float  # the streaming kernel's launch
    streamed: float  # and its bandwidth


@dataclass(frozen=True, slots=True)
class SinglePassTimes:
    """Of the persistent kernel in one pass, and of the streaming kernel."""

    launch: float
    round: float  # for every item of a block: its first bytes, its sums
    doubling: float  # for every doubling of the cluster size: blocks wait for each other
    bandwidth: float
    slower: float  # share of bandwidth lost with such a doubling: distant images are read at the same time
    short_rows: float  # share lost is this / bytes of a copy, for each doubling and `unclustered` more
    unclustered: float
    cramped: float  # share of bandwidth lost with a ring of few slots
    block_bandwidth: float  # of one block
    copy: float  # of one block, for each copy
    edges: float  # remaining share of one block's bandwidth where planes of 2-byte elements have edges
    block_vectors: float  # per microsecond and block: a limit for vectors of one element, never for those of 16 bytes
    streaming: float  # of the streaming kernel, besides its bytes: the launch, and partial sums through memory
    few_streamed: float  # factor of its time for its bytes with few images


Times = TypeVar("Times", ChannelsLastTimes, SinglePassTimes)


def name_of(kind: type) -> str:
    """The model's name in times.json and of tools/fit.py."""
    return {ChannelsLastTimes: "channels_last", SinglePassTimes: "single_pass"}[kind]


@cache
def times(kind: type[Times], major: int = 9) -> Times:
    """The coefficients for GPUs of this major compute capability, or those of the nearest one that was measured."""
    measured = json.loads(DATA.read_text(encoding="utf-8"))[name_of(kind)]
    nearest = min(measured, key=lambda each: abs(int(each) - major))
    return kind(**measured[nearest]["coefficients"])
