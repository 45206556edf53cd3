"""The source of the layer norms' kernel under the CUDA simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from helpers.layer_norm import EVERY_WIDTH
from helpers.norm_forward import LAYER, OUTPUTS, SIMPLIFIED, SKIP, SKIP_SIMPLIFIED, case
from helpers.simulate_norm_forward import simulate

from gradkern.ops.layer_norm import NAMES
from gradkern.ops.layer_norm.cuda.config import NormForwardConfig

b, h, f, d = "bfloat16", "float16", "float32", "float64"
both = pytest.mark.parametrize("operator", [LAYER, SIMPLIFIED])


def check(
    operator: str,
    rows: int,
    columns: int,
    types: tuple[str, ...],
    grid: int,
    outputs: tuple[str, ...] = (),
    run: dict[str, Any] | None = None,
    biased: bool = True,
    **config: Any,
) -> None:
    data, parameter, *two = types
    skip, result = two or (data, data)
    operands = case(operator, rows, columns, data, parameter, rows * columns, biased, skip)
    wanted = frozenset(outputs or (NAMES[each] for each in OUTPUTS[operator]))
    statistic = d if data == d else f
    has = {NAMES[each] for each in operands.inputs}
    made = NormForwardConfig(
        operator,
        data,
        skip,
        result,
        parameter,
        statistic,
        wanted,
        biased="bias" in has,
        shifted="shift" in has,
        **config,
    )
    if "unpredicated_vectors" not in config:
        made = replace(made, unpredicated_vectors=made.fewest_vectors(columns))
    simulate(made, operands, grid, **(run or {}))


@both
def test_several_rows_of_a_warp_and_rows_left_over(operator: str) -> None:
    check(operator, 37, 64, (b, b), 2, width=8, lanes=4, vectors=2, groups_per_block=2)


@both
def test_a_warp_a_row_with_vectors_left_over(operator: str) -> None:
    check(operator, 9, 200, (f, f), 2, width=4, lanes=32, vectors=2, groups_per_block=2)


@both
@pytest.mark.parametrize("columns", [520, 768, 1024])
def test_warps_of_a_row_merge_what_they_have(operator: str, columns: int) -> None:
    """Of 520 columns the second vectors of the first warp are mostly empty, and those of the second are all."""
    check(operator, 5, columns, (b, f), 1, width=8, lanes=64, vectors=2, groups_per_block=1, scale_width=4)


@pytest.mark.parametrize("columns", [1, 31, 65, 128])
def test_one_kernel_serves_every_width_that_its_threads_have_vectors_for(columns: int) -> None:
    check(LAYER, 9, columns, (h, h), 1, run={"offset": 2}, **EVERY_WIDTH)


@pytest.mark.parametrize("strides", [False, True])
def test_rows_that_start_anywhere(strides: bool) -> None:
    run = {"offset": 2, "strides": strides}
    config: dict[str, Any] = {
        "width": 1,
        "lanes": 16,
        "vectors": 4,
        "groups_per_block": 2,
        "aligned": False,
        "packed": not strides,
    }
    check(LAYER, 9, 61, (h, h), 1, run=run, **config)


@both
@pytest.mark.parametrize("columns", [512, 264])
def test_a_cluster_merges_the_shares_of_its_blocks(operator: str, columns: int) -> None:
    check(operator, 5, columns, (b, b), 2, width=8, lanes=32, vectors=1, groups_per_block=1, blocks_per_row=2)


def test_more_shares_than_a_warp_has_lanes() -> None:
    check(LAYER, 2, 4104, (b, b), 8, width=8, lanes=160, vectors=1, groups_per_block=1, blocks_per_row=8, stages=2)


@both
def test_parameters_in_shared_memory(operator: str) -> None:
    check(operator, 7, 496, (b, b), 1, width=4, lanes=64, vectors=2, groups_per_block=2, parameters="shared")


@pytest.mark.parametrize("operator", [LAYER, SIMPLIFIED, SKIP])
@pytest.mark.parametrize(("lanes", "groups"), [(4, 2), (32, 2), (96, 1)])
def test_a_block_that_ends_with_its_first_rows(operator: str, lanes: int, groups: int) -> None:
    config: dict[str, Any] = {
        "width": 4,
        "lanes": lanes,
        "vectors": 2,
        "groups_per_block": groups,
        "source": "plain",
        "parameters": "prefetched",
    }
    rows = 19
    check(operator, rows, 8 * lanes - 4, (f, b), -(-rows // (groups * max(1, 32 // lanes))), scale_width=2, **config)


@pytest.mark.parametrize("operator", [LAYER, SIMPLIFIED, SKIP])
@pytest.mark.parametrize(("blocks_per_row", "lanes", "columns"), [(2, 32, 500), (4, 64, 1604), (8, 160, 10_236)])
def test_a_cluster_that_ends_with_its_row(operator: str, blocks_per_row: int, lanes: int, columns: int) -> None:
    config: dict[str, Any] = {
        "width": 4,
        "lanes": lanes,
        "vectors": 2,
        "groups_per_block": 1,
        "blocks_per_row": blocks_per_row,
    }
    config |= {"source": "plain", "parameters": "prefetched", "scale_width": 4}
    check(operator, 3, columns, (f, b), 3 * blocks_per_row, **config)


@pytest.mark.parametrize("types", [(b, b), (h, f), (f, b), (d, d)])
@pytest.mark.parametrize(("width", "scale_width"), [(1, 1), (2, 1), (2, 2)])
def test_parameters_on_their_way_come_in_loads_of_any_size(
    types: tuple[str, str], width: int, scale_width: int
) -> None:
    config: dict[str, Any] = {"width": width, "lanes": 64, "vectors": 8 // width, "groups_per_block": 1}
    config |= {"source": "plain", "parameters": "prefetched", "scale_width": scale_width}
    check(LAYER, 3, 410, types, 3, **config)


@both
@pytest.mark.parametrize("lanes", [32, 64])
def test_two_launches_for_rows_wider_than_a_cluster(operator: str, lanes: int) -> None:
    config: dict[str, Any] = {
        "width": 4,
        "lanes": lanes,
        "vectors": 1,
        "groups_per_block": 2,
        "blocks_per_row": 3,
        "aligned": False,
    }
    check(operator, 5, 9 * lanes + 12, (b, b), 3, phase="apply", **config)


@pytest.mark.parametrize("source", ["async", "plain"])
def test_the_forms_of_older_devices(source: str) -> None:
    check(LAYER, 9, 50, (d, d), 1, width=2, lanes=8, vectors=4, groups_per_block=1, source=source)


@pytest.mark.parametrize("outputs", [("Y",), ("mean",), ("inv_std",), ("mean", "inv_std")])
def test_only_the_wanted_outputs_are_written(outputs: tuple[str, ...]) -> None:
    check(LAYER, 9, 100, (f, b), 1, outputs, width=4, lanes=8, vectors=4, groups_per_block=1)


def test_a_norm_without_a_bias() -> None:
    check(LAYER, 9, 100, (f, f), 1, biased=False, width=4, lanes=8, vectors=4, groups_per_block=1)


def test_Y_may_be_written_over_X() -> None:
    check(LAYER, 9, 100, (f, f), 1, run={"in_place": "X"}, width=4, lanes=8, vectors=4, groups_per_block=1)


@pytest.mark.parametrize("operator", [SKIP, SKIP_SIMPLIFIED])
@pytest.mark.parametrize("biased", [True, False])
def test_what_is_normalized_is_a_rounded_sum(operator: str, biased: bool) -> None:
    check(operator, 9, 200, (b, f), 2, biased=biased, width=8, lanes=16, vectors=2, groups_per_block=2, scale_width=4)


@pytest.mark.parametrize("in_place", ["input", "skip"])
def test_the_output_may_be_written_over_either_summand(in_place: str) -> None:
    check(SKIP, 9, 96, (b, b), 1, run={"in_place": in_place}, width=8, lanes=8, vectors=2, groups_per_block=1)


@pytest.mark.parametrize("operator", [SKIP, SKIP_SIMPLIFIED])
@pytest.mark.parametrize("types", [(b, f, f, b), (h, f, f, f), (b, b, f, b), (f, f, f, b)])  # input, scale, skip, Y
def test_the_sum_has_the_type_of_skip_and_the_output_either(operator: str, types: tuple[str, ...]) -> None:
    check(operator, 9, 200, types, 2, width=4, lanes=16, vectors=4, groups_per_block=2)
    check(operator, 37, 24, types, 2, width=4, lanes=4, vectors=2, groups_per_block=2)
    anywhere: dict[str, Any] = {"aligned": False, "packed": False, "run": {"offset": 4, "strides": True}}
    check(operator, 9, 61, types, 1, width=1, lanes=32, vectors=2, groups_per_block=2, **anywhere)
    cluster: dict[str, Any] = {"width": 4, "lanes": 32, "vectors": 1, "groups_per_block": 1, "blocks_per_row": 2}
    check(operator, 5, 200, types, 2, parameters="shared", **cluster)
    check(operator, 5, 200, types, 2, phase="apply", **cluster)
    plain: dict[str, Any] = {"source": "plain", "parameters": "prefetched", "scale_width": 4}
    check(operator, 5, 200, types, 5, width=4, lanes=64, vectors=1, groups_per_block=1, **plain)
    check(operator, 3, 200, types, 6, **cluster, **plain)
    check(operator, 9, 200, types, 2, source="async", width=4, lanes=16, vectors=4, groups_per_block=2)


def test_a_sum_of_two_types_may_be_written_over_skip() -> None:
    config: dict[str, Any] = {"width": 4, "lanes": 8, "vectors": 3, "groups_per_block": 1}
    check(SKIP, 9, 96, (b, f, f, b), 1, run={"in_place": "skip", "over": "sum"}, **config)
    check(SKIP, 9, 96, (b, f, f, b), 1, run={"in_place": "input"}, **config)


def test_sums_of_rows_that_start_anywhere() -> None:
    run = {"offset": 2, "strides": True}
    check(
        SKIP, 9, 61, (h, h), 1, run=run, width=1, lanes=32, vectors=2, groups_per_block=2, aligned=False, packed=False
    )


def test_sums_in_a_cluster_and_in_two_launches() -> None:
    config: dict[str, Any] = {"width": 8, "lanes": 32, "vectors": 1, "groups_per_block": 1, "blocks_per_row": 2}
    check(SKIP, 5, 264, (b, b), 2, parameters="shared", **config)
    check(SKIP_SIMPLIFIED, 5, 264, (b, b), 2, phase="apply", **config)
    check(SKIP, 5, 264, (b, b), 2, ("mean", "sum"), phase="apply", **config)


UNITS: dict[str, Any] = {"lanes": 32, "vectors": 2, "groups_per_block": 2, "aligned_vectors": True}


@both
@pytest.mark.parametrize("columns", [257, 262, 500])  # which begin anew every 8, 4 and 2 rows
def test_vectors_by_units_of_memory(operator: str, columns: int) -> None:
    check(operator, 37, columns, (b, b), 8, width=8, **UNITS)


@pytest.mark.parametrize("parameters", ["registers", "shared"])
def test_units_of_several_warps(parameters: str) -> None:
    config: dict[str, Any] = {**UNITS, "lanes": 64, "vectors": 2, "groups_per_block": 1, "parameters": parameters}
    check(LAYER, 9, 451, (f, f), 4, width=4, **config)


@both
@pytest.mark.parametrize("blocks_per_row", [2, 3])
def test_slices_by_units(operator: str, blocks_per_row: int) -> None:
    config: dict[str, Any] = {
        **UNITS,
        "width": 8,
        "lanes": 64,
        "vectors": 1,
        "blocks_per_row": blocks_per_row,
        "parameters": "shared",
    }
    check(operator, 19, 253 * blocks_per_row, (h, f), 8 * blocks_per_row, **config)


@pytest.mark.parametrize("rows", [1, 8])
def test_units_of_fewer_rows_than_blocks(rows: int) -> None:
    check(LAYER, rows, 257, (b, b), 16, run={"in_place": "X"}, width=8, **UNITS)


@pytest.mark.parametrize("operator", [SKIP, SKIP_SIMPLIFIED])
def test_sums_by_units(operator: str) -> None:
    check(operator, 19, 261, (b, b), 8, width=8, **UNITS)


@both
def test_a_row_ignores_what_its_units_have_of_its_neighbours(operator: str) -> None:
    """Those are far greater than its own elements."""
    operands = case(operator, 20, 301, b, b, seed=7)
    operands.inputs["X"][1::3] *= 1e4
    has = {NAMES[each] for each in operands.inputs}
    wanted = frozenset(NAMES[each] for each in OUTPUTS[operator])
    config = NormForwardConfig(operator, b, b, b, b, f, wanted, biased="bias" in has, width=8, **UNITS)
    simulate(config, operands, 8)
