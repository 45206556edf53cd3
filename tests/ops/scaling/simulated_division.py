"""The kernels of a quotient's gradients under the CUDA simulator; test_simulated runs this file in its own process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.held import Held, hold
from helpers.reference import reference
from helpers.simulate_elementwise import simulate
from helpers.terms import terms
from helpers.tolerance import assert_close

b, h, f, d = "bfloat16", "float16", "float32", "float64"
RANDOM = np.random.default_rng(0)
SHAPES: list[tuple[Any, Any, Any]] = [  # of the quotient, of A, of B
    ((3, 70), (3, 70), (3, 70)),
    ((5, 33), (5, 33), (33,)),
    ((5, 33), (5, 33), (5, 1)),
    ((70, 65), (70, 65), ()),  # in parts, as the next
    ((600, 3), (600, 3), (3,)),
    ((3, 4, 5), (4, 5), (3, 1, 5)),
    ((2, 3, 4, 5), (2, 3, 4, 5), (1, 3, 1, 1)),
    ((4, 3, 2, 5), (4, 1, 2, 1), (3, 1, 5)),
    ((130,), (1,), (130,)),
    ((5, 32), (5, 32), (32,)),  # vectors, from here on
    ((9, 32), (9, 1), (9, 32)),
    ((3, 4, 16), (4, 1), (3, 4, 16)),
    ((300, 32), (32,), (300, 1)),
    ((1, 3, 1), (1, 1), (1, 3, 1)),
]


def check(sizes: Any, a: Any, of_b: Any, dtype: str, spread: int = 0, axes: Any = None, **named: Any) -> None:
    """axes: of all arrays of four dimensions, in the order of memory."""
    dY, A, B = RANDOM.standard_normal(sizes), RANDOM.standard_normal(a), RANDOM.uniform(0.5, 2, of_b)
    given = {"dY": dY.astype(dtype), "A": np.asarray(A).astype(dtype), "B": np.asarray(B).astype(dtype)}
    expected, of = reference("DivGrad", given), terms("DivGrad", given)
    order = {name: axes if each.ndim == 4 else None for name, each in given.items()}
    held = {name: hold(each, spread=spread * (name == "dY"), axes=order[name]) for name, each in given.items()}
    into = {f"d{name}": Held(given[name].shape, dtype, axes=order[name]) for name in "AB"} if axes else {}
    for name, found in simulate("DivGrad", held, None, into, **named).items():
        assert_close("DivGrad", name, found, expected[name], of[name])


@pytest.mark.parametrize("shapes", SHAPES)
def test_arrays_broadcast_along_any_axes(shapes: tuple[Any, Any, Any]) -> None:
    check(*shapes, f)


@pytest.mark.parametrize("dtype", [b, h, d])
@pytest.mark.parametrize("spread", [0, 3])
def test_every_type_and_rows_at_a_distance(dtype: str, spread: int) -> None:
    check((7, 65), (7, 65), (65,), dtype, spread)
    check((7, 65), (7, 65), (), dtype, spread, outputs=["dB"])


@pytest.mark.parametrize("of_b", [(8, 1, 1), (1, 8, 1, 1), (2, 8, 5, 3)])
def test_channels_last_in_memory(of_b: Any) -> None:
    check((2, 8, 5, 3), (2, 8, 5, 3) if len(of_b) < 4 or of_b[0] == 1 else (2, 8, 1, 1), of_b, b, axes=(0, 2, 3, 1))


def test_denominators_whose_inverse_is_no_normal_number() -> None:
    B = np.array([[1e-39], [3e38], [0], [np.inf], [np.nan]], f)
    dY = np.broadcast_to(np.array([1, 0, np.inf, 3e-39, 2e38, -1e-20], f), (5, 6)).copy()
    with np.errstate(all="ignore"):
        expected = dY / B
        found = simulate("DivGrad", {"dY": dY, "A": dY, "B": B}, outputs=["dA", "dB"])["dA"]
    np.testing.assert_allclose(found, expected, 3e-7, 3e-45)
