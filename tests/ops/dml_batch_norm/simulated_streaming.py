"""The batch norms' kernel under the CUDA simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.dml_batch_norm import OUTPUTS, TRAINING, case
from helpers.simulate_dml_batch_norm import simulate

b, h, f, d = "bfloat16", "float16", "float32", "float64"


@pytest.mark.parametrize(
    ("sizes", "statistics", "dtype", "config"),
    [
        ((4, 3, 5, 8), (1, 3, 1, 1), f, {"width": 4}),  # planes of whole vectors
        ((6, 3, 8, 16), (1, 3, 1, 1), h, {"width": 8, "vectors": 2}),
        ((4, 3, 5, 7), (1, 3, 1, 1), b, {"width": 8}),  # vectors that two planes share
        ((70, 24), (1, 24), b, {"width": 8}),  # columns, several rows at once
        ((6, 700), (1, 700), b, {"width": 8}),  # several tiles a row
        ((2, 3, 11, 31), (1, 3, 1, 1), b, {"width": 8}),  # fewer images than make whole vectors
        ((5, 6, 7), (1, 1, 1), f, {"width": 4}),  # one channel
        ((5, 2, 1200), (1, 2, 1), f, {"width": 4}),  # planes large enough to be inner arrays
        ((2, 3, 4), (2, 3, 4), f, {"width": 4}),  # as many channels as elements
        ((3, 5, 4), (3, 5, 1), d, {"width": 2}),  # nothing reduced outside a plane
        ((2, 3, 5, 8), (2, 1, 5, 1), f, {"width": 4}),  # kept and reduced axes in turns
        ((3, 2, 2, 3, 2, 2, 2, 3), (1, 2, 1, 3, 1, 2, 1, 3), f, {"width": 1, "source": "async"}),
        ((2, 3, 2, 2, 3, 2, 2, 4), (2, 1, 2, 1, 3, 1, 2, 1), f, {"width": 4}),
        ((9, 11), (1, 11), d, {"width": 1, "offset": 1}),
    ],
    ids=str,
)
def test_every_pattern_of_axes(sizes: Any, statistics: Any, dtype: str, config: dict[str, Any]) -> None:
    simulate(case(sizes, statistics, dtype), **config)


@pytest.mark.parametrize(
    ("sizes", "statistics", "dtype", "width", "outputs"),
    [
        ((4, 3, 5, 8), (1, 3, 1, 1), f, 4, OUTPUTS),
        ((2, 3, 5, 8), (2, 1, 5, 1), b, 4, OUTPUTS),  # kept and reduced axes in turns
        ((3, 2, 2, 3, 2, 2, 2, 3), (1, 2, 1, 3, 1, 2, 1, 3), f, 1, OUTPUTS[:1]),
        ((70, 24), (1, 24), h, 8, OUTPUTS[:2]),
        ((5, 6, 7), (1, 1, 1), d, 2, OUTPUTS),
        ((2, 3, 4), (2, 3, 4), f, 4, OUTPUTS),  # sums of one element
        ((4, 3, 7), (1, 3, 1), f, 4, OUTPUTS[1:]),
    ],
    ids=str,
)
def test_in_training(sizes: Any, statistics: Any, dtype: str, width: int, outputs: tuple[str, ...]) -> None:
    operands = case(sizes, statistics, dtype)
    operands.operator = TRAINING
    simulate(operands, width, outputs=outputs)


@pytest.mark.parametrize("statistics", [(1, 6, 1), (5, 1, 1), (1, 1, 16)], ids=str)
@pytest.mark.parametrize("threads", [32, 64])
def test_the_form_of_older_devices(statistics: tuple[int, ...], threads: int) -> None:
    simulate(
        case((5, 6, 16), statistics, f), width=4, source="plain", threads=threads, vectors=2, native_bfloat16=False
    )


@pytest.mark.parametrize("outputs", [OUTPUTS[:1], OUTPUTS[1:2], OUTPUTS[2:], OUTPUTS[1:], OUTPUTS[::2]], ids=" ".join)
@pytest.mark.parametrize("sizes", [(4, 3, 16), (4, 3, 7)], ids=str)
def test_only_the_wanted_outputs_are_written(outputs: tuple[str, ...], sizes: tuple[int, ...]) -> None:
    simulate(case(sizes, (1, 3, 1), f), width=4, outputs=outputs)


@pytest.mark.parametrize("source", ["Input", "InputGradient"])
def test_the_gradient_may_be_written_over_what_it_is_made_from(source: str) -> None:
    simulate(case((9, 5, 12), (1, 5, 1), f), width=4, in_place=source, blocks=3)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("sizes", [(4, 3, 16), (4, 3, 7)], ids=str)
def test_what_is_not_finite_reaches_exactly_what_depends_on_it(value: float, sizes: tuple[int, ...]) -> None:
    operands = case(sizes, (1, 3, 1), f)
    operands.inputs["InputGradient"][2, 1, 3] = value
    operands.inputs["Input"][1, 2, 5] = value
    simulate(operands, width=4)
