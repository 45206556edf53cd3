"""Cases of the GELU family: random operands and what the results are compared with."""

from __future__ import annotations

import numpy as np

from helpers.reference import reference
from helpers.tolerance import assert_close, assert_elements_close

EXACT, FAST = "BiasGeluGrad_dX", "BiasFastGeluGrad_dX"
FORWARD = ("BiasGelu", "BiasFastGelu")
NAMES = {"A": "X", "C": "dX"}
"""Of the forward operators' arrays, in the gradients' words, which are the kernel's."""


def operands(
    rows: int, columns: int, data: str, parameter: str, seed: int = 0, operator: str = EXACT
) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed + rows + columns)
    made = {
        "dY": random.standard_normal((rows, columns)).astype(data),
        "X": (2 * random.standard_normal((rows, columns))).astype(data),
        "B": random.standard_normal(columns).astype(parameter),
    }
    return {"A": made["X"], "B": made["B"]} if operator in FORWARD else made


def assert_right(operator: str, inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray]) -> None:
    """Every output is as near to float64 mathematics as the table of tolerances asks."""
    expected = reference(operator, inputs)
    for name, out in outputs.items():
        terms = expected["dX"] if name == "dB" else None
        assert_close(operator, name, out, expected[name], terms)
        if name in ("dX", "C"):
            assert_elements_close(operator, name, out, expected[name])
