"""The planes kernel of DirectML's batch norm under the simulator."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from helpers.dml_batch_norm import EPSILON, OUTPUTS, Case, case
from helpers.simulate_dml_batch_norm import launch

from gradkern.ops.dml_batch_norm.cuda.config import ARGUMENTS, PlanesConfig
from gradkern.ops.dml_batch_norm.cuda.plan import NAMES_OF_PLANES
from gradkern.ops.dml_batch_norm.cuda.planes_kernel import build

b, h, f, d = "bfloat16", "float16", "float32", "float64"


def check(
    operands: Case,
    outputs: tuple[str, ...] = OUTPUTS,
    blocks: int = 0,
    in_place: str = "",
    team: int = 1,
    **config: Any,
) -> None:
    """One launch, in memory that shows every stray read and write."""
    X = operands.inputs["Input"]
    images, channels, *spatial = X.shape
    length = prod(spatial)
    settings: dict[str, Any] = {"width": 16 // X.dtype.itemsize, "unroll": 1, "warps": 2} | config
    names = tuple(NAMES_OF_PLANES[each] for each in outputs)
    made = PlanesConfig(X.dtype.name, X.dtype.name, names, EPSILON, **settings)
    assert length >= made.piece
    numbers = made.sizes(images, channels, length) | {"team": team}
    blocks = blocks or made.blocks(X.size)
    partial_bytes = made.partial_bytes(X.size)
    launch(operands, made, build(made), ARGUMENTS, NAMES_OF_PLANES, numbers, partial_bytes, blocks, outputs, in_place)


def planes(*sizes: int, dtype: str) -> Case:
    return case(sizes, (1, sizes[1], *(1 for _ in sizes[2:])), dtype)


@pytest.mark.parametrize("dtype", [b, h, f, d])
@pytest.mark.parametrize("length", [1024, 1031])
def test_every_type(dtype: str, length: int) -> None:
    check(planes(2, 3, length, dtype=dtype), blocks=3, unroll=2)


@pytest.mark.parametrize("config", [{}, {"unroll": 2}, {"by_block": True}, {"by_block": True, "unroll": 3}], ids=str)
@pytest.mark.parametrize("sizes", [(1, 1, 3), (1, 3, 572), (5, 1, 0), (3, 2, 1), (2, 7, 23)], ids=str)
@pytest.mark.parametrize("blocks", [1, 2, 0])
def test_images_channels_and_planes(sizes: tuple[int, ...], blocks: int, config: dict[str, Any]) -> None:
    images, channels, over = sizes
    piece = 128 * config.get("unroll", 1) * (2 if "by_block" in config else 1)  # a plane may not be shorter
    check(planes(images, channels, piece + over, dtype=f), blocks=blocks, **config)


@pytest.mark.parametrize("team", [1, 2, 4])
def test_teams_of_warps(team: int) -> None:
    check(planes(7, 5, 65, dtype=d), blocks=2, warps=4, team=team)


@pytest.mark.parametrize("outputs", [OUTPUTS, OUTPUTS[:2]], ids=" ".join)
def test_only_the_wanted_outputs_are_written(outputs: tuple[str, ...]) -> None:
    check(planes(3, 2, 200, dtype=f), outputs, blocks=2)


@pytest.mark.parametrize("source", ["Input", "InputGradient"])
def test_the_gradient_may_be_written_over_what_it_is_made_from(source: str) -> None:
    check(planes(3, 2, 201, dtype=f), blocks=2, in_place=source)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_reaches_exactly_what_depends_on_it(value: float) -> None:
    operands = planes(3, 4, 131, dtype=f)
    operands.inputs["InputGradient"][2, 1, 3] = value
    operands.inputs["Input"][1, 2, 130] = value
    check(operands, blocks=2)
