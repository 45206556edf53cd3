"""Cases of the GELU family: random operands and what the results are compared with."""

from __future__ import annotations

import numpy as np

from helpers.reference import reference
from helpers.tolerance import assert_close, assert_elements_close

EXACT, FAST = "BiasGeluGrad_dX", "BiasFastGeluGrad_dX"


def operands(rows: int, columns: int, data: str, parameter: str, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed + rows + columns)
    return {
        "dY": random.standard_normal((rows, columns)).astype(data),
        "X": (2 * random.standard_normal((rows, columns))).astype(data),
        "B": random.standard_normal(columns).astype(parameter),
    }


def assert_right(operator: str, inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray]) -> None:
    """Every output is as near to float64 mathematics as the table of tolerances asks."""
    expected = reference(operator, inputs)
    for name, out in outputs.items():
        terms = expected["dX"] if name == "dB" else None
        assert_close(operator, name, out, expected[name], terms)
        if name == "dX":
            assert_elements_close(operator, name, out, expected[name])
