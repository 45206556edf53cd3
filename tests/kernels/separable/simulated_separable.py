"""The kernels of the separable block under the CUDA simulator, against the terms that its axis maps list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from helpers.simulate_launch import simulate
from helpers.tolerance import assert_close
from memory_orders import strides_in_order

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.kernels.separable.axis_map import Adaptive, AxisMap, Resampling, Windows, finite
from gradkern.kernels.separable.plan import separable_plan
from gradkern.policy import Policy

b, h, f, d = "bfloat16", "float16", "float32", "float64"


def resampled(size: int, outputs: int, mode: str, **more: Any) -> Resampling:
    given: dict[str, Any] = {"shift": 0.5, "step": size / outputs, "offset": -0.5, **more}
    return Resampling(size, outputs, mode, **given)


MAPS: dict[str, list[AxisMap]] = {
    "windows": [Windows(5, 3, 3, 2, 1, 1), Windows(12, 6, 3, 2, 1, 1)],
    "padded windows of one axis": [Windows(13, 7, 4, 2, 1, 2, 2, True)],
    "dilated windows of three axes": [
        Windows(4, 3, 2, 1),
        Windows(5, 2, 2, 2, 2),
        Windows(8, 4, 2, 2, 1, 0, 0, False, 3),
    ],
    "strides beyond windows": [Windows(7, 3, 1, 3), Windows(8, 2, 2, 5)],
    "global": [Windows(3, 1, 3), Windows(7, 1, 7)],
    "adaptive": [Adaptive(5, 3), Adaptive(4, 7)],
    "adaptive of one size": [Adaptive(6, 3), Adaptive(8, 2)],
    "nearest": [resampled(3, 6, "nearest", offset=0.0), resampled(4, 9, "nearest", offset=0.0)],
    "rounded": [
        resampled(5, 3, "nearest", rounding="round_prefer_floor"),
        resampled(4, 7, "nearest", rounding="round_prefer_floor"),
    ],
    "ceil": [resampled(5, 3, "nearest", rounding="ceil"), resampled(4, 7, "nearest", rounding="ceil")],
    "linear": [resampled(3, 6, "linear"), resampled(4, 8, "linear")],
    "linear, smaller, of three axes": [resampled(2, 3, "linear"), resampled(7, 3, "linear"), resampled(9, 4, "linear")],
    "far apart": [resampled(1, 2, "linear"), resampled(3, 41, "linear")],
    "far apart along two axes": [resampled(2, 81, "linear"), resampled(3, 2, "linear")],
    "one coordinate": [resampled(3, 2, "linear", step=0.0, shift=0.0, offset=0.0), resampled(2, 2, "linear")],
    "backwards and beyond": [
        resampled(4, 5, "linear", shift=0.0, step=-1.3, offset=4.0, bounded=True),
        resampled(4, 6, "linear", shift=0.0, step=1.7, divisor=1.1, offset=-2.0, bounded=True),
    ],
    "far outside": [
        resampled(3, 4, "cubic", shift=0.0, step=-4e8, offset=1.0),
        resampled(4, 3, "cubic", shift=0.0, step=4e8, offset=1.0),
    ],
    "close together": [resampled(3, 4, "linear", step=1e-42), resampled(4, 3, "linear", shift=0.0, step=1e-40)],
    "cubic": [resampled(4, 7, "cubic"), resampled(5, 3, "cubic")],
    "cubic outside": [
        resampled(4, 7, "cubic", excluded=True, offset=-5.0),
        resampled(3, 5, "cubic", excluded=True, offset=4.0),
    ],
    "antialiased": [resampled(7, 3, "linear", narrowing=3 / 7), resampled(4, 8, "linear")],
    "antialiased inside": [
        resampled(9, 4, "linear", excluded=True, narrowing=4 / 9),
        resampled(7, 2, "linear", excluded=True, narrowing=2 / 7),
    ],
    "antialiased cubic": [
        resampled(3, 2, "cubic", excluded=True, narrowing=2 / 3),
        resampled(3, 3, "cubic", excluded=True),
        resampled(11, 3, "cubic", excluded=True, narrowing=3 / 11),
    ],
    "lanczos": [
        resampled(3, 5, "lanczos", excluded=True),
        resampled(4, 7, "lanczos", excluded=True),
        resampled(9, 4, "lanczos", excluded=True, narrowing=4 / 9),
    ],
    "cubic inside": [resampled(4, 7, "cubic", excluded=True), resampled(3, 5, "cubic", excluded=True)],
}
TYPES = (b, f, d, h)


def expected(maps: Sequence[AxisMap], dY: np.ndarray) -> np.ndarray:
    dX = dY.astype(np.float64)
    for axis, each in enumerate(maps):
        matrix = np.zeros((each.output, each.input))
        terms = each.terms(np.float64 if dY.dtype == np.float64 else np.float32)
        np.add.at(matrix, (terms.outputs, terms.inputs), terms.weights)
        dX = np.moveaxis(np.moveaxis(dX, 2 + axis, -1) @ matrix, -1, 2 + axis)
    return dX


def check(maps: Sequence[AxisMap], dtype: str, channels: int, last: bool) -> str:
    shape = (2, channels, *(each.input for each in maps))
    dY = np.random.default_rng(0).standard_normal((2, channels, *(each.output for each in maps))).astype(dtype)
    found, kernel = simulate(
        lambda call: separable_plan(call, maps), "ResizeGrad", {"dY": dY}, {"dX": (shape, dtype)}, {}, {}, last, 1
    )
    assert_close("ResizeGrad", "dX", found["dX"], expected(maps, dY))
    return kernel


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("number", "name"), list(enumerate(MAPS)))
def test_every_kind_of_map_in_both_orders_of_memory(number: int, name: str, last: bool) -> None:
    kernel = check(MAPS[name], TYPES[number % 4], (3, 8)[number % 2], last)
    assert ("channels" in kernel) == last


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type(dtype: str) -> None:
    check(MAPS["linear"], dtype, 4, last=True)
    check(MAPS["windows"], dtype, 4, last=False)


def test_lines_longer_than_shared_memory_and_rows_wider_than_a_block() -> None:
    check([Windows(1, 1, 1), Windows(2, 4100, 2, 1, 1, 4099, 4099, True)], f, 1, last=False)
    check([Windows(1, 1, 1), Windows(517, 258, 3, 2, 1, 0)], f, 1, last=False)


@pytest.mark.parametrize(
    ("maps", "last"),
    [
        ([Windows(4, 1, 2, 1 << 32)], False),
        ([Windows(4, 2, 1 << 30, 1, 3, 1 << 31, 1 << 31)], True),
        ([Windows(4, 3, 2, divisor=1 << 32)], False),
        ([Resampling(8, 1 << 16, "linear", 0.5, 1.0), Resampling(8, 1 << 16, "linear", 0.5, 1.0)], True),
    ],
)
def test_numbers_of_more_than_31_bits_are_refused(maps: list[AxisMap], last: bool) -> None:
    shapes = {"dY": (2, 8, *(each.output for each in maps)), "dX": (2, 8, *(each.input for each in maps))}
    with pytest.raises(Refusal):
        planned(maps, shapes, last)


def test_bytes_between_positions_of_more_than_31_bits_are_refused() -> None:
    maps = [Windows(2, 2, 1)]
    with pytest.raises(Refusal):
        planned(maps, dict.fromkeys(("dY", "dX"), (1, 1 << 29, 2)), last=True)


def test_nothing_has_the_plan_of_any_empty_call() -> None:
    """Which a policy that pins a kernel takes."""
    assert planned([Windows(4, 2, 2, 2)], {"dY": (2, 0, 2), "dX": (2, 0, 4)}, last=False).kernel == "empty"
    assert planned([Windows(4, 0, 2, 2)], {"dY": (2, 8, 0), "dX": (2, 8, 4)}, last=False).kernel == "empty"


def planned(maps: Sequence[AxisMap], shapes: dict[str, tuple[int, ...]], last: bool) -> Any:
    order = "channels_last" if last else "C"
    dY, dX = (Tensor(np.dtype(f), each, strides_in_order(each, 4, order), 16) for each in shapes.values())
    call = Call("ResizeGrad", {"dY": dY}, {"dX": dX}, {}, {}, frozenset(), "cuda:0", Policy())
    with dry_run(DryRunDevice(0, (9, 0), 132, 227 << 10)):
        return separable_plan(call, maps)


def test_infinity_reaches_its_own_terms_alone() -> None:
    maps = MAPS["linear"]
    dY = np.zeros((1, 1, 6, 8), f)
    dY[0, 0, 2, 4] = np.inf
    for last in (False, True):
        found, _ = simulate(
            lambda call: separable_plan(call, maps),
            "ResizeGrad",
            {"dY": dY},
            {"dX": ((1, 1, 3, 4), f)},
            {},
            {},
            last,
            1,
        )
        assert np.isinf(found["dX"]).sum() == 4
        assert not np.isnan(found["dX"]).any()


def test_coordinates_beyond_31_bits_are_none() -> None:
    assert finite(resampled(3, 4, "linear"))
    for more in (
        {"step": -1e9},
        {"step": 1e39},
        {"offset": -3e9},
        {"step": 1e30, "divisor": 1e-30},
        {"divisor": 1e-50},
    ):
        assert not finite(resampled(3, 4, "linear", **more))
