"""Configs of the row block: they fit a device, and their threads take every element of every row, each once."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from gradkern.call import Refusal, Tensor
from gradkern.kernels.rows.config import configs
from gradkern.kernels.rows.plan import sizes_of
from gradkern.kernels.rows.problem import ARGUMENTS, RowsProblem, RowsTypes, problem_of
from gradkern.strides import c_strides

b, h, f, d = "bfloat16", "float16", "float32", "float64"
CAPABILITIES = [(7, 5), (8, 0), (9, 0), (12, 0)]
SHARED_MEMORY = 48 * 1024  # what a launch may have without asking for more


def dense(shape: tuple[int, ...], dtype: str, order: tuple[int, ...] | None = None, alignment: int = 16) -> Tensor:
    item = np.dtype(dtype).itemsize
    axes = tuple(range(len(shape))) if order is None else order
    steps = dict(zip(axes, c_strides(tuple(shape[n] for n in axes), item), strict=True))
    return Tensor(np.dtype(dtype), shape, tuple(steps[n] for n in range(len(shape))), alignment)


def problem(*tensors: Tensor, axis: int, types: Any = None) -> RowsProblem:
    names = {f"array_{n}": each for n, each in enumerate(tensors)}
    kinds = tuple(each.dtype.name for each in tensors)
    return problem_of(types or RowsTypes("Toy", kinds[:-1], kinds[-1:]), names, axis, axis + 1)


@settings(deadline=None, max_examples=200)
@given(
    some.sampled_from([b, h, f, d]),
    some.integers(1, 1 << 21),
    some.integers(1, 1 << 21),
    some.integers(0, 3000),
    some.sampled_from([1, 2]),
    some.sampled_from(CAPABILITIES),
)
def test_every_config_fits_and_takes_every_element_once(
    dtype: str, rows: int, columns: int, inner: int, inputs: int, capability: tuple[int, int]
) -> None:
    if inner:  # a launch has less than 2^31 blocks
        rows = max(1, min(rows, (1 << 28) // (columns * inner)))
    shape = (rows, columns, inner) if inner else (rows, columns)
    arrays = [dense(shape, dtype)] * (inputs + 1)
    made = problem(*arrays, axis=1)
    found = list(configs(made, capability))
    assert found
    for config in found:
        assert config.threads <= 1024
        assert config.threads % 32 == 0
        assert config.shared_bytes(made.types) <= SHARED_MEMORY
        assert config.cluster == 1 or capability >= (9, 0)
        assert config.lanes % 32 == 0 or 32 % config.lanes == 0
        grid, numbers = sizes_of(made, config)
        assert numbers.keys() < set(ARGUMENTS)
        if made.inner:
            covered, of = config.teams * config.vectors * config.cluster, made.columns
            assert grid == made.rows * -(-made.inner // (config.lanes * config.width)) * config.cluster
            assert config.cluster <= config.teams
            assert made.inner % config.width == 0
        else:
            covered, of = config.lanes * config.cluster * config.vectors, made.vectors
            assert grid * config.teams >= made.rows * config.cluster
            assert config.teams == 1 or config.lanes <= 32
        assert covered >= of or not config.held
    assert not found[-1].held or found[-1] is found[0]


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_dense_arrays_need_no_copy_where_other_axes_are_one(axis: int, order: tuple[int, ...]) -> None:
    shape = (4, 6, 16)
    array = dense(shape, f, order)
    place = order.index(axis)
    made = problem(array, array, array, axis=axis)
    inner = [shape[n] for n in order[place + 1 :]]
    assert (made.columns, made.inner) == (shape[axis], int(np.prod(inner)) if inner else 0)
    assert made.rows == int(np.prod([shape[n] for n in order[:place]]))


@pytest.mark.parametrize(
    "types",
    [RowsTypes("Toy", (f,), (f,), scalars=(f,)), RowsTypes("Toy", (f,), (f,), results=(f,))],
    ids=["scalars", "results"],
)
@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_rows_with_numbers_of_their_own_are_in_the_order_of_these(
    axis: int, order: tuple[int, ...], types: RowsTypes
) -> None:
    """Labels, losses and statistics are in C order of the other axes, whatever order these have in memory."""
    shape = (4, 6, 16)
    array = dense(shape, f, order)
    others = [n for n in range(3) if n != axis]
    in_c_order = [place for place in order if place != axis] == others
    if not in_c_order:
        with pytest.raises(Refusal, match="pass contiguous copies"):
            problem(array, array, axis=axis, types=types)
        return
    made = problem(array, array, axis=axis, types=types)
    places = np.arange(made.rows)[:, None] * made.strides[0] + np.arange(max(1, made.inner)) * 4
    first, second = others
    expected = (
        np.arange(shape[first])[:, None] * array.strides[first] + np.arange(shape[second]) * array.strides[second]
    )
    assert places.ravel().tolist() == expected.ravel().tolist()


def test_what_fits_neither_layout_is_refused_with_the_names() -> None:
    one = Tensor(np.dtype(f), (4, 6, 16), (6 * 16 * 8, 16 * 8, 8), 16)  # every second element
    with pytest.raises(Refusal, match="array_0, array_1: no axis has its elements side by side"):
        problem(one, one, axis=1)
    gaps = Tensor(np.dtype(f), (4, 6, 16), (4096, 512, 4), 16)
    with pytest.raises(Refusal, match="the rows are not at one distance"):
        problem(gaps, gaps, axis=2)
    back = Tensor(np.dtype(f), (4, 6), (-24, 4), 16)
    with pytest.raises(Refusal, match="not at one positive distance"):
        problem(back, back, axis=1)


@pytest.mark.parametrize(
    ("columns", "stride", "alignments", "expected"),
    [
        (1024, 2048, (16, 16), (8, False)),
        (1001, 2002, (16, 16), (8, True)),  # dense rows of odd columns
        (1001, 2048, (16, 16), (8, True)),  # padded ones: the last vector alone is not the row's
        (1004, 2008, (16, 16), (8, True)),
        (1024, 2048, (8, 8), (4, False)),
        (1001, 2002, (8, 8), (4, True)),
        (1001, 2002, (2, 16), (1, False)),  # the arrays begin at different places of their vectors
        (12, 24, (16, 16), (4, False)),  # few columns
        (11, 22, (16, 16), (1, False)),
    ],
)
def test_vectors_are_as_wide_as_rows_and_addresses_allow(
    columns: int, stride: int, alignments: tuple[int, int], expected: tuple[int, bool]
) -> None:
    arrays = [Tensor(np.dtype(b), (64, columns), (stride, 2), each) for each in alignments]
    made = problem(*arrays, axis=1)
    assert (made.width, made.shifted) == expected


def test_arrays_of_other_types_or_strides_are_shifted_only_if_alike() -> None:
    wide, narrow = (Tensor(np.dtype(each), (64, 1001), (1001 * n, n), 16) for each, n in ((f, 4), (b, 2)))
    assert problem(wide, narrow, axis=1).shifted is False
    apart = Tensor(np.dtype(b), (64, 1001), (2002 + 2, 2), 16)
    assert problem(narrow, apart, axis=1).width == 1
    apart = Tensor(np.dtype(b), (64, 1001), (2002 + 16, 2), 16)
    made = problem(narrow, apart, axis=1)
    assert (made.width, made.shifted) == (8, True)


def test_kernels_serve_many_sizes() -> None:
    """Sizes are numbers of a launch: few kernels for all widths."""
    made = {
        next(configs(problem(*[dense((1 << 14, columns), b)] * 3, axis=1), (9, 0))) for columns in range(1, 20_000, 7)
    }
    assert len(made) <= 120


@pytest.mark.parametrize(("dtype", "rows"), list(product([b, d], [1, 5])))
def test_an_array_of_one_row_or_one_column(dtype: str, rows: int) -> None:
    made = problem(*[dense((rows, 1), dtype)] * 3, axis=1)
    assert (made.rows, made.columns, made.inner) == (rows, 1, 0)
    assert problem(*[dense((1, 7), dtype)] * 3, axis=1).rows == 1
