"""Group norms and their gradient on a GPU: from a call to three launches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import gcd, prod

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.device import Device
from gradkern.cuda.device_code.columns import ITEMSIZE, round_up
from gradkern.cuda.launch import Launch, kernel_of_config, named
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.cuda.rows import EmptyPlan, device_of, require_flat
from gradkern.kernels.channels.activation_alpha import with_alpha
from gradkern.ops.group_norm import activation_of
from gradkern.ops.group_norm.cuda.config import ARGUMENTS, GroupNormConfig
from gradkern.strides import is_dense

_DATA = ("dY", "X", "skip", "residual_grad", "Y", "S", "dX")
_NAMES = {"input": "X", "output": "Y", "scale": "gamma", "B": "beta"}
"""The kernels' names of arrays with other names in a contract."""
_THREADS = 256
_VECTOR = 16  # bytes of one access, at most
_BATCHES = 2  # of a thread, at least
_BESIDE = 3  # batches that take as long as a block's beginning and end
_TURNS = 4  # of as many blocks as the device holds, at most
_CLUSTERS = (1, 2, 4, 8, 16)
_CLUSTERS_OF_LINES = (1, 2, 4)  # with more, two passes are faster where D is not held
_SHARED = 48 << 10  # bytes of shared memory of a block: several take turns on a multiprocessor
_SHARED_OF_LINES = 72 << 10  # the same with the numbers of a tile's channels
_MOST_SHARED = 112 << 10  # the same where groups are large: two
_MOST_OF_HELD = 72 << 10  # the same where D is held in registers
_MOST_THREADS = 512  # of a block that keeps its vectors
_MOST_VECTORS = 8  # of its threads, of each array; of planes twice as many where few threads are enough
_CHANNELS_OF_LINES = 4  # of its threads, at most: each has numbers of its own
_MANY_THREADS = 1024  # of a multiprocessor, each with as many vectors
_LEAST_COPY = 4  # bytes that a thread can copy to shared memory
_LEAST_TILE = 64  # bytes of lines that a block takes, where there are as many
_PAIRS = 4  # of a thread that combines those of a group
_CHANNELS = 8  # of a block that adds up the parameters' gradients: a sector of memory
_OF_SAMPLES = {"sample_scale_grad", "sample_shift_grad"}
_LATER = ("groups", "map", "parameters")  # steps after the first
_SUMS = {"dgamma", "dbeta", *_OF_SAMPLES}
_BUILDER = "gradkern.ops.group_norm.cuda.channel_kernel:build"
_GROUPS = "gradkern.ops.group_norm.cuda.totals_kernel:build_groups"
_PARAMETERS = "gradkern.ops.group_norm.cuda.totals_kernel:build_parameters"
_Way = tuple[GroupNormConfig, dict[str, int], int]
"""A config, the sizes of its parts, and blocks."""


def plan(call: Call) -> LaunchesPlan | EmptyPlan:
    """The plan of one of the group norms on `call.device`. Raises Refusal for arrays with gaps."""
    device = device_of(call)
    tensors = _named({**call.inputs, **call.outputs}, call.operator)
    if tensors["X"].size == 0:
        return EmptyPlan("empty", 0, device, tuple(each.nbytes for each in call.outputs.values()))
    shape = tensors["X"].shape
    data = {name: each for name, each in tensors.items() if name in _DATA and each.shape == shape}
    for name in tensors.keys() - data.keys():
        require_flat(name, tensors[name])
    layout = _layout_of(data, bool(call.attributes.get("channels_last", 0)))
    groups = call.axes.get("G", layout.channels)
    config = _config(call, tensors, layout, device)
    way = _whole(replace(config, holds=True), layout, groups, device) if _may_hold(config, device) else None
    way = way or _whole(config, layout, groups, device)
    config, numbers, blocks = way or _in_passes(config, layout, ("X", "S") in call.in_place, device)
    numbers |= {"samples": layout.samples, "channels": layout.channels, "positions": layout.positions}
    numbers |= {"groups": groups, "of_group": layout.channels // groups}
    given = [*_named(call.inputs, call.operator), *_named(call.outputs, call.operator), "sums"]
    arguments = named(ARGUMENTS, numbers, given)

    def launch(config: GroupNormConfig, grid: int, builder: str = _BUILDER) -> Launch:
        if grid >= 1 << 31:
            raise Refusal(f"{grid} blocks are more than a launch can have")
        kernel = kernel_of_config(device, builder, config, arguments=len(ARGUMENTS), cluster=config.cluster)
        return Launch(
            kernel, grid, config.threads, *arguments, config.cluster, overlaps=config.overlaps and config.step in _LATER
        )

    one = replace(config, lanes=32, vectors=1, cluster=1, blocks_per_processor=1)
    launches = [launch(config, blocks)]
    if config.step == "sums":
        pairs = layout.channels // groups * numbers["parts"]
        warps = min(32, 1 << (-(-pairs // (32 * _PAIRS)) - 1).bit_length())
        launches.append(launch(replace(one, step="groups", rows=warps), layout.samples * groups, _GROUPS))
        if {"Y", "dX"} & tensors.keys() or ("S" in tensors and not config.keeps_sum):
            launches.append(launch(replace(config, step="map"), blocks))
    if tensors.keys() & _SUMS:
        rows = layout.samples * (1 if tensors.keys() & _OF_SAMPLES else numbers["parts"])
        rows = min(1024 // _CHANNELS, max(32 // _CHANNELS, 1 << (rows - 1).bit_length()))
        parameters = replace(one, step="parameters", lanes=_CHANNELS, rows=rows)
        launches.append(launch(parameters, -(-layout.channels // _CHANNELS), _PARAMETERS))
    size = 2 * layout.samples * (layout.channels * numbers["parts"] + groups) * config.itemsize
    return LaunchesPlan(config.name.replace("sums_", ""), size, tuple(launches), (), (0,), device)


def _in_passes(config: GroupNormConfig, layout: Layout, in_place: bool, device: Device) -> _Way:
    """The first of two passes, with the sizes of parts, and blocks. It writes S for the second to read, but not over X,
    where other blocks read their group's first element; a sum with numbers of channels is as fast to compute again.
    """
    config = replace(config, keeps_sum=config.skip == "elements" and "S" in config.arrays and not in_place)
    config = _resident(config, 128 if config.read == 2 else 96, device)
    whole = layout.positions if layout.lines else layout.vectors  # what a channel's parts are parts of
    tiles = -(-layout.vectors // config.lanes) if layout.lines else 1
    together = config.rows if layout.lines else config.lanes  # threads that share a part
    length = round_up(-(-whole // _parts(layout, config, tiles, whole // together, device)), together)
    parts = -(-whole // length)
    units = layout.samples * parts * (tiles if layout.lines else layout.channels)
    blocks = units if layout.lines else -(-units // config.rows)
    return config, {"parts": parts, "part_length": length, "tiles": tiles}, blocks


def _whole(config: GroupNormConfig, layout: Layout, groups: int, device: Device) -> _Way | None:
    """The one pass, of groups that fit the shared memory of a block or a cluster; None where they do not, or where two
    passes are as fast.
    """
    bytes_of_vector = layout.width * ITEMSIZE[config.data]
    if not {"Y", "S", "dX"} & config.arrays or bytes_of_vector < _LEAST_COPY or device.capability < (8, 0):
        return None
    clusters, limits = _CLUSTERS, (_SHARED, _MOST_SHARED)
    if layout.lines:
        clusters, limits = _CLUSTERS_OF_LINES, (_SHARED_OF_LINES, _MOST_SHARED)
    if config.holds:
        clusters, limits = _CLUSTERS, (_SHARED,) if layout.lines else (_SHARED, _MOST_OF_HELD)
    if layout.lines and (config.holds or not config.gradient):
        layout = replace(layout, width=min(layout.width, _CHANNELS_OF_LINES))
    made = partial(_tiles_of_lines if layout.lines else _rows_of_planes, config, layout, groups, device)
    many = config.activation == "gelu" or config.data == "float64" or (layout.lines and layout.width > 4)
    for limit in limits:
        for cluster in clusters:
            found = made(cluster) if cluster <= device.max_cluster_size else None
            if found is not None and found[0].shared_bytes <= min(limit, device.shared_bytes):
                registers = 96 if many or cluster == _CLUSTERS[-1] else 80  # with fewer some are spilled
                registers += 16 if config.skip and (config.activation == "gelu" or layout.lines) else 0
                if config.holds:
                    registers = (64 if layout.lines else 48) + found[0].vectors * layout.width
                return _resident(found[0], registers, device), *found[1:]
    return None


def _may_hold(config: GroupNormConfig, device: Device) -> bool:
    """Whether D should be held: of 16 bits, memory is hardly slower than SiLU's derivative computed twice. The compiler
    for compute capability 10.0 and newer unrolls shorter loops.
    """
    costly = config.gradient and config.activation == "silu" and config.data_itemsize == 2
    return costly and device.capability < (10, 0)


def _resident(config: GroupNormConfig, registers: int, device: Device) -> GroupNormConfig:
    """With as many blocks on a multiprocessor as its memory and so many registers of a thread permit."""
    if device.capability >= (10, 0):  # NVIDIA's compiler takes more there
        registers += 48 if config.lines and config.width > 4 else 16
    blocks = min(device.shared_bytes // max(1, config.shared_bytes), 65536 // (registers * config.threads))
    return replace(config, blocks_per_processor=max(1, blocks))


def _tiles_of_lines(config: GroupNormConfig, layout: Layout, groups: int, device: Device, cluster: int) -> _Way | None:
    of_group = layout.channels // groups
    least = layout.width // gcd(layout.width, of_group)  # groups of a tile of whole vectors
    wide = [each for each in range(least, groups + 1, least) if groups % each == 0]
    fits = [each for each in wide if each * of_group * ITEMSIZE[config.data] >= _LEAST_TILE]
    of_block = (fits or wide[-1:] or [0])[0]
    lanes = of_block * of_group // layout.width
    positions = -(-layout.positions // cluster)
    most = _MOST_VECTORS * config.width // layout.width
    if not 0 < lanes <= _MOST_THREADS:
        return None
    rows = round_up(-(-positions // most), _whole_warps(lanes))
    rows = max(rows, min(round_up(positions, _whole_warps(lanes)), _THREADS // 2 // lanes))
    rows = round_up(rows, _whole_warps(lanes))
    vectors = -(-positions // rows)
    if lanes * rows > _MOST_THREADS:
        return None
    config = replace(config, step="whole", width=layout.width, lanes=lanes, rows=rows)
    found = replace(config, vectors=vectors, cluster=cluster, of_block=of_block)
    sizes = {"parts": cluster, "part_length": rows * vectors, "tiles": groups // of_block}
    return found, sizes, layout.samples * (groups // of_block) * cluster


def _rows_of_planes(config: GroupNormConfig, layout: Layout, groups: int, device: Device, cluster: int) -> _Way | None:
    of_each = layout.samples * layout.channels * layout.vectors // device.processors
    many = config.read == 1 and of_each >= 2 * _MOST_VECTORS * _MANY_THREADS
    # Many vectors of few threads: registers limit the blocks of a multiprocessor, and so the bytes in flight
    most = 2 * _MOST_VECTORS if many or (cluster == _CLUSTERS[-1] and not config.holds) else _MOST_VECTORS
    lanes = min(32, 1 << (-(-layout.vectors // most) - 1).bit_length())
    lanes = max(lanes, min(8, 1 << (layout.vectors - 1).bit_length()))
    vectors = min(most, -(-layout.vectors // lanes))
    parts = -(-layout.vectors // (lanes * vectors))
    teams, warps = layout.channels // groups * parts, _whole_warps(lanes)
    of_block = 1 if cluster > 1 else max(1, _THREADS // 2 // (teams * lanes))
    rows = round_up(-(-teams * of_block // cluster), warps)
    if cluster == 1:
        of_block = rows // teams
    if rows * lanes > _MOST_THREADS:
        return None
    found = replace(
        config, step="whole", lanes=lanes, rows=rows, vectors=vectors, cluster=cluster, of_block=of_block, teams=teams
    )
    sizes = {"parts": parts, "part_length": lanes * vectors, "tiles": 1}
    return found, sizes, -(-layout.samples * groups // of_block) * cluster


def _named(tensors: Mapping[str, Tensor], operator: str) -> dict[str, Tensor]:
    names = {**_NAMES, "bias": "beta"} if operator == "GroupNormalization" else _NAMES
    return {names.get(name, name): each for name, each in tensors.items()}


def _config(call: Call, tensors: Mapping[str, Tensor], layout: Layout, device: Device) -> GroupNormConfig:
    data = tensors["X"].dtype.name
    wide = "float64" if data == "float64" else "float32"

    def type_of(*names: str) -> str:
        return next((tensors[name].dtype.name for name in names if name in tensors), wide)

    activation = activation_of(call.attributes)
    skip = "" if "skip" not in tensors else "elements" if tensors["skip"].shape == tensors["X"].shape else "channels"
    lanes = _lanes(layout.vectors) if layout.lines else min(32, 1 << (layout.vectors - 1).bit_length())
    bytes_of_vector = layout.width * ITEMSIZE[data]
    return GroupNormConfig(
        step="sums",
        arrays=frozenset(tensors),
        data=data,
        parameter=type_of("gamma", "beta"),
        statistic=type_of("mean", "inv_std"),
        activation=with_alpha({**call.attributes, "activation": activation}),
        epsilon=call.attributes.get("epsilon", 0.0),
        lines=layout.lines,
        width=layout.width,
        lanes=lanes,
        rows=max(1, _THREADS // (lanes * _whole_warps(lanes))) * _whole_warps(lanes),
        vectors=4 if bytes_of_vector >= 8 else 8,
        skip=skip,
        native_bfloat16=device.capability >= (8, 0),
        overlaps=device.capability >= (9, 0),
    )


def _lanes(vectors: int) -> int:
    """Threads along the channels: as few idle as may be in a block of whole warps."""
    least = -(-vectors // -(-vectors // _THREADS))
    return min(range(least, _THREADS + 1), key=lambda lanes: (lanes * _whole_warps(lanes) > _THREADS, lanes))


def _whole_warps(lanes: int) -> int:
    """The least rows of so many lanes that are whole warps."""
    return 32 // gcd(lanes, 32)


def _parts(layout: Layout, config: GroupNormConfig, tiles: int, steps: int, device: Device) -> int:
    """Of each channel: the blocks run in turns of as many as the device holds. A turn takes as long as its threads have
    batches of vectors, and some more to begin and to add up.
    """
    units = layout.samples * (tiles if layout.lines else -(-layout.channels // config.rows))
    resident = device.processors * config.blocks_per_processor
    most = min(steps // (_BATCHES * config.vectors), -(-_TURNS * resident // units))

    def time(parts: int) -> float:
        return -(-units * parts // resident) * (steps / (parts * config.vectors) + _BESIDE)

    return min(range(1, max(1, most) + 1), key=time)


@dataclass(frozen=True, slots=True)
class Layout:
    """Of a group norm's data in memory: all arrays have one layout and no gaps.

    lines  the channels of a position are adjacent in memory; else the positions of a channel are
    width  elements of a vector, a divisor of the adjacent elements
    """

    lines: bool
    samples: int
    channels: int
    positions: int
    width: int

    @property
    def run(self) -> int:
        """Adjacent elements of one kind."""
        return self.channels if self.lines else self.positions

    @property
    def vectors(self) -> int:
        """Of a run."""
        return self.run // self.width


def _layout_of(tensors: Mapping[str, Tensor], channels_last: bool) -> Layout:
    """Of arrays of one shape. Raises Refusal for gaps, and for arrays of different layouts."""
    names = ", ".join(tensors)
    first = next(iter(tensors.values()))
    axis = len(first.shape) - 1 if channels_last else 1
    samples, channels, size = first.shape[0], first.shape[axis], prod(first.shape)
    positions = size // max(1, samples * channels)
    others = [n for n in range(1, len(first.shape)) if n != axis]
    orders = {False: [0, axis, *others], True: [0, *others, axis]}
    for lines in (positions == 1, True, False):  # a channel of one position has no plane
        if all(is_dense(each, orders[lines]) for each in tensors.values()):
            run = channels if lines else positions
            width = min(
                _VECTOR // first.dtype.itemsize, *(each.alignment // each.dtype.itemsize for each in tensors.values())
            )
            while run % width:
                width //= 2
            return Layout(lines, samples, channels, positions, width)
    raise Refusal(f"{names}: neither the positions of every channel nor the channels of every position lie end to end")
