"""The tiling of the streaming kernel: every element once, whole vectors, blocks that have equally much to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gradkern.kernels.channels.streaming_config import StreamingConfig
from gradkern.kernels.channels.streaming_tiling import Dimensions, Tiling, best_tiling, choose_tiling, fitted
from gradkern.strides import merged_axes

PROCESSORS, SHARED = 132, 232448
OUTPUTS = frozenset({"dX", "scale_sum", "bias_sum"})
TARGETS = [  # repetitions, channels, elements of each
    (64, 256, 3136),
    (128, 64, 12544),
    (32, 512, 784),
    (64, 2048, 49),
    (8192, 1024, 1),
    (64 * 3136, 256, 1),
]


def config_of(dims: Dimensions, width: int, **more: Any) -> StreamingConfig:
    return StreamingConfig("bfloat16", "bfloat16", "bfloat16", OUTPUTS, 1e-5, width, **more)


def places(found: Tiling, outer: int) -> list[tuple[int, int]]:
    """(first, last + 1) of the elements of every tile of every row that is visited, of all inner arrays."""
    result = []
    for item in range(found.items):
        line, tile = divmod(item, found.tiles)
        outer_index, group = divmod(line, found.groups)
        assert outer_index < outer
        width = min(found.tile, found.row - tile * found.tile)
        for row in range(found.rows_each + (group < found.rows_over)):
            first = (group + row * found.groups) * found.row + tile * found.tile
            first, last = min(first, found.count), min(first + width, found.count)
            if first < last:
                result.append((outer_index * found.count + first, outer_index * found.count + last))
    return sorted(result)


@given(
    sizes=st.lists(st.sampled_from([1, 2, 3, 5, 7, 16, 49, 300, 3000]), min_size=1, max_size=6),
    kept=st.lists(st.booleans(), min_size=6, max_size=6),
    width=st.sampled_from([1, 2, 4, 8]),
    threads=st.sampled_from([32, 256]),
    blocks=st.integers(1, 40),
)
def test_every_element_is_walked_over_once_in_whole_vectors(
    sizes: list[int], kept: list[bool], width: int, threads: int, blocks: int
) -> None:
    dims = Dimensions.of(merged_axes(sizes, kept[: len(sizes)]))
    assume(dims.outer_count * dims.count <= 3_000_000)
    assume(not dims.outer_sizes or dims.count % width == 0)  # a plan takes narrower vectors else
    config = fitted(config_of(dims, width, threads=threads), dims)
    found = best_tiling(config, dims, blocks)
    outer = dims.outer_count * dims.count // found.count
    seen = places(found, outer)
    ends = [0, *(last for _, last in seen)]
    assert [first for first, _ in seen] == ends[:-1]
    assert ends[-1] == dims.outer_count * dims.count
    assert found.tile <= config.tile
    assert found.tile % config.width == found.row % config.width == 0


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_no_block_has_much_more_to_do_than_the_average(target: tuple[int, int, int]) -> None:
    dims = Dimensions((), *target)
    config, found = choose_tiling(config_of(dims, 8, columns=True), dims, PROCESSORS, SHARED)
    blocks = PROCESSORS * config.blocks_per_processor
    assert config.shared_bytes * config.blocks_per_processor <= SHARED
    work = [0] * blocks
    for item in range(found.items):
        line, tile = divmod(item, found.tiles)
        rows = found.rows_each + (line % found.groups < found.rows_over)
        work[item % blocks] += rows * min(found.tile, found.row - tile * found.tile)
    assert sum(work) >= dims.count
    assert max(work) <= 1.1 * dims.count / blocks


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("width", [8, 4, 1])
def test_no_thread_adds_up_long_sums(last: bool, width: int) -> None:
    """2048 elements one after another, of a plane of 2^20, had errors of 1.7e-6 of the terms where 1e-6 is promised."""
    for sizes in [(33, 64, 1 << 20), (128, 64, 12544), (1 << 24, 3, 1), (4096, 8, 1000)]:
        axes = [(size, number == 1) for number, size in enumerate(sizes)]
        dims = Dimensions.of(merged_axes(*zip(*([axes[0], axes[2], axes[1]] if last else axes), strict=True)))
        if dims.count % width:
            continue
        config, found = choose_tiling(config_of(dims, width), dims, PROCESSORS, SHARED)
        rows = found.rows_each + (found.rows_over > 0)
        assert rows * config.vectors * config.width // config.adders <= 256, sizes


@pytest.mark.parametrize(
    ("dims", "width"),
    [
        (Dimensions((), 2, 969, 3481), 2),  # odd: eight images would make whole vectors of 16 bytes, two make such of 4
        (Dimensions((), 1, 1700, 361), 4),
        (Dimensions((), 8, 969, 3481), 2),  # of four rows, not of one
        (Dimensions((), 32, 969, 3481), 8),
        (Dimensions((), 1, 320, 3249), 8),
        (Dimensions((), 3, 5, 1), 2),
    ],
)
def test_few_images_have_no_rows_that_are_mostly_empty(dims: Dimensions, width: int) -> None:
    config, found = choose_tiling(config_of(dims, 8), dims, PROCESSORS, SHARED)
    assert config.width == width
    assert found.row * -(-dims.count // found.row) < dims.count + width * dims.inner_channels * dims.spatial


def test_few_kernels_serve_all_channels() -> None:
    shapes = [Dimensions((), 64, channels, size) for channels in range(16, 2049, 16) for size in (3136, 784, 196)]
    configs = {choose_tiling(config_of(dims, 8), dims, PROCESSORS, SHARED)[0] for dims in shapes}
    assert len(configs) <= 12


@pytest.mark.parametrize(
    ("images", "plane", "data", "width", "alone"),
    [
        (2, 198 * 198, "bfloat16", 4, True),  # half of 16 bytes divide the plane
        (1, 103 * 103, "float32", 1, True),
        (1, 103 * 103, "bfloat16", 8, False),  # no copy of a ring is of 2 bytes
        (64, 198 * 198, "bfloat16", 8, False),  # items of 64 rows, which pay for their channels' parameters
        (64, 200 * 200, "bfloat16", 8, True),
        (2, 100 * 100, "bfloat16", 8, True),
        (64, 100 * 100, "bfloat16", 8, False),
        (2, 40 * 40, "bfloat16", 8, False),  # a plane is less than a tile
    ],
)
def test_large_planes_of_few_images_are_slabs_of_their_own_in_vectors_that_divide_them(
    images: int, plane: int, data: str, width: int, alone: bool
) -> None:
    dims = Dimensions.of(merged_axes([images, 256, plane], [False, True, False]))
    given = replace(config_of(dims, 4 if data == "float32" else 8, threads=256), data=data)
    config, tiling = choose_tiling(given, dims, PROCESSORS, SHARED)
    assert config.width == width
    assert (tiling.count == plane) == alone
    assert alone == config.has_outer
    if alone:
        assert not config.split
        assert config.tile == 256 * 16 // config.data_itemsize
