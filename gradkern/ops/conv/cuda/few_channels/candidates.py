"""Candidates for the dW of a convolution of few channels on tensor cores, see `kernel`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from gradkern.call import Refusal, Tensor
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import round_up
from gradkern.ops.conv.cuda.depthwise.tiling import REGISTERS, RESERVED
from gradkern.ops.conv.cuda.few_channels.config import FILTERS, OCTET, FewChannelsConfig
from gradkern.ops.conv.cuda.launch_candidate import LaunchCandidate, runs_of_rows
from gradkern.ops.conv.cuda.problem import Problem
from gradkern.ops.conv.geometry import Axes

OWN_KERNELS = True
NAME = "few_channels"
_BUILDER = "gradkern.ops.conv.cuda.few_channels.kernel:build"
_MOST_ROW_TAPS, _MOST_PLACE_TILES = 8, 5
_MOST_FILTERS, _ENOUGH_FILTERS = 64, 32  # of a block; with fewer, X is read and converted to words too often
_VECTORS = (16, 8, 4, 2)  # bytes that a row of X is copied by
_SMALL = 128 * 1024  # bytes of shared memory; the assembler needs more registers for smaller devices
_MOST_BLOCKS = 8  # of a multiprocessor
_THREADS = 384  # of a multiprocessor, enough to keep it busy
_OTHER_REGISTERS = 44  # of a thread, besides its sums and operands


def configs(problem: Problem, device: Device) -> tuple[Mapping[str, Any], ...]:
    """The one there is. Raises Refusal if it does not fit."""
    config_of(problem, device)
    return ({"kernel": NAME},)


def build(problem: Problem, device: Device, config: Mapping[str, Any]) -> LaunchCandidate:
    """The kernel for this problem. Raises Refusal if there is none."""
    made, images = config_of(problem, device), problem.geometry.images
    shares = partial(runs_of_rows, made, images)
    return LaunchCandidate(_BUILDER, made, device, images, shares, NAME, "gradkern few channels", config)


def config_of(problem: Problem, device: Device) -> FewChannelsConfig:
    """Raises Refusal where there is none."""
    reason = _unsupported(problem, device)
    if reason:
        raise Refusal(reason)
    found = [_resident(made, device) for made in _by_filters(problem) if made.shared_bytes <= device.shared_bytes]
    if not found:
        raise Refusal("its rows have no room in shared memory")
    if found[0].place_tiles > _MOST_PLACE_TILES:
        raise Refusal(f"a row of {found[0].places} taps and channels has no room in registers")
    busy = (made for made in found if made.blocks_per_processor * made.threads >= _THREADS)
    return next((made for made in busy if made.block_filters >= _ENOUGH_FILTERS), found[0])


def _resident(config: FewChannelsConfig, device: Device) -> FewChannelsConfig:
    """The config with as many blocks of a multiprocessor as shared memory and registers allow."""
    other = _OTHER_REGISTERS + (16 if device.shared_bytes < _SMALL else 0)
    registers = round_up(config.sums + 2 * config.place_tiles + other, 8)
    blocks = min(_MOST_BLOCKS, device.shared_bytes // (config.shared_bytes + RESERVED))
    while (
        blocks > 1 and round_up(blocks * config.threads, 128) * registers > REGISTERS
    ):  # registers are allocated for four warps at a time
        blocks -= 1
    return replace(config, blocks_per_processor=max(1, blocks))


def _by_filters(problem: Problem) -> Iterator[FewChannelsConfig]:
    """The configs for this problem, with the most filters of a block first."""
    geometry, X, dY, W = problem.geometry, problem.X, problem.dY, problem.W
    most = min(_MOST_FILTERS, round_up(geometry.filters, FILTERS))
    for filters in (most, *(each for each in (_ENOUGH_FILTERS, FILTERS) if each < most)):
        yield FewChannelsConfig(
            problem.dtype,
            geometry.filters,
            geometry.channels,
            _pair(geometry.spatial),
            _pair(geometry.out),
            _pair(geometry.kernel),
            _pair(geometry.strides),
            _pair(geometry.pads_begin),
            (X.strides[0], X.strides[2]),
            (dY.strides[0], dY.strides[2], dY.strides[3]),
            (W.strides[0], W.strides[2], W.strides[3], W.strides[1]),
            next(each for each in _VECTORS if not (X.alignment % each or X.strides[0] % each or X.strides[2] % each)),
            filters,
        )


def _unsupported(problem: Problem, device: Device) -> str:
    """What of it no config takes; empty for nothing."""
    geometry, X, dY = problem.geometry, problem.X, problem.dY
    if not problem.of_few_channels:
        return "tensor cores compute the dW of few channels of 16-bit types in two axes, of one group"
    if device.capability < (8, 0):
        return "tensor cores of this device do not have these products"
    if 0 in X.shape or 0 in dY.shape or 0 in problem.W.shape:
        return "tensor cores take no empty arrays"
    if geometry.dilations != (1, 1) or geometry.kernel[0] > _MOST_ROW_TAPS:
        return f"tensor cores take no dilation, and up to {_MOST_ROW_TAPS} rows of taps"
    if not _last(X) or not _last(dY) or X.strides[3] != X.shape[1] * 2:
        return "tensor cores take channels-last arrays, X's columns end to end"
    if geometry.filters % OCTET or dY.alignment % 16 or any(dY.strides[axis] % 16 for axis in (0, 2, 3)):
        return "tensor cores take filters in vectors of 8, at multiples of 16 bytes"
    if any(each < 0 for each in (*X.strides, *dY.strides)) or X.strides[2] % 2:
        return "tensor cores take arrays whose strides are not negative"
    return ""


def _last(tensor: Tensor) -> bool:
    return tensor.shape[1] == 1 or tensor.strides[1] == tensor.dtype.itemsize


def _pair(values: Axes) -> tuple[int, int]:
    rows, columns = values
    return rows, columns
