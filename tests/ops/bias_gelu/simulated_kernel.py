"""The GELU kernel's own source under the CUDA simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import simulated
from helpers.bias_gelu import EXACT, FAST, FORWARD, assert_right, operands
from helpers.guarded import Guarded

from gradkern.kernels.channels.tiles_config import ARGUMENTS
from gradkern.ops.bias_gelu.cuda.config import BiasGeluConfig
from gradkern.ops.bias_gelu.cuda.kernel import build

b, h, f, d = "bfloat16", "float16", "float32", "float64"
BOTH = ("dX", "dB")
KERNEL_NAMES = {"A": "X", "C": "dX", "dY": "D", "B": "first_parameter", "dB": "first_sum"}


def check(
    operator: str,
    rows: int,
    columns: int,
    data: str,
    outputs: tuple[str, ...] = BOTH,
    parameter: str = "",
    blocks: int = 0,
    offset: int = 0,
    spread: int = 0,
    large: int = 0,
    times: int = 1,
    in_place: str = "",
    **config: Any,
) -> None:
    """One launch on rows x columns of the array, in memory that shows every stray read and write."""
    inputs = operands(rows, columns, data, parameter or data, operator=operator)
    outputs = ("dX",) if operator in FORWARD else outputs
    fold = config.pop("fold", 1)
    config |= {"folded": fold > 1, "fold": fold if "dB" in outputs else 1}
    made = BiasGeluConfig(operator, data, parameter or data, outputs, **config)
    row = columns * next(iter(inputs.values())).itemsize + spread

    def hold(shape: tuple[int, ...], dtype: Any) -> Guarded:
        return Guarded(shape, dtype, offset, row) if len(shape) == 2 else Guarded(shape, dtype)

    held = {name: hold(array.shape, array.dtype) for name, array in inputs.items()}
    for name, array in inputs.items():
        held[name].array[...] = array
        if name != in_place:
            held[name].freeze()
    if "dX" in outputs:
        held["dX"] = held[in_place] if in_place else hold((rows, columns), data)
    if "dB" in outputs:
        held["dB"] = hold((columns,), parameter or data)
    chunks = made.chunks(-(-rows // fold)) - large * (times - 1)
    tiles = chunks * made.slices(columns * fold)
    partial = Guarded((chunks * made.column_sums.partial_bytes(columns * fold),), np.uint8)
    counter = np.zeros(64, np.uint32)
    named = {KERNEL_NAMES.get(name, name): each.address for name, each in held.items()}
    named |= {"partial": partial.address, "counter": counter.ctypes.data}
    named |= made.sizes(columns * fold)
    named |= {"large": large, "times": times}
    named |= {"rows": rows // fold, "tail": rows % fold * columns, "repeat": columns}
    named |= {f"{name}_stride": row * fold for name in ("D", "X", "dX")}
    arguments = tuple(np.int64(named.get(name, 0)) for name in ARGUMENTS)
    kernel = build(made)
    for _ in range(2):  # the second launch finds the counters as the first left them
        for each in (partial, *(held[name] for name in outputs if not in_place)):
            each.poison()
        simulated.launch(kernel, blocks or tiles, made.threads, 1, made.shared_bytes, arguments)
        if in_place:
            break
    for each in (*held.values(), partial):
        each.check()
    results = {"C" if operator in FORWARD else name: np.array(held[name].array) for name in outputs}
    assert_right(operator, inputs, results)


@pytest.mark.parametrize(
    ("operator", "data"),
    [
        *((EXACT, data) for data in (b, h, f, d)),
        *((operator, f) for operator in (FAST, *FORWARD)),
        *(
            pytest.param(operator, data, marks=pytest.mark.every_kernel)
            for operator in (FAST, *FORWARD)
            for data in (b, h, d)
        ),
    ],
)
def test_every_type(operator: str, data: str) -> None:
    check(operator, 6, 70, data, width=2, lanes=32, groups_per_block=2, unroll=2)


@pytest.mark.parametrize("outputs", [("dX",), ("dB",), BOTH])
def test_only_the_wanted_outputs_are_written(outputs: tuple[str, ...]) -> None:
    check(EXACT, 9, 100, f, outputs, width=4, lanes=32, groups_per_block=2)


def test_blocks_draw_their_tasks() -> None:
    check(FAST, 43, 200, b, blocks=3, width=8, lanes=8, groups_per_block=2, unroll=2, parameters_at_once=8)


@pytest.mark.parametrize(("large", "times"), [(1, 2), (2, 3), (3, 2)])
def test_a_slices_first_tiles_are_higher(large: int, times: int) -> None:
    check(FAST, 61, 100, f, blocks=3, large=large, times=times, width=4, lanes=8, groups_per_block=1, unroll=2)
    check(
        EXACT, 229, 33, h, blocks=2, large=large, times=times, width=8, lanes=16, groups_per_block=1, unroll=2, fold=8
    )


@pytest.mark.parametrize("columns", [8, 40, 64, 72, 200])
def test_one_kernel_serves_any_number_of_columns(columns: int) -> None:
    check(FAST, 13, columns, b, blocks=3, width=8, lanes=8, groups_per_block=1, unroll=2, parameters_at_once=8)


def test_a_row_for_each_thread_where_it_is_one_vector() -> None:
    check(EXACT, 150, 8, b, blocks=2, width=8, lanes=1, groups_per_block=1, unroll=2, parameters_at_once=8)


@pytest.mark.parametrize("rows", [49, 100, 144])
def test_a_block_with_all_rows_of_its_columns_some_at_a_time(rows: int) -> None:
    times = -(-rows // 48)
    check(EXACT, rows, 100, h, large=1, times=times, width=4, lanes=4, groups_per_block=3, unroll=2, single_block=True)


def test_a_block_with_all_rows_of_its_columns() -> None:
    check(EXACT, 37, 96, b, width=8, lanes=4, whole=True, groups_per_block=3, unroll=2, single_block=True, parameter=f)


@pytest.mark.parametrize("outputs", [("dX",), BOTH])
@pytest.mark.parametrize("rows", [8, 29])
def test_rows_of_odd_columns_folded_into_one_with_whole_vectors(rows: int, outputs: tuple[str, ...]) -> None:
    check(FAST, rows, 33, h, outputs, width=8, lanes=16, groups_per_block=2, fold=8)


@pytest.mark.parametrize("rows", [64, 95])
def test_rows_folded_to_whole_cache_lines_in_more_than_one_tile(rows: int) -> None:
    check(EXACT, rows, 33, d, blocks=3, width=2, lanes=16, groups_per_block=1, unroll=2, fold=16, parameters_at_once=1)
    check(EXACT, rows, 40, h, blocks=3, width=8, lanes=8, groups_per_block=1, unroll=1, fold=8, parameters_at_once=8)


def test_few_rows_in_slices_of_many_lanes() -> None:
    check(FAST, 13, 2057, h, blocks=2, width=8, lanes=128, groups_per_block=1, unroll=2, fold=8)


def test_rows_that_start_anywhere_and_lie_apart() -> None:
    check(EXACT, 9, 33, b, offset=2, spread=6, width=1, lanes=64, groups_per_block=1)


@pytest.mark.parametrize("source", ["X", "dY"])
def test_dX_may_be_written_over_what_it_is_made_from(source: str) -> None:
    check(EXACT, 19, 64, f, in_place=source, blocks=2, width=4, lanes=16, groups_per_block=1, unroll=2)


@pytest.mark.parametrize("rows", [8, 29])
def test_gelu_itself_of_rows_of_odd_columns(rows: int) -> None:
    check(FORWARD[0], rows, 33, h, width=8, lanes=16, groups_per_block=2, fold=8)
    check(FORWARD[1], rows, 33, b, offset=2, spread=6, width=1, lanes=64, groups_per_block=1)


def test_gelu_may_be_written_over_its_input() -> None:
    check(FORWARD[0], 19, 64, f, in_place="A", width=4, lanes=16, groups_per_block=1, unroll=2)
