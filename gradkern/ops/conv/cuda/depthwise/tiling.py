"""Chooses a DepthwiseConfig for shapes, types and a device: how elements are assigned to threads.

Good configs have few instructions besides the multiply-adds (large register tiles), few tiles beyond the array,
registers for enough warps, and shared memory for enough blocks that some compute while others wait. The weights were
fitted to times on an H200.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice, product
from math import gcd
from typing import Literal

from gradkern.call import Refusal
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.ops.conv.cuda.depthwise.config import Axis, DepthwiseConfig, SharedTile
from gradkern.ops.conv.cuda.depthwise.problem import DepthwiseProblem, Plane
from gradkern.ops.conv.geometry import Geometry

REGISTERS = 65536  # of a multiprocessor, from compute capability 7.5 to 12.0
RESERVED = 1024  # bytes of shared memory that CUDA reserves for each block, from compute capability 8.0 on
_MOST_THREADS = 256  # of a block
_MOST_RESIDENT, _MOST_BLOCKS = 1024, 16  # threads and blocks of a multiprocessor, on every such device
_OTHER_REGISTERS = 32  # besides tile, taps and window
_MOST_REGISTERS = 240  # of a thread; the hardware has 255, and the assembler needs some
_TILE_START = 300  # fixed instructions of a thread and block tile
_REGISTER_TILES = 3  # for these all blocks are compared
_MOST_PAIRS = (
    384  # threads of a block with two channels each: with more, all threads of a multiprocessor wait at the same time
)
_PAIR_TAPS = 9  # of a plane, at most, for two channels of a thread: more leave no registers for sums
_IDLE = 1.2  # ratio of threads to threads with a channel, at least, for trying other numbers of channels
_CUTS = 4  # ways to divide a row that does not fit a block, longest parts first


def configs(problem: DepthwiseProblem, device: Device, most: int = 1) -> Iterator[DepthwiseConfig]:
    """The most promising configs, best first, each with another register tile. If several are requested, one more
    follows for a choice that the model cannot predict: for dW, a second stage; for an output, copies of narrow accesses
    themselves if the others copy whole vectors around them.
    """
    words = ITEMSIZE[problem.dtype] // 4 or 1
    tiles = [
        tile
        for width in _widths(problem)
        for tile in sorted(_register_tiles(problem, words, width), key=lambda each: each.cost)[:_REGISTER_TILES]
    ]
    if not tiles:
        rows, columns = problem.geometry.kernel
        raise Refusal(f"a filter of {rows}x{columns} taps has no room in registers")

    def ranked(around: bool) -> list[DepthwiseConfig]:
        found = [each for tile in tiles for each in _blocks(problem, tile, device, around)]
        return [config for _, config in sorted(found, key=lambda each: each[0])]

    best: dict[tuple[int, int, int], DepthwiseConfig] = {}
    every = ranked(around=True)
    for config in every:
        best.setdefault((config.rows.held, config.columns.held, config.width), config)
    if not best:
        raise Refusal("no tile of this array fits a block's threads and shared memory")
    found = list(islice(best.values(), most))
    yield from found
    if most > 1 and problem.gradient == "dW" and all(config.stages == 1 for config in found):
        yield from islice((config for config in every if config.stages > 1), 1)
    elif most > 1 and problem.gradient != "dW" and found[0].halo.shifts:
        yield from islice(ranked(around=False), 1)


def config_of(
    problem: DepthwiseProblem,
    held: tuple[int, int],
    threads: tuple[int, int],
    channels: int,
    stages: int,
    device: Device,
    width: int = 1,
    around: bool = True,
) -> DepthwiseConfig:
    """The config with this register tile and the widest accesses that the arrays allow. around: where these are narrow,
    copy whole vectors around them.
    """
    halo, tiled = _roles(problem)
    made = DepthwiseConfig(
        depth_of(problem),
        (halo.apart, tiled.apart, problem.W_depth_stride),
        _axis(problem.geometry, problem.gradient, 0, held[0], threads[0]),
        _axis(problem.geometry, problem.gradient, 1, held[1], threads[1]),
        problem.dtype,
        problem.channels_last,
        problem.channels,
        channels,
        stages,
        halo.strides,
        tiled.strides,
        problem.W_strides,
        (1, 1),
        asynchronous=device.capability >= (8, 0),
        native_bfloat16=device.capability >= (8, 0),
        bias_stride=problem.bias_stride,
        width=width,
    )
    columns = made.columns
    vectors = (
        _vector(problem, made, made.halo, halo, columns.halo, columns.threads * columns.step),
        _vector(problem, made, made.tiled, tiled, columns.tiled, gcd(columns.block, columns.shift)),
    )
    # bytes of an access, at most, for copies of whole vectors around it: these were faster
    narrow = 8 if made.itemsize == 2 and (width > 1 or problem.gradient == "dW") else 4
    around = around and made.asynchronous and problem.channels_last
    halo_around, tiled_around = (around and vector * made.itemsize <= narrow for vector in vectors)
    shifted = halo_around, tiled_around and problem.gradient == "dW"  # an output is not copied
    return replace(made, vectors=vectors, shifted=shifted)


def _roles(problem: DepthwiseProblem) -> tuple[Plane, Plane]:
    """The halo and the tiled array, see DepthwiseConfig."""
    return (problem.dY, problem.X) if problem.gradient == "dX" else (problem.X, problem.dY)


def _axis(geometry: Geometry, gradient: Literal["dX", "dW", "Y"], index: int, held: int, threads: int) -> Axis:
    data, out = geometry.spatial[index], geometry.out[index]
    tiled, halo = (data, out) if gradient == "dX" else (out, data)
    return Axis(
        gradient,
        tiled,
        halo,
        geometry.kernel[index],
        geometry.strides[index],
        geometry.dilations[index],
        geometry.pads_begin[index],
        held,
        threads,
    )


def depth_of(problem: DepthwiseProblem) -> Axis:
    """The axis of planes."""
    return _axis(problem.depth, problem.gradient, 0, 1, 1)


def _vector(
    problem: DepthwiseProblem, config: DepthwiseConfig, tile: SharedTile | None, plane: Plane, columns: int, apart: int
) -> int:
    """Elements of one access to global memory. If columns are divided into tiles, these are `apart` elements apart;
    tiles of an output begin at multiples of it, so that no vector is in two tiles.
    """
    strides = plane.strides
    vector = 16 // config.itemsize
    while vector > 1:
        size = vector * config.itemsize
        if problem.channels_last:
            whole = problem.channels % vector == config.channels % vector == 0
            steps = strides[0], plane.apart, *strides[2:]
        elif tile and tile.flat:
            whole = problem.channels % config.channels == 0 or tile.plane % vector == 0
            steps = strides[0], plane.apart, strides[1] * config.channels
        else:
            cut = config.columns.tiles > 1
            whole, steps = columns % vector == 0 and not (cut and apart % vector), (plane.apart, *strides[:3])
        if whole and plane.alignment % size == 0 and all(step % size == 0 for step in steps):
            return vector
        vector //= 2
    return 1


@dataclass(frozen=True, slots=True)
class _RegisterTile:
    instructions: float  # of a thread and image
    cost: float  # for all threads of a plane
    held: tuple[int, int]
    registers: int
    width: int


def _widths(problem: DepthwiseProblem) -> tuple[int, ...]:
    """Numbers of channels of a thread to try: two of 16 bits if most threads of a warp then have channels of one
    position, and if that is faster.
    """
    geometry, arrays = problem.geometry, (problem.dY, problem.X)
    words = problem.channels_last and ITEMSIZE[problem.dtype] == 2 and problem.channels % 2 == 0
    steps = [step for each in arrays for step in (each.alignment, each.strides[0], *each.strides[2:], each.apart)]
    faster = problem.channels > 32 and geometry.taps <= _PAIR_TAPS and geometry.strides == (1, 1)
    return (1, 2) if words and all(step % 4 == 0 for step in steps) and faster else (1,)


def _register_tiles(problem: DepthwiseProblem, words: int, width: int) -> Iterator[_RegisterTile]:
    """Every register tile that fits."""
    geometry = problem.geometry
    units, sizes = (geometry.strides, geometry.spatial) if problem.gradient == "dX" else ((1, 1), geometry.out)
    lengths = [
        [unit * n for n in range(1, 9) if n == 1 or unit * (n - 1) < size]
        for unit, size in zip(units, sizes, strict=True)
    ]
    convert = 2 if ITEMSIZE[problem.dtype] == 2 else 1
    for held in product(*lengths):
        axes = [_axis(geometry, problem.gradient, index, each, 1) for index, each in enumerate(held)]
        threads = [axis.tiles for axis in axes]
        rows, columns = (
            _axis(geometry, problem.gradient, index, each, threads[index]) for index, each in enumerate(held)
        )
        used = len(set(columns.meets.values()))
        registers = words * width * (held[0] * held[1] + geometry.taps + used) + _OTHER_REGISTERS
        if registers > _MOST_REGISTERS:
            continue
        loads = used * len(set(rows.meets.values())) * (convert + width - 1)
        if not problem.channels_last:
            loads *= _ways(columns, words)
        multiply_adds = len(rows.meets) * len(columns.meets) * (2 if words == 2 else 1) * width
        each = multiply_adds + loads + 3 * convert * held[0] * held[1] + _TILE_START
        cost = each * threads[0] * threads[1] / width * _few(REGISTERS // (32 * registers))
        yield _RegisterTile(each, cost, (held[0], held[1]), registers, width)


def _ways(columns: Axis, words: int) -> float:
    """The number of words of one bank that neighbouring threads of a row request at the same time."""
    near = min(columns.threads, 32 // words)
    banks = [thread * columns.step * words % 32 for thread in range(near)]
    return max(banks.count(bank) for bank in banks)


def _blocks(
    problem: DepthwiseProblem, tile: _RegisterTile, device: Device, around: bool
) -> Iterator[tuple[float, DepthwiseConfig]]:
    """Configs with this register tile, for all numbers of threads, channels and stages: (cost, config)."""
    axes = [_axis(problem.geometry, problem.gradient, index, each, 1) for index, each in enumerate(tile.held)]
    whole = axes[0].tiles, axes[1].tiles
    resident = min(_MOST_RESIDENT, REGISTERS // max(64, tile.registers + 8) // 32 * 32)
    for (threads, channels), stages in product(_threads(problem, whole, tile.width, around), (2, 1)):
        config = config_of(problem, tile.held, threads, channels, stages, device, tile.width, around)
        blocks = min(
            device.shared_bytes // (config.shared_bytes + RESERVED), max(1, resident // config.threads), _MOST_BLOCKS
        )
        if config.shared_bytes > device.shared_bytes or not blocks:
            continue
        warps = -(-config.threads // 32)
        used = problem.channels / (config.groups * channels) * config.threads / (32 * warps)
        for index, axis in enumerate((config.rows, config.columns)):
            used *= whole[index] / (axis.tiles * axis.threads)
        copies = sum(_copies(config, each) for each in (config.halo, config.tiled) if each)
        # with two channels a thread computes more for each copy, and waits longer without a second stage
        copying, waiting = (1, (0.5, 0.3)) if tile.width == 1 else (0.5, (0.8, 0.2))
        scattered = 1.0
        if problem.channels_last:  # channels of a position are contiguous, and whole rows of tiles are best
            scattered = 1 + 16 / (channels * config.itemsize) + (0.5 if config.columns.tiles > 1 else 0)
        passing = _few(blocks * warps) + waiting[stages - 1] / blocks
        cost = tile.cost * (1 + copying * copies / tile.instructions) / used * passing * scattered
        yield cost, replace(config, blocks_per_processor=max(1, min(blocks, resident // config.threads)))


def _copies(config: DepthwiseConfig, tile: SharedTile) -> float:
    """Instructions of a thread for copying its part of a block tile between global and shared memory."""
    if tile.flat:
        return 10 * tile.elements / tile.vector / config.threads
    line = max(1, tile.columns * tile.step // tile.vector)
    steps = -(-tile.rows * tile.planes // max(1, config.threads // line)) * -(-line // config.threads)
    return steps * (14 if config.tiles > 1 else 7) * (1 if tile.vector * config.itemsize >= 4 else 2)


def _few(warps: int) -> float:
    """Factor of the time for a multiprocessor with few warps."""
    return 1 + 3 / max(1, warps)


def _threads(
    problem: DepthwiseProblem, whole: tuple[int, int], width: int, around: bool
) -> Iterator[tuple[tuple[int, int], int]]:
    """Threads (rows, columns) and channels of a block, all choices."""
    if problem.channels_last:
        for channels in _channels(problem, width, around):
            most = 2 * _MOST_THREADS if width == 1 else _MOST_PAIRS
            for down, across in product(_parts(whole[0]), _parts(whole[1])):
                if channels // width * down * across <= most:
                    yield (down, across), channels
        return
    rows = [whole[1]]
    if whole[1] > 2 * _MOST_THREADS:  # a row is divided: elements at the border of two tiles are read twice
        rows = [each for each in _parts(whole[1]) if each <= 2 * _MOST_THREADS][:_CUTS]
    for down, across in product(_parts(whole[0]), rows):
        channel_threads = down * across
        if channel_threads > 2 * _MOST_THREADS or (down < whole[0] and channel_threads < 64):
            continue
        most = min(problem.channels, max(1, _MOST_THREADS // channel_threads))
        for channels in range(1, most + 1):
            if channels == most or problem.channels % channels == 0:
                yield (down, across), channels


def _channels(problem: DepthwiseProblem, width: int, around: bool) -> list[int]:
    """Numbers of channels of a block for channels-last arrays: whole vectors and warps. If vectors around channels are
    copied, any number is possible, and idle threads decide.
    """
    channels = problem.channels
    if channels <= 16:
        return [_power(channels)]
    found = [32, 16] if width == 1 else [64]
    if around and channels * ITEMSIZE[problem.dtype] % 16:
        for most in tuple(found):
            groups = -(-channels // most)
            if groups * most > _IDLE * channels:
                found.append(width * -(-channels // (width * groups)))
    return sorted(set(found), reverse=True)


def _parts(count: int) -> list[int]:
    """Sizes of the parts of `count` in one part, two, ..."""
    return sorted({-(-count // parts) for parts in range(1, count + 1)}, reverse=True)


def _power(count: int) -> int:
    return 1 << (count - 1).bit_length()
