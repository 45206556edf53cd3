"""Which threads take which elements of a depthwise convolution: a DepthwiseConfig from shapes, types and device.

What counts: few instructions beside the multiply-adds (long strips), few strips that reach outside the array, registers
for enough warps, and shared memory for enough blocks that some compute while others wait. The weights were fitted to
times on an H200.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice, product
from math import gcd
from typing import Literal

from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import ITEMSIZE
from gradkern.ops.conv.cuda.depthwise.config import Axis, DepthwiseConfig, SharedTile
from gradkern.ops.conv.cuda.depthwise.problem import DepthwiseProblem, Plane
from gradkern.ops.conv.geometry import Geometry
from gradkern.search.candidate import Unfit

__all__ = ["REGISTERS", "RESERVED", "config_of", "configs", "depth_of"]

REGISTERS = 65536  # of a multiprocessor, from compute capability 7.5 to 12.0
RESERVED = 1024  # bytes of shared memory that CUDA keeps of each block, from compute capability 8.0 on
_MOST_THREADS = 256  # of a block
_MOST_RESIDENT, _MOST_BLOCKS = 1024, 16  # threads and blocks that a multiprocessor of every such device can have
_OTHER_REGISTERS = 32  # beside strip, taps and window
_MOST_REGISTERS = 240  # of a thread; the hardware has 255, and the assembler needs some
_STRIP_START = 300  # instructions of a thread and tile, whatever its strip
_STRIPS = 3  # of which every way to make blocks is looked at
_MOST_PAIRS = 384  # threads of a block with two channels each: with more, all of the multiprocessor's wait at once
_PAIR_TAPS = 9  # of a plane, where a thread may have two channels: more leave their sums no registers
_IDLE = 1.2  # threads for each that has a channel, from which other numbers of channels are tried
_CUTS = 4  # of a row that no block can have whole, the longest parts


def configs(problem: DepthwiseProblem, device: Device, most: int = 1) -> Iterator[DepthwiseConfig]:
    """The most promising configs, the best first, each with other strips than those before. Of several there is one
    more where it may pay what the weights cannot tell: for dW, a tile on its way while another is computed, be it after
    them; for an output, to copy the narrow accesses themselves where the others copy whole vectors around them.
    """
    words = ITEMSIZE[problem.dtype] // 4 or 1
    strips = [
        strip
        for width in _widths(problem)
        for strip in sorted(_strips(problem, words, width), key=lambda each: each.cost)[:_STRIPS]
    ]
    if not strips:
        rows, columns = problem.geometry.kernel
        raise Unfit(f"a filter of {rows}x{columns} taps has no room in registers")

    def ranked(around: bool) -> list[DepthwiseConfig]:
        found = [each for strip in strips for each in _blocks(problem, strip, device, around)]
        return [config for _, config in sorted(found, key=lambda each: each[0])]

    best: dict[tuple[int, int, int], DepthwiseConfig] = {}
    every = ranked(around=True)
    for config in every:
        best.setdefault((config.rows.held, config.columns.held, config.width), config)
    if not best:
        raise Unfit("no tile of this array fits a block's threads and shared memory")
    found = list(islice(best.values(), most))
    yield from found
    if most > 1 and problem.gradient == "dW" and all(config.stages == 1 for config in found):
        yield from islice((config for config in every if config.stages > 1), 1)
    elif most > 1 and problem.gradient != "dW" and found[0].source.shifts:
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
    """The config with these strips, and the widest accesses that the arrays allow; around: where these are narrow,
    whole vectors around them.
    """
    source, strip = _roles(problem)
    made = DepthwiseConfig(
        depth_of(problem),
        (source.apart, strip.apart, problem.W_depth_stride),
        _axis(problem.geometry, problem.gradient, 0, held[0], threads[0]),
        _axis(problem.geometry, problem.gradient, 1, held[1], threads[1]),
        problem.dtype,
        problem.channels_last,
        problem.channels,
        channels,
        stages,
        source.strides,
        strip.strides,
        problem.W_strides,
        (1, 1),
        asynchronous=device.capability >= (8, 0),
        native_bfloat16=device.capability >= (8, 0),
        bias_stride=problem.bias_stride,
        width=width,
    )
    columns = made.columns
    vectors = (
        _vector(problem, made, made.source, source, columns.source, columns.threads * columns.step),
        _vector(problem, made, made.strip, strip, columns.strip, gcd(columns.block, columns.shift)),
    )
    # bytes of an access up to which copying whole vectors around it was measured to be faster
    narrow = 8 if made.itemsize == 2 and (width > 1 or problem.gradient == "dW") else 4
    around = around and made.asynchronous and problem.channels_last
    source_around, strip_around = (around and vector * made.itemsize <= narrow for vector in vectors)
    shifted = source_around, strip_around and problem.gradient == "dW"  # an output is not copied
    return replace(made, vectors=vectors, shifted=shifted)


def _roles(problem: DepthwiseProblem) -> tuple[Plane, Plane]:
    """The source and the strip, see DepthwiseConfig."""
    return (problem.dY, problem.X) if problem.gradient == "dX" else (problem.X, problem.dY)


def _axis(geometry: Geometry, gradient: Literal["dX", "dW", "Y"], index: int, held: int, threads: int) -> Axis:
    data, out = geometry.spatial[index], geometry.out[index]
    strip, source = (data, out) if gradient == "dX" else (out, data)
    return Axis(
        gradient,
        strip,
        source,
        geometry.kernel[index],
        geometry.strides[index],
        geometry.dilations[index],
        geometry.pads_begin[index],
        held,
        threads,
    )


def depth_of(problem: DepthwiseProblem) -> Axis:
    """How planes follow each other."""
    return _axis(problem.depth, problem.gradient, 0, 1, 1)


def _vector(
    problem: DepthwiseProblem, config: DepthwiseConfig, tile: SharedTile | None, plane: Plane, columns: int, apart: int
) -> int:
    """Elements that one access to global memory may take. Where the columns are cut into tiles, these are `apart`
    elements apart; those of an output begin at multiples of that, so that no vector is in two tiles.
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
class _Strip:
    instructions: float  # of a thread and image
    cost: float  # the same for all threads of a plane
    held: tuple[int, int]
    registers: int
    width: int


def _widths(problem: DepthwiseProblem) -> tuple[int, ...]:
    """How many channels a thread may take: two of 16 bits, where there are enough for most threads of a warp to have
    some of one position, and where that is faster.
    """
    geometry, arrays = problem.geometry, (problem.dY, problem.X)
    words = problem.channels_last and ITEMSIZE[problem.dtype] == 2 and problem.channels % 2 == 0
    steps = [step for each in arrays for step in (each.alignment, each.strides[0], *each.strides[2:], each.apart)]
    faster = problem.channels > 32 and geometry.taps <= _PAIR_TAPS and geometry.strides == (1, 1)
    return (1, 2) if words and all(step % 4 == 0 for step in steps) and faster else (1,)


def _strips(problem: DepthwiseProblem, words: int, width: int) -> Iterator[_Strip]:
    """Every strip a thread may hold."""
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
        each = multiply_adds + loads + 3 * convert * held[0] * held[1] + _STRIP_START
        cost = each * threads[0] * threads[1] / width * _few(REGISTERS // (32 * registers))
        yield _Strip(each, cost, (held[0], held[1]), registers, width)


def _ways(columns: Axis, words: int) -> float:
    """How many of a bank's words neighbouring threads of a row ask for at once."""
    near = min(columns.threads, 32 // words)
    banks = [thread * columns.step * words % 32 for thread in range(near)]
    return max(banks.count(bank) for bank in banks)


def _blocks(
    problem: DepthwiseProblem, strip: _Strip, device: Device, around: bool
) -> Iterator[tuple[float, DepthwiseConfig]]:
    """How many strips and channels a block may take, and how many tiles wait in shared memory: (cost, config)."""
    axes = [_axis(problem.geometry, problem.gradient, index, each, 1) for index, each in enumerate(strip.held)]
    whole = axes[0].tiles, axes[1].tiles
    resident = min(_MOST_RESIDENT, REGISTERS // max(64, strip.registers + 8) // 32 * 32)
    for (threads, channels), stages in product(_threads(problem, whole, strip.width, around), (2, 1)):
        config = config_of(problem, strip.held, threads, channels, stages, device, strip.width, around)
        blocks = min(
            device.shared_bytes // (config.shared_bytes + RESERVED), max(1, resident // config.threads), _MOST_BLOCKS
        )
        if config.shared_bytes > device.shared_bytes or not blocks:
            continue
        warps = -(-config.threads // 32)
        used = problem.channels / (config.groups * channels) * config.threads / (32 * warps)
        for index, axis in enumerate((config.rows, config.columns)):
            used *= whole[index] / (axis.tiles * axis.threads)
        copies = sum(_copies(config, each) for each in (config.source, config.strip) if each)
        # two channels of a thread have more to do for what a block copies, and wait longer where nothing is ahead
        copying, waiting = (1, (0.5, 0.3)) if strip.width == 1 else (0.5, (0.8, 0.2))
        scattered = 1.0
        if problem.channels_last:  # the channels of a position are one run of bytes, and whole rows of strips are best
            scattered = 1 + 16 / (channels * config.itemsize) + (0.5 if config.columns.tiles > 1 else 0)
        passing = _few(blocks * warps) + waiting[stages - 1] / blocks
        cost = strip.cost * (1 + copying * copies / strip.instructions) / used * passing * scattered
        yield cost, config.resident(max(1, min(blocks, resident // config.threads)))


def _copies(config: DepthwiseConfig, tile: SharedTile) -> float:
    """Instructions with which a thread copies its part of a tile between global and shared memory."""
    if tile.flat:
        return 10 * tile.elements / tile.vector / config.threads
    line = max(1, tile.columns * tile.step // tile.vector)
    steps = -(-tile.rows * tile.planes // max(1, config.threads // line)) * -(-line // config.threads)
    return steps * (14 if config.tiles > 1 else 7) * (1 if tile.vector * config.itemsize >= 4 else 2)


def _few(warps: int) -> float:
    """How much longer all takes where a multiprocessor has few warps."""
    return 1 + 3 / max(1, warps)


def _threads(
    problem: DepthwiseProblem, whole: tuple[int, int], width: int, around: bool
) -> Iterator[tuple[tuple[int, int], int]]:
    """(rows, columns) of strips and channels that a block may have."""
    if problem.channels_last:
        for channels in _channels(problem, width, around):
            most = 2 * _MOST_THREADS if width == 1 else _MOST_PAIRS
            for down, across in product(_parts(whole[0]), _parts(whole[1])):
                if channels // width * down * across <= most:
                    yield (down, across), channels
        return
    rows = [whole[1]]
    if whole[1] > 2 * _MOST_THREADS:  # a row of these is cut: elements where two tiles meet are read twice
        rows = [each for each in _parts(whole[1]) if each <= 2 * _MOST_THREADS][:_CUTS]
    for down, across in product(_parts(whole[0]), rows):
        strips = down * across
        if strips > 2 * _MOST_THREADS or (down < whole[0] and strips < 64):
            continue
        most = min(problem.channels, max(1, _MOST_THREADS // strips))
        for channels in range(1, most + 1):
            if channels == most or problem.channels % channels == 0:
                yield (down, across), channels


def _channels(problem: DepthwiseProblem, width: int, around: bool) -> list[int]:
    """Of a block, where they are the last axis: whole vectors and warps. Where vectors go around them any number is as
    good, and what these would leave idle counts.
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
    """What `count` may be cut into evenly: one part, two, ..."""
    return sorted({-(-count // parts) for parts in range(1, count + 1)}, reverse=True)


def _power(count: int) -> int:
    return 1 << (count - 1).bit_length()
