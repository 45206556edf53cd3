"""The layer-norm kernel's own source under the CUDA simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.layer_norm import ALL_OUTPUTS, EVERY_WIDTH, INVERTIBLE, LAYER, SIMPLIFIED, WITH_SUM, Case, case
from helpers.reference import reference
from helpers.simulate_layer_norm import simulate
from helpers.tolerance import assert_close

from gradkern.ops.layer_norm.cuda.config import LayerNormConfig

b, h, f, d = "bfloat16", "float16", "float32", "float64"
APART: dict[str, Any] = {"source": "plain", "stages": 2}


def check(
    operator: str,
    rows: int,
    columns: int,
    types: tuple[str, str, str],
    grid: int,
    outputs: tuple[str, ...] = (),
    run: dict[str, Any] | None = None,
    residual: bool = False,
    branch: str = "",
    **config: Any,
) -> None:
    data, upstream, parameter = types
    statistic = d if data == d else f
    operands = case(operator, rows, columns, data, upstream, parameter, statistic, rows * columns, residual)
    wanted: frozenset[str] = frozenset(outputs or ALL_OUTPUTS[operator]) | ({"branch_grad"} if branch else set())
    added: dict[str, Any] = {"residual": residual, "branch": branch}
    made = LayerNormConfig(operator, data, upstream, data, parameter, statistic, wanted, **added, **config)
    if "unpredicated_vectors" not in config:
        made = replace(made, unpredicated_vectors=made.fewest_vectors(columns))
    simulate(made, operands, grid, **(run or {}))


@pytest.mark.parametrize("operator", [LAYER, SIMPLIFIED, INVERTIBLE])
def test_several_rows_of_a_warp_and_rows_left_over(operator: str) -> None:
    check(operator, 37, 64, (b, b, b), 2, width=8, lanes=4, vectors=2, groups_per_block=2)


@pytest.mark.parametrize("operator", [LAYER, SIMPLIFIED, INVERTIBLE])
def test_a_warp_a_row_with_vectors_left_over(operator: str) -> None:
    check(operator, 9, 200, (f, f, f), 2, width=4, lanes=32, vectors=2, groups_per_block=2)


@pytest.mark.parametrize("columns", [1, 31, 65, 128])
def test_one_kernel_serves_every_width_that_its_threads_have_vectors_for(columns: int) -> None:
    check(LAYER, 9, columns, (h, h, h), 1, run={"offset": 2}, **EVERY_WIDTH)


@pytest.mark.parametrize("columns", [8, 24, 32])
def test_one_kernel_serves_narrow_rows_of_several_widths(columns: int) -> None:
    check(
        SIMPLIFIED, 21, columns, (b, b, f), 1, width=8, lanes=4, vectors=1, unpredicated_vectors=0, groups_per_block=1
    )


@pytest.mark.parametrize("columns", [264, 400, 512])
def test_one_kernel_serves_slices_of_several_widths(columns: int) -> None:
    config: dict[str, Any] = {
        "width": 8,
        "lanes": 32,
        "vectors": 1,
        "unpredicated_vectors": 0,
        "groups_per_block": 1,
        "blocks_per_row": 2,
    }
    check(INVERTIBLE, 5, columns, (b, b, b), 2, **config)


def test_a_team_of_warps_a_row() -> None:
    check(LAYER, 11, 768, (b, b, f), 1, width=8, lanes=64, vectors=2, groups_per_block=1, scale_width=4)


@pytest.mark.parametrize(("lanes", "chunk", "rows_in_flight"), [(64, 1, 2), (64, 32, 3), (64, 64, 1), (96, 64, 6)])
def test_threads_stand_side_by_side_or_share_out_the_rows_at_the_end(
    lanes: int, chunk: int, rows_in_flight: int
) -> None:
    config: dict[str, Any] = {"width": 4, "lanes": lanes, "vectors": 4, "groups_per_block": 1, "scale_width": 4}
    check(LAYER, 11, 904, (b, f, f), 7, chunk=chunk, rows_in_flight=rows_in_flight, **config)


@pytest.mark.parametrize("strides", [False, True])
def test_rows_that_start_anywhere(strides: bool) -> None:
    run = {"offset": 2, "strides": strides}
    config: dict[str, Any] = {
        "width": 1,
        "lanes": 32,
        "vectors": 4,
        "groups_per_block": 2,
        "aligned": False,
        "packed": not strides,
    }
    check(LAYER, 9, 101, (h, h, h), 1, run=run, **config)


def test_a_cluster_exchanges_the_sums_of_a_row() -> None:
    check(LAYER, 5, 512, (b, b, b), 2, width=8, lanes=32, vectors=1, groups_per_block=1, blocks_per_row=2)


def test_the_ring_is_read_twice_where_registers_do_not_suffice() -> None:
    check(
        INVERTIBLE,
        7,
        500,
        (b, b, b),
        1,
        width=4,
        lanes=64,
        vectors=2,
        groups_per_block=1,
        aligned=False,
        row_in_registers=False,
    )


@pytest.mark.parametrize(("operator", "parameter"), [(LAYER, b), (SIMPLIFIED, f), (INVERTIBLE, b)])
def test_a_cluster_reads_the_ring_twice(operator: str, parameter: str) -> None:
    config: dict[str, Any] = {
        "width": 8,
        "lanes": 32,
        "vectors": 2,
        "groups_per_block": 1,
        "blocks_per_row": 2,
        "stages": 2,
        "row_in_registers": False,
    }
    check(operator, 7, 904, (b, b, parameter), 4, scale_width=4, **config)


@pytest.mark.parametrize("single_block", [False, True])
def test_two_launches_for_rows_wider_than_a_cluster(single_block: bool) -> None:
    config: dict[str, Any] = {
        "width": 4,
        "lanes": 32,
        "vectors": 1,
        "groups_per_block": 2,
        "blocks_per_row": 3,
        "aligned": False,
        "single_block": single_block,
    }
    check(LAYER, 5, 300, (b, b, b), 3, phase="apply", **config)


@pytest.mark.parametrize("source", ["async", "plain"])
def test_the_forms_of_older_devices(source: str) -> None:
    check(LAYER, 9, 50, (d, d, d), 1, width=2, lanes=8, vectors=4, groups_per_block=1, source=source)


@pytest.mark.parametrize("outputs", [("X_grad",), ("scale_grad",), ("bias_grad",), ("X_grad", "bias_grad")])
def test_only_the_wanted_outputs_are_written(outputs: tuple[str, ...]) -> None:
    check(LAYER, 9, 100, (f, f, b), 1, outputs, width=4, lanes=8, vectors=4, groups_per_block=1)


@pytest.mark.parametrize("source", ["X", "Y_grad"])
def test_X_grad_may_be_written_over_what_it_is_made_from(source: str) -> None:
    check(LAYER, 9, 100, (f, f, f), 1, run={"in_place": source}, width=4, lanes=8, vectors=4, groups_per_block=1)


@pytest.mark.parametrize("operator", [LAYER, pytest.param(SIMPLIFIED, marks=pytest.mark.every_kernel)])
def test_a_residuals_gradient_is_added_to_X_grad(operator: str) -> None:
    check(operator, 37, 64, (b, b, b), 2, residual=True, width=8, lanes=4, vectors=2, groups_per_block=2)
    check(
        operator, 9, 500, (b, f, f), 1, residual=True, width=4, lanes=64, vectors=2, groups_per_block=1, aligned=False
    )
    cluster: dict[str, Any] = {"width": 8, "lanes": 32, "vectors": 1, "groups_per_block": 1, "blocks_per_row": 2}
    check(operator, 5, 512, (b, b, b), 2, residual=True, **cluster)
    check(operator, 5, 504, (b, b, b), 2, residual=True, phase="apply", **cluster)


def test_a_residuals_gradient_in_rows_that_start_anywhere() -> None:
    config: dict[str, Any] = {
        "width": 1,
        "lanes": 16,
        "vectors": 7,
        "groups_per_block": 2,
        "aligned": False,
        "packed": False,
    }
    check(LAYER, 9, 101, (h, h, h), 1, run={"offset": 2, "strides": True}, residual=True, **config)


@pytest.mark.parametrize("source", ["async", "plain"])
def test_a_residuals_gradient_on_older_devices(source: str) -> None:
    config: dict[str, Any] = {"width": 2, "lanes": 8, "vectors": 4, "groups_per_block": 1, "source": source}
    check(LAYER, 9, 50, (d, d, d), 1, run={"in_place": "residual_grad"}, residual=True, **config)


@pytest.mark.parametrize(
    ("operator", "types", "more"),
    [
        ([LAYER, SIMPLIFIED][(one + other) % 2], types, more)
        for one, types in enumerate([(f, b, f), (f, f, f), (f, f, b)])  # X, Y_grad, scale
        for other, more in enumerate(
            [{}, {"residual": True}, {"residual": True, "outputs": ("scale_grad", "X_grad_sum")}]
        )
    ],
)
def test_X_grad_is_also_written_in_the_type_of_a_branch(
    operator: str, types: tuple[str, str, str], more: dict[str, Any]
) -> None:
    more = {**more, "branch": b}
    check(operator, 9, 200, types, 2, width=4, lanes=32, vectors=2, groups_per_block=2, **more)
    check(operator, 37, 64, types, 2, width=4, lanes=4, vectors=4, groups_per_block=2, **more)
    check(operator, 9, 500, types, 1, width=4, lanes=64, vectors=2, groups_per_block=1, aligned=False, **more)
    anywhere: dict[str, Any] = {"aligned": False, "packed": False, "run": {"offset": 4, "strides": True}}
    check(operator, 9, 61, types, 1, width=1, lanes=32, vectors=2, groups_per_block=2, **anywhere, **more)
    cluster: dict[str, Any] = {"width": 4, "lanes": 32, "vectors": 1, "groups_per_block": 1, "blocks_per_row": 2}
    check(operator, 5, 200, types, 4, **cluster, **more)
    check(operator, 5, 200, types, 4, phase="apply", **cluster, **more)
    check(operator, 5, 200, types, 2, stages=2, row_in_registers=False, **cluster, **more)
    check(operator, 9, 200, types, 2, source="async", width=4, lanes=32, vectors=2, groups_per_block=2, **more)
    check(operator, 9, 200, types, 2, source="plain", width=4, lanes=32, vectors=2, groups_per_block=2, **more)


def test_a_branch_of_Xs_type_has_X_grad_in_other_memory() -> None:
    check(LAYER, 37, 257, (b, b, b), 8, branch=b, width=8, **UNITS)
    check(LAYER, 9, 101, (f, f, f), 8, ("branch_grad",), branch=f, width=4, **UNITS)


def test_blocks_with_rows_write_the_branchs_gradient_beside_blocks_with_columns() -> None:
    config: dict[str, Any] = {"width": 4, "lanes": 32, "vectors": 1, "groups_per_block": 2, "reduction_lanes": 8}
    check(LAYER, 9, 100, (f, b, f), 7, residual=True, branch=b, **APART, **config)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("operator", [LAYER, SIMPLIFIED])
def test_X_grad_is_summed_over_rows(operator: str, residual: bool) -> None:
    more: dict[str, Any] = {"outputs": WITH_SUM[operator], "residual": residual}
    check(operator, 37, 64, (b, b, b), 2, width=8, lanes=4, vectors=2, groups_per_block=2, **more)
    check(operator, 9, 500, (b, f, f), 1, width=4, lanes=64, vectors=2, groups_per_block=1, aligned=False, **more)
    check(operator, 9, 200, (f, f, f), 2, width=4, lanes=32, vectors=2, groups_per_block=2, **more)  # padded with zeros
    cluster: dict[str, Any] = {"width": 8, "lanes": 32, "vectors": 1, "groups_per_block": 1, "blocks_per_row": 2}
    check(operator, 5, 512, (b, b, b), 4, **cluster, **more)
    check(operator, 5, 504, (b, b, b), 4, phase="apply", **cluster, **more)
    check(operator, 5, 504, (b, b, b), 2, phase="apply", single_block=True, **cluster, **more)
    check(operator, 5, 504, (b, b, b), 2, stages=2, row_in_registers=False, **cluster, **more)


@pytest.mark.parametrize("source", ["async", "plain"])
def test_X_grad_is_summed_on_older_devices(source: str) -> None:
    config: dict[str, Any] = {"width": 2, "lanes": 8, "vectors": 4, "groups_per_block": 1, "source": source}
    check(LAYER, 9, 50, (d, d, d), 1, WITH_SUM[LAYER], residual=True, **config)


@pytest.mark.parametrize("others", [(), ("X_grad",), ("scale_grad",), ("bias_grad",), ("scale_grad", "bias_grad")])
def test_the_sum_of_X_grad_may_be_wanted_without_others(others: tuple[str, ...]) -> None:
    config: dict[str, Any] = {"width": 4, "lanes": 32, "vectors": 1, "groups_per_block": 1, "residual": True}
    check(LAYER, 9, 100, (f, f, b), 1, (*others, "X_grad_sum"), **config)
    check(LAYER, 9, 200, (f, f, b), 2, (*others, "X_grad_sum"), phase="apply", blocks_per_row=2, **config)


@pytest.mark.parametrize("operator", [LAYER, SIMPLIFIED, INVERTIBLE])
@pytest.mark.parametrize(
    ("rows", "columns", "types", "blocks", "config"),  # blocks: with rows, then with columns, which begin the grid
    [
        (37, 72, (b, b, b), (3, 5), {"width": 8, "lanes": 16, "vectors": 1, "reduction_lanes": 2}),
        (37, 72, (b, b, b), (10, 3), {"width": 8, "lanes": 16, "vectors": 1, "reduction_lanes": 4}),
        (
            3,
            500,
            (b, f, f),
            (3, 4),
            {"width": 4, "lanes": 64, "vectors": 2, "groups_per_block": 1, "reduction_lanes": 32},
        ),
        (
            3,
            500,
            (b, f, f),
            (3, 2),
            {"width": 4, "lanes": 128, "vectors": 1, "groups_per_block": 1, "reduction_lanes": 64},
        ),
        (
            9,
            1200,
            (h, h, h),
            (9, 2),
            {"width": 8, "lanes": 128, "vectors": 2, "groups_per_block": 1, "reduction_lanes": 128},
        ),
        (300, 20, (f, f, b), (5, 3), {"width": 4, "lanes": 8, "vectors": 1, "reduction_lanes": 2}),  # several rounds
        (
            9,
            101,
            (h, h, h),
            (2, 1),
            {"width": 1, "lanes": 32, "vectors": 4, "reduction_lanes": 32, "reduction_vectors": 4},
        ),
        (
            9,
            301,
            (h, h, h),
            (2, 5),
            {"width": 1, "lanes": 64, "vectors": 5, "reduction_lanes": 32, "reduction_vectors": 2},
        ),
        (9, 50, (d, d, d), (1, 4), {"width": 2, "lanes": 8, "vectors": 4, "reduction_lanes": 8}),
        (
            5,
            512,
            (b, b, b),
            (4, 4),
            {"width": 8, "lanes": 32, "vectors": 1, "blocks_per_row": 2, "reduction_lanes": 16},
        ),
        (
            99,
            72,
            (b, b, b),
            (4, 12),
            {"width": 8, "lanes": 16, "vectors": 1, "reduction_lanes": 4, "reduction_cluster_size": 4},
        ),
        (
            300,
            20,
            (d, d, d),
            (6, 10),
            {"width": 2, "lanes": 8, "vectors": 2, "reduction_lanes": 2, "reduction_cluster_size": 2},
        ),
        (
            5,
            328,
            (b, b, b),
            (8, 4),
            {"width": 8, "lanes": 32, "vectors": 1, "blocks_per_row": 4, "reduction_lanes": 16},
        ),
    ],
)
def test_blocks_of_their_own_add_up_the_columns_of_few_rows(
    operator: str, rows: int, columns: int, types: tuple[str, str, str], blocks: tuple[int, int], config: dict[str, Any]
) -> None:
    """A cluster has the rows of slices, and not all of its blocks have columns then."""
    groups = 1 if "blocks_per_row" in config else 2
    run = {"offset": 2} if config["width"] == 1 else {}
    check(operator, rows, columns, types, sum(blocks), run=run, **APART, **{"groups_per_block": groups, **config})


@pytest.mark.parametrize("outputs", [("X_grad", "scale_grad"), ("X_grad", "bias_grad"), ("scale_grad", "X_grad")])
def test_blocks_with_columns_write_only_what_is_wanted(outputs: tuple[str, ...]) -> None:
    config: dict[str, Any] = {"width": 4, "lanes": 32, "vectors": 1, "groups_per_block": 2, "reduction_lanes": 8}
    check(LAYER, 9, 100, (f, f, b), 7, outputs, residual=True, **APART, **config)
    check(INVERTIBLE, 9, 100, (f, f, b), 7, outputs, **APART, **config)


def test_blocks_with_columns_of_rows_that_lie_apart() -> None:
    config: dict[str, Any] = {
        "width": 1,
        "lanes": 16,
        "vectors": 7,
        "groups_per_block": 2,
        "aligned": False,
        "packed": False,
    }
    config |= {"reduction_lanes": 4, "reduction_vectors": 4, "long_rows": True}
    check(LAYER, 9, 101, (h, h, h), 9, run={"offset": 2, "strides": True}, **APART, **config)


UNITS: dict[str, Any] = {"lanes": 32, "vectors": 2, "groups_per_block": 2, "aligned_vectors": True}


@pytest.mark.parametrize("columns", [257, 262, 500])  # which begin anew every 8, 4 and 2 rows
def test_vectors_by_units_of_memory(columns: int) -> None:
    check(LAYER, 37, columns, (b, b, b), 8, width=8, **UNITS)


@pytest.mark.parametrize("operator", [SIMPLIFIED, INVERTIBLE])
def test_units_of_four_elements(operator: str) -> None:
    config: dict[str, Any] = {**UNITS, "lanes": 64, "vectors": 1, "groups_per_block": 1}
    check(operator, 9, 131, (f, f, f), 4, width=4, **config)


@pytest.mark.parametrize("blocks_per_row", [2, 3])
def test_slices_by_units(blocks_per_row: int) -> None:
    config: dict[str, Any] = {**UNITS, "width": 8, "lanes": 64, "vectors": 1, "blocks_per_row": blocks_per_row}
    check(LAYER, 19, 253 * blocks_per_row, (h, h, f), 8 * blocks_per_row, residual=True, **config)
    check(LAYER, 19, 253 * blocks_per_row, (b, b, b), 8 * blocks_per_row, WITH_SUM[LAYER], **config)
    check(INVERTIBLE, 19, 253 * blocks_per_row, (b, b, b), 8 * blocks_per_row, **config)


@pytest.mark.parametrize("rows", [1, 8])
def test_units_of_fewer_rows_than_blocks(rows: int) -> None:
    check(LAYER, rows, 257, (b, b, b), 16, width=8, **UNITS)
    check(LAYER, rows, 257, (b, b, b), 8, ("X_grad",), run={"in_place": "X"}, width=8, **UNITS)


@pytest.mark.parametrize("operator", [LAYER, SIMPLIFIED, INVERTIBLE])
def test_a_row_ignores_what_its_units_have_of_its_neighbours(operator: str) -> None:
    config = LayerNormConfig(operator, b, b, b, b, f, frozenset(ALL_OUTPUTS[operator]), width=8, **UNITS)
    operands = Unfinished(operator, case(operator, 20, 301, b, b, b, f, 7).inputs)
    for name in ("Y_grad", "Y" if operator == INVERTIBLE else "X"):
        operands.inputs[name][1::3] = np.nan
    simulate(config, operands, 8)


class Unfinished(Case):
    def check(self, results: dict[str, np.ndarray]) -> None:
        """As Case does, with NaN where the reference has it."""
        expected = reference(self.operator, self.inputs)
        for name, out in results.items():
            assert_close(self.operator, name, out, expected[name])
