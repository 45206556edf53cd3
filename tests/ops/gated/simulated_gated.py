"""The kernels of gated linear units under the CUDA simulator; test_simulated runs this file in its own process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.held import hold
from helpers.reference import reference
from helpers.simulate_elementwise import simulate
from helpers.tolerance import assert_close

b, h, f, d = "bfloat16", "float16", "float32", "float64"
RANDOM = np.random.default_rng(0)
FORMS: list[tuple[str, dict[str, Any]]] = [
    ("SwiGLU", {}), ("GeGLU", {"approximate": "none"}), ("GeGLU", {"approximate": "tanh"}),
]  # fmt: skip


@pytest.mark.parametrize(("form", "attributes"), FORMS)
@pytest.mark.parametrize(("dtype", "size"), [(b, 1029), (h, 7), (f, 515), (d, 257)])
def test_both_ways_in_every_type(form: str, attributes: dict[str, Any], dtype: str, size: int) -> None:
    dY, A, B = (3 * RANDOM.standard_normal((3, 1, size))).astype(dtype)
    for operator, given in ((form, {"A": A, "B": B}), (f"{form}Grad", {"dY": dY, "A": A, "B": B})):
        expected = reference(operator, given, attributes)
        outputs = list(expected)
        for name, found in simulate(operator, given, outputs=outputs, **attributes).items():
            assert_close(operator, name, found, expected[name])


@pytest.mark.parametrize("outputs", [["dB"], ["dA"], ["dA", "Y"], ["dA", "dB"]])
def test_gradients_over_halves_of_one_array(outputs: list[str]) -> None:
    packed = RANDOM.standard_normal((3, 96)).astype(b)
    given = {"dY": RANDOM.standard_normal((3, 48)).astype(b), "A": packed[:, :48], "B": packed[:, 48:]}
    expected = reference("SwiGLUGrad", given)
    held = {name: hold(each, spread=48 if name != "dY" else 0) for name, each in given.items()}
    in_place = {source: target for source, target in (("A", "dA"), ("B", "dB"), ("dY", "Y")) if target in outputs}
    for name, found in simulate("SwiGLUGrad", held, in_place, outputs=outputs).items():
        assert_close("SwiGLUGrad", name, found, expected[name])
