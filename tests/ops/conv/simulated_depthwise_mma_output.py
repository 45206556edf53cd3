"""The tensor-core kernel of dX and Y, its own source under the CUDA simulator."""

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
from gradkern.ops.conv.cuda.depthwise.mma_config import MmaOutputConfig
from gradkern.ops.conv.cuda.depthwise.mma_output_kernel import build
from gradkern.ops.conv.cuda.depthwise.problem import DepthwiseProblem

DEVICE = Device(0, (9, 0), 132, 232448)
EACH = pytest.mark.parametrize("gradient", ["dX", "Y"])
b, h = "bfloat16", "float16"


def made(case: Depthwise) -> list[MmaOutputConfig]:
    found = fitting(DepthwiseProblem.of(make(case)[0]), DEVICE)
    return [config for config in found if isinstance(config, MmaOutputConfig)]


def check(case: Depthwise, chunks: int = 1, grid: int | None = None) -> MmaOutputConfig:
    """Every config, in so many runs of rows, by so many blocks: as many as there are runs and groups, or fewer. The
    last of them.
    """
    found = made(case)
    for config in found:
        _, arrays, out, expected = make(case)
        none, counter = Guarded((1, 1), "float32"), np.zeros(64, np.uint32)
        given = arguments(case, arrays, none, counter, chunks)
        blocks = config.groups * chunks if grid is None else grid
        simulated.launch(build(config), blocks, config.threads, 1, config.shared_bytes, given)
        for each in arrays.values():
            each.check()
        assert_close("ConvGrad", case.gradient, out, expected)
    return found[-1]


def same(gradient: str, taps: int, images: int, channels: int, size: tuple[int, int], dtype: str = h) -> Depthwise:
    pads, biased = (taps // 2,) * 4, gradient == "Y"
    return Depthwise(
        gradient, images, channels, size, (taps, taps), pads=pads, dtype=dtype, channels_last=True, biased=biased
    )


@EACH
def test_sixteen_narrow_images_side_by_side_and_one_below_them(gradient: str) -> None:
    assert check(same(gradient, 7, 17, 8, (2, 7))).sides == 16


@EACH
def test_four_images_side_by_side_and_two_below_them(gradient: str) -> None:
    assert check(same(gradient, 5, 6, 8, (3, 28), b)).sides == 4


@EACH
def test_rows_of_seven_blocks_leave_two_slots(gradient: str) -> None:
    assert check(same(gradient, 3, 3, 16, (5, 56))).blocks == 7


@EACH
def test_runs_of_rows_that_begin_within_an_image_and_blocks_that_take_several(gradient: str) -> None:
    check(same(gradient, 3, 2, 16, (9, 60), b), chunks=3, grid=2)
    check(same(gradient, 7, 1, 8, (9, 100), b), chunks=2)


@pytest.mark.parametrize(("taps", "one", "other"), [((8, 9), "dX", "Y"), ((1, 1), "Y", "dX"), ((2, 4), "dX", "Y")])
def test_every_window_and_pads_on_one_side_and_images_apart(taps: tuple[int, int], one: str, other: str) -> None:
    pads = (taps[0] - 1, 0, 0, taps[1] - 1)
    check(Depthwise(one, 2, 8, (5, 71), taps, pads=pads, dtype=h, channels_last=True, spread=8), chunks=2)
    check(Depthwise(other, 3, 8, (9, 20), taps, dtype=b, channels_last=True))


@pytest.mark.parametrize(
    "case",
    [
        *refused_on_tensor_cores("dX"),
        *refused_on_tensor_cores("Y"),
        Depthwise("Y", 2, 8, (6, 130), (3, 3), pads=(1,) * 4, dtype=h, channels_last=True),
        Depthwise("dX", 2, 8, (6, 6), (3, 3), pads=(3, 0, 0, 0), dtype=h, channels_last=True),
    ],
    ids=str,
)
def test_what_it_does_not_take_is_refused(case: Depthwise) -> None:
    with pytest.raises(Refusal, match="tensor cores"):
        made(case)
    older = Device(0, (7, 5), 40, 65536)
    with pytest.raises(Refusal, match="tensor cores"):
        next(fitting(DepthwiseProblem.of(make(same("dX", 3, 2, 8, (6, 6)))[0]), older))
