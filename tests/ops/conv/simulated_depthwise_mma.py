"""The tensor-core kernel's own source under the CUDA simulator."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import simulated
from helpers.depthwise import Depthwise, arguments, make, refused_on_tensor_cores
from helpers.guarded import Guarded
from helpers.tolerance import assert_close

from gradkern.call import Refusal
from gradkern.cuda.device import Device
from gradkern.ops.conv.cuda.depthwise.mma_candidates import fitting
from gradkern.ops.conv.cuda.depthwise.mma_config import MmaWeightConfig
from gradkern.ops.conv.cuda.depthwise.mma_kernel import build
from gradkern.ops.conv.cuda.depthwise.problem import DepthwiseProblem

DEVICE = Device(0, (9, 0), 132, 232448)
b, h = "bfloat16", "float16"


def made(case: Depthwise) -> dict[int, MmaWeightConfig]:
    """The configs by the channels of a block."""
    found = fitting(DepthwiseProblem.of(make(case)[0]), DEVICE)
    return {config.channels: config for config in found if isinstance(config, MmaWeightConfig)}


def check(case: Depthwise, chunks: int = 1, grid: int | None = None) -> MmaWeightConfig:
    """dW in so many runs of rows, by so many blocks: as many as there are runs and groups, or fewer."""
    config = made(case)[16]
    _, arrays, out, expected = make(case)
    partial = Guarded((chunks, config.total_channels * config.all_taps), "float32")
    counter = np.zeros(64, np.uint32)
    given = arguments(case, arrays, partial, counter, chunks)
    blocks = config.groups * chunks if grid is None else grid
    simulated.launch(build(config), blocks, config.threads, 1, config.shared_bytes, given)
    for each in (*arrays.values(), partial):
        each.check()
    assert_close("ConvGrad", "dW", out, expected)
    return config


def same(taps: int, images: int, channels: int, size: tuple[int, int], dtype: str = h) -> Depthwise:
    pads = (taps // 2,) * 4
    return Depthwise("dW", images, channels, size, (taps, taps), pads=pads, dtype=dtype, channels_last=True)


def test_eight_narrow_images_side_by_side_and_one_below_them() -> None:
    assert check(same(7, 9, 8, (2, 7))).sides == 8


def test_four_images_side_by_side_of_which_two_are_there() -> None:
    assert check(same(5, 6, 8, (3, 14), b)).sides == 4


def test_a_row_of_seven_blocks_and_a_slot_without_one() -> None:
    assert check(same(3, 2, 16, (2, 56))).blocks == 7


def test_sides_of_three_blocks_leave_two_slots() -> None:
    config = check(same(7, 3, 8, (2, 21)))
    assert (config.sides, config.blocks) == (2, 3)


def test_runs_of_rows_that_begin_within_an_image_and_blocks_that_take_several() -> None:
    check(same(3, 2, 24, (6, 9), b), chunks=3, grid=2)


@pytest.mark.parametrize("taps", [(8, 9), (1, 1), (2, 4)])
def test_every_window_of_rows_and_pads_on_one_side(taps: tuple[int, int]) -> None:
    case = Depthwise("dW", 1, 8, (5, 10), taps, pads=(taps[0] - 1, 0, 0, taps[1] - 1), dtype=h, channels_last=True)
    check(case)


def test_images_apart() -> None:
    check(Depthwise("dW", 3, 8, (4, 6), (3, 3), pads=(1,) * 4, dtype=b, channels_last=True, spread=8))


def test_planes_of_two_columns() -> None:
    check(Depthwise("dW", 3, 8, (1, 2), (1, 1), dtype=h, channels_last=True))


@pytest.mark.parametrize(
    "case",
    [
        *refused_on_tensor_cores("dW"),
        Depthwise("dW", 2, 8, (6, 70), (3, 3), dtype=h, channels_last=True),
    ],
    ids=str,
)
def test_what_it_does_not_take_is_refused(case: Depthwise) -> None:
    with pytest.raises(Refusal, match="tensor cores"):
        made(case)
    older = Device(0, (7, 5), 40, 65536)
    with pytest.raises(Refusal, match="tensor cores"):
        next(fitting(DepthwiseProblem.of(make(same(3, 2, 8, (6, 6)))[0]), older))


def test_long_sums_are_cut_into_runs() -> None:
    config = made(same(7, 2, 96, (56, 56)))[32]
    for images in (1, 64, 1000, 100_000):
        chunks = config.chunks(images, 132)
        products = -(-config.steps(images) // chunks) * 2
        assert products <= 514
        assert chunks <= config.steps(images)
    assert config.chunks(64, 132) == 43  # of 44 that there are blocks for
