"""The kernels of softmax's gradients under the CUDA simulator; test_simulated runs this file in its own process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.held import Held, hold
from helpers.reference import reference
from helpers.simulate_rows import run
from helpers.terms import terms
from helpers.tolerance import assert_close, assert_within_terms

from gradkern.kernels.rows.config import RowsConfig, configs
from gradkern.kernels.rows.problem import RowsTypes
from gradkern.ops.softmax.cuda.kernel import build

b, h, f, d = "bfloat16", "float16", "float32", "float64"
SOFTMAX, LOG = "SoftmaxGrad_13", "LogSoftmaxGrad_13"


def check(
    operator: str,
    shape: tuple[int, ...],
    dtype: str,
    axis: int = -1,
    in_place: str = "",
    result: str = "",
    how: dict[str, Any] | None = None,
    **config: Any,
) -> RowsConfig:
    """One launch of the first config, with these fields in place of its own."""
    axis %= len(shape)
    random = np.random.default_rng(0)
    dY = random.standard_normal(shape).astype(dtype)
    scores = random.standard_normal(shape) * 2
    Y = np.exp(scores) / np.exp(scores).sum(axis, keepdims=True)
    Y = (np.log(Y) if operator == LOG else Y).astype(dtype)
    names = {"dY": dY, "X" if operator == LOG else "Y": Y}
    held = {f"input_{n}": hold(each, **(how or {})) for n, each in enumerate(names.values())}
    for name, each in held.items():
        if name != in_place:
            each.memory.freeze()
    output = held[in_place] if in_place else Held(shape, result or dtype, **(how or {}))
    types = RowsTypes(operator, (dtype, dtype), (result or dtype,))
    made = run(
        build, types, held, {"output_0": output}, (axis, axis + 1),
        lambda problem: replace(next(configs(problem, (9, 0))), **config),
    )  # fmt: skip
    expected = reference(operator, names, {"axis": axis})["dX"]
    got = np.array(output.array)
    assert_close(operator, "dX", got, expected)
    assert_within_terms(got, expected, terms(operator, names, {"axis": axis})["dX"])
    return made


@pytest.mark.parametrize("operator", [SOFTMAX, LOG])
@pytest.mark.parametrize("dtype", [b, h, f, d])
@pytest.mark.parametrize("axis", [0, 1])
def test_every_type(operator: str, dtype: str, axis: int) -> None:
    check(operator, (11, 64), dtype, axis)


@pytest.mark.parametrize("columns", [1, 2, 3, 8, 24, 40, 264, 1024])
def test_rows_of_a_warp_or_a_part(columns: int) -> None:
    made = check(SOFTMAX, (9, columns), b)
    assert made.lanes <= 32


@pytest.mark.parametrize("columns", [33, 35, 71, 261, 1031])
@pytest.mark.parametrize("dtype", [b, f])
def test_rows_that_begin_between_vectors(columns: int, dtype: str) -> None:
    made = check(SOFTMAX, (7, columns), dtype)
    assert made.shifted


def test_rows_of_one_block() -> None:
    made = check(LOG, (3, 2056), h)
    assert (made.teams, made.cluster) == (1, 1)
    assert made.lanes > 32


@pytest.mark.parametrize("columns", [1000, 1003])
@pytest.mark.parametrize("cluster", [2, 4])
def test_rows_of_a_cluster(cluster: int, columns: int) -> None:
    vectors = -(-columns // (64 * cluster * 4)) + 1
    check(SOFTMAX, (5, columns), f, lanes=64, teams=1, vectors=vectors, cluster=cluster)


@pytest.mark.parametrize("columns", [1000, 1003])
@pytest.mark.parametrize("cluster", [1, 2])
def test_rows_that_are_read_again(cluster: int, columns: int) -> None:
    check(SOFTMAX, (5, columns), f, lanes=32, teams=1, vectors=2, cluster=cluster, held=False)
    check(LOG, (5, columns), d, lanes=64, teams=1, vectors=1, cluster=cluster, held=False)


@pytest.mark.parametrize("in_place", ["input_0", "input_1"])
@pytest.mark.parametrize("shape", [(9, 40), (9, 41), (3, 2055)])
def test_in_place(in_place: str, shape: tuple[int, ...]) -> None:
    check(SOFTMAX, shape, b, in_place=in_place)
    check(SOFTMAX, shape, b, axis=0, in_place=in_place)


def test_rows_read_again_in_place() -> None:
    check(SOFTMAX, (3, 1003), f, in_place="input_1", lanes=64, teams=1, vectors=1, held=False)


@pytest.mark.parametrize("offset", [0, 1, 4])
@pytest.mark.parametrize("spread", [0, 3, 8])
def test_rows_apart_that_begin_anywhere(offset: int, spread: int) -> None:
    check(SOFTMAX, (7, 72), b, how={"offset": offset, "spread": spread})
    check(SOFTMAX, (7, 3, 40), b, axis=1, how={"offset": offset, "spread": spread})


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 21, 64), (1, 40, 7), (3, 130, 2), (2, 5, 1), (1, 70, 24)])
@pytest.mark.parametrize("dtype", [b, d])
def test_an_inner_axis(shape: tuple[int, ...], dtype: str) -> None:
    check(SOFTMAX, shape, dtype, axis=1)


@pytest.mark.parametrize("cluster", [2, 4])
@pytest.mark.parametrize("lanes", [4, 32])
def test_an_inner_axis_of_a_cluster(cluster: int, lanes: int) -> None:
    check(SOFTMAX, (2, 150, 40), b, axis=1, lanes=lanes, teams=8, vectors=12, cluster=cluster)
    check(LOG, (1, 33, 5), d, axis=1, lanes=lanes, teams=8, vectors=4, cluster=cluster)


def test_an_inner_axis_that_is_read_again() -> None:
    check(LOG, (2, 150, 24), f, axis=1, lanes=4, teams=16, vectors=2, held=False)


@pytest.mark.parametrize("axes", [(2, 0, 1), (1, 2, 0), (0, 2, 1)])
def test_arrays_in_another_order(axes: tuple[int, ...]) -> None:
    for axis in range(3):
        check(SOFTMAX, (4, 6, 16), f, axis=axis, how={"axes": axes})


def test_results_of_another_type() -> None:
    check(SOFTMAX, (9, 264), f, result=h)
    check(SOFTMAX, (9, 261), f, result=h)
    check(LOG, (2, 21, 24), f, axis=1, result=b)
