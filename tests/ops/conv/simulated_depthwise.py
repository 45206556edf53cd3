"""The depthwise kernel's own source under the CUDA simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import simulated
from helpers.depthwise import Depthwise, arguments, make, multiply_adds
from helpers.guarded import Guarded
from helpers.tolerance import assert_close

from gradkern.cuda.device import Device
from gradkern.ops.conv.cuda.depthwise.config import DepthwiseConfig
from gradkern.ops.conv.cuda.depthwise.kernel import build
from gradkern.ops.conv.cuda.depthwise.problem import DepthwiseProblem
from gradkern.ops.conv.cuda.depthwise.tiling import config_of, configs

DEVICE = Device(0, (9, 0), 132, 232448)
b, h, f, d = "bfloat16", "float16", "float32", "float64"


def check(
    case: Depthwise,
    held: tuple[int, int],
    threads: tuple[int, int],
    channels: int = 1,
    stages: int = 2,
    chunks: int = 1,
    grid: int = 2,
    device: Device = DEVICE,
    width: int = 1,
) -> DepthwiseConfig:
    problem, _, _, _ = make(case)
    config = config_of(DepthwiseProblem.of(problem), held, threads, channels, stages, device, width)
    return run(case, config, chunks, grid)


def run(case: Depthwise, config: DepthwiseConfig, chunks: int, grid: int) -> DepthwiseConfig:
    _, arrays, out, expected = make(case)
    partial = Guarded((chunks, config.total_channels * config.all_taps), config.compute)
    counter = np.zeros(64, np.uint32)
    given = arguments(case, arrays, partial, counter, chunks)
    simulated.launch(build(config), grid, config.threads, 1, config.shared_bytes, given)
    for each in (*arrays.values(), partial):
        each.check()
    assert_close("ConvGrad", case.gradient, out, expected)
    return config


@pytest.mark.parametrize("gradient", ["dX", "dW", "Y"])
@pytest.mark.parametrize("last", [False, True])
class TestEach:
    def test_strips_that_end_with_the_array(self, gradient: str, last: bool) -> None:
        case = Depthwise(gradient, 3, 4, (8, 12), (3, 3), pads=(1, 1, 1, 1), channels_last=last)
        check(case, (4, 3), (2, 4), 2)

    def test_strips_that_reach_beyond_the_array(self, gradient: str, last: bool) -> None:
        case = Depthwise(gradient, 2, 3, (7, 9), (3, 5), pads=(1, 2, 1, 2), channels_last=last, dtype=h)
        check(case, (2, 4), (2, 3), 2, chunks=2)

    def test_a_stride_with_pads_on_one_side(self, gradient: str, last: bool) -> None:
        case = Depthwise(gradient, 2, 2, (9, 8), (5, 3), (2, 2), pads=(1, 0, 2, 1), channels_last=last, dtype=b)
        check(case, (2, 4), (2, 2), 2, stages=1)

    def test_dilations_and_elements_that_no_output_sees(self, gradient: str, last: bool) -> None:
        case = Depthwise(gradient, 1, 2, (11, 14), (2, 3), (3, 4), (2, 3), (0, 2, 1, 0), channels_last=last, dtype=d)
        check(case, (3, 4), (2, 4) if gradient == "dX" else (2, 1), 1, grid=3)

    def test_positions_behind_all_windows(self, gradient: str, last: bool) -> None:
        case = Depthwise(gradient, 2, 3, (9, 7), (2, 3), (2, 1), pads=(0, 1, -3, -1), channels_last=last)
        check(case, (2, 2), (2, 2) if gradient == "dX" else (2, 1), 1)

    def test_a_thread_with_a_whole_plane(self, gradient: str, last: bool) -> None:
        case = Depthwise(gradient, 5, 8, (5, 5), (5, 5), pads=(2, 2, 2, 2), channels_last=last, dtype=h)
        config = check(case, (5, 5), (1, 1), 8, chunks=2)
        assert multiply_adds(config) == (5 * 5 - 2 * (1 + 2)) ** 2  # those with the pads left out

    def test_one_spatial_axis(self, gradient: str, last: bool) -> None:
        case = Depthwise(gradient, 2, 3, (21,), (4,), (1,), (2,), (6, 0), channels_last=last)
        check(case, (1, 5), (1, 5), 3)

    def test_arrays_that_start_anywhere_and_images_apart(self, gradient: str, last: bool) -> None:
        case = Depthwise(gradient, 2, 4, (6, 6), (3, 3), pads=(1,) * 4, channels_last=last, dtype=h, offset=1, spread=3)
        check(case, (3, 3), (2, 2), 2)

    def test_the_form_of_devices_without_asynchronous_copies(self, gradient: str, last: bool) -> None:
        case = Depthwise(gradient, 3, 4, (8, 8), (3, 3), pads=(1,) * 4, channels_last=last, dtype=b)
        check(case, (4, 4), (2, 2), 2, stages=1, device=Device(0, (7, 5), 40, 65536))

    def test_a_filter_larger_than_the_array(self, gradient: str, last: bool) -> None:
        case = Depthwise(gradient, 2, 2, (2, 3), (5, 4), pads=(2, 1, 2, 2), channels_last=last)
        check(case, (2, 3), (1, 1), 2)


def test_planes_cut_into_tiles() -> None:
    for gradient in ("dX", "dW", "Y"):
        case = Depthwise(gradient, 2, 4, (13, 12), (3, 3), pads=(1, 1, 1, 1))
        check(case, (3, 4), (2, 3), 1, chunks=2)
        case = Depthwise(gradient, 2, 4, (13, 13), (3, 3), pads=(1, 1, 1, 1), channels_last=True)
        check(case, (3, 3), (2, 2), 2)


@pytest.mark.parametrize("gradient", ["dX", "dW", "Y"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("stages", [1, 2])
def test_planes_that_follow_each_other_along_depth(gradient: str, last: bool, stages: int) -> None:
    cut = Depthwise(gradient, 2, 4, (3, 13, 12), (3, 3, 3), pads=(1,) * 6, channels_last=last, biased=gradient == "Y")
    config = check(cut, (3, 4), (2, 3) if not last else (2, 2), 2, stages, chunks=3)
    assert (config.depth.taps, config.tiles > 1) == (3, True)
    whole = Depthwise(gradient, 2, 3, (4, 5, 5), (2, 3, 3), (2, 1, 1), (1, 1, 1), (1,) * 6, h, last, spread=3, offset=1)
    check(whole, (5, 5), (1, 1), 3, stages, chunks=2)


@pytest.mark.parametrize("gradient", ["dX", "dW", "Y"])
@pytest.mark.parametrize(
    ("channels", "dtype", "shifts", "how"),
    [
        (5, h, 8, {}),
        (9, b, 8, {"offset": 3, "spread": 1}),
        (6, b, 4, {"offset": 1, "spread": 7}),
        (8, h, 1, {"offset": 3}),
        (5, f, 4, {"offset": 1, "strides": (2, 1)}),
        (18, h, 4, {"strides": (1, 2)}),
    ],
)
def test_whole_vectors_around_channels_that_make_none(
    gradient: str, channels: int, dtype: str, shifts: int, how: dict[str, Any]
) -> None:
    case = Depthwise(gradient, 2, channels, (7, 9), (3, 3), pads=(1, 1, 1, 1), dtype=dtype, channels_last=True, **how)
    down, across = case.strides if case.strides and gradient == "dX" else (1, 1)
    tiled = 2 * down, 2 * across
    tiles, whole = check(case, tiled, (2, 2), 4, chunks=2), check(case, tiled, (4, 5), 4, stages=1)
    for config in tiles, whole:
        assert config.halo.shifts == shifts
        assert gradient != "dW" or (config.tiled and config.tiled.shifts == shifts)
    assert tiles.tiles > 1 == whole.tiles


@pytest.mark.parametrize(("gradient", "shifts"), [("dX", 0), ("dW", 2), ("Y", 0)])
def test_accesses_of_8_bytes_are_left_as_they_are_but_for_dW(gradient: str, shifts: int) -> None:
    how = {"strides": (1, 2), "pads": (1, 1, 1, 1), "channels_last": True}
    config = check(Depthwise(gradient, 2, 12, (7, 9), (3, 3), dtype=h, **how), (2, 4), (2, 2), 4, chunks=2)
    assert config.halo.shifts == shifts
    config = check(Depthwise(gradient, 2, 3, (7, 9), (3, 3), dtype=d, **how), (2, 4), (2, 2), 4, chunks=2)
    assert config.halo.shifts == 0


@pytest.mark.parametrize("gradient", ["dX", "dW", "Y"])
@pytest.mark.parametrize("channels", [16, 10, 12])
@pytest.mark.parametrize("dtype", [b, h])
def test_two_channels_of_a_thread(gradient: str, channels: int, dtype: str) -> None:
    how: dict[str, Any] = {"pads": (1, 1, 1, 1), "dtype": dtype, "channels_last": True, "biased": gradient == "Y"}
    whole = check(Depthwise(gradient, 3, channels, (6, 8), (3, 3), **how), (3, 4), (2, 2), 8, chunks=2, width=2)
    assert (whole.lanes, whole.threads) == (4, 16)
    how |= {"offset": 2, "spread": 2}
    config = check(Depthwise(gradient, 2, channels, (7, 9), (3, 2), **how), (2, 4), (2, 2), 8, stages=1, width=2)
    assert config.halo.shifts in (1, 2, 4)
    how["pads"] = (1,) * 6
    deep = Depthwise(gradient, 2, channels, (3, 4, 5), (3, 3, 3), **how)
    check(deep, (2, 5), (1, 1), 8, chunks=2, width=2)


@pytest.mark.parametrize("gradient", ["dX", "dW", "Y"])
def test_rows_cut_into_tiles(gradient: str) -> None:
    case = Depthwise(gradient, 2, 3, (41,), (4,), pads=(6, 0))
    assert check(case, (1, 3), (1, 5), 1, chunks=2).vectors == (1, 1)
    case = Depthwise(gradient, 2, 4, (6, 48), (3, 3), pads=(1, 1, 1, 1), dtype=h)
    config = check(case, (2, 4), (2, 4), 2, chunks=3)
    assert (config.rows.tiles, config.columns.tiles, config.vectors) == (2, 3, (8, 8))
    case = Depthwise(gradient, 2, 3, (65,), (5,), (2,), (3,), (7, 4), dtype=b)
    check(case, (1, 4), (1, 3), 3, stages=1, chunks=2)
    case = Depthwise(gradient, 1, 2, (64,), (3,), (3,), pads=(1, 2))
    check(case, (1, 6), (1, 2), 2, grid=3)
    case = Depthwise(gradient, 2, 2, (60,), (9,), dilations=(4,), pads=(32, 0), dtype=d)
    check(case, (1, 5), (1, 4), 1, device=Device(0, (7, 5), 40, 65536))


@pytest.mark.parametrize("gradient", ["dX", "dW", "Y"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    "how",
    [
        {"spatial": (19, 23), "kernel": (3, 5), "strides": (3, 1), "dilations": (2, 3), "pads": (1, 0, 4, 2)},
        {"spatial": (10, 10), "kernel": (2, 2), "strides": (3, 3)},
        {"spatial": (13, 9), "kernel": (3, 3), "strides": (2, 2), "pads": (0, 1, 1, 0)},
        {"spatial": (9, 17), "kernel": (3, 2), "strides": (4, 5)},
        {"spatial": (1, 8), "kernel": (1, 2), "strides": (2, 2), "pads": (1, 0, 1, 1)},
        {"spatial": (3, 4), "kernel": (7, 7), "pads": (3, 3, 3, 3)},
        {"spatial": (6, 5), "kernel": (2, 3), "pads": (4, 9, 3, 8)},
        {"spatial": (1, 1), "kernel": (1, 1)},
        {"spatial": (60,), "kernel": (9,), "dilations": (4,), "pads": (32, 0)},
        {"spatial": (4, 6, 7), "kernel": (3, 3, 3), "pads": (1,) * 6},
        {"spatial": (5, 7, 6), "kernel": (1, 1, 1), "strides": (2, 2, 2)},
        {
            "spatial": (7, 5, 8),
            "kernel": (3, 2, 3),
            "strides": (2, 1, 3),
            "dilations": (2, 3, 1),
            "pads": (3, 0, 1, 1, 3, 2),
        },
        {"spatial": (2, 4, 4), "kernel": (5, 3, 3), "pads": (4, 1, 1, 2, 1, 1)},
        {"spatial": (6, 3, 5), "kernel": (2, 3, 3), "strides": (3, 1, 1), "pads": (0, 1, 1, 0, 1, 1)},
        {"spatial": (1, 5, 6), "kernel": (1, 3, 3), "strides": (2, 1, 1), "pads": (1, 1, 1, 1, 1, 1)},
    ],
    ids=lambda how: "x".join(map(str, how["spatial"])),
)
def test_the_blocks_that_are_chosen(gradient: str, last: bool, how: dict[str, Any]) -> None:
    for channels in (5, 34) if last and how["kernel"] == (3, 3, 3) else (5,):
        case = Depthwise(gradient, 2, channels, dtype=h, channels_last=last, biased=gradient == "Y", **how)
        for config in configs(DepthwiseProblem.of(make(case)[0]), DEVICE, 2):
            run(case, config, chunks=2, grid=2)
