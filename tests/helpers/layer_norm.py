"""Cases of the layer-norm family: random operands of a shape, and their gradients in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np

from helpers.reference import reference
from helpers.terms import terms
from helpers.tolerance import assert_close, assert_elements_close

LAYER = "LayerNormalizationGrad"
SIMPLIFIED = "SimplifiedLayerNormalizationGrad"
INVERTIBLE = "InvertibleLayerNormalizationGrad"
ALL_OUTPUTS = {
    LAYER: ("X_grad", "scale_grad", "bias_grad"),
    SIMPLIFIED: ("X_grad", "scale_grad"),
    INVERTIBLE: ("X_grad", "scale_grad", "bias_grad"),
}
WITH_SUM = {name: (*ALL_OUTPUTS[name], "X_grad_sum") for name in (LAYER, SIMPLIFIED)}
"""And what is made on request."""
INPUTS = {
    LAYER: ("Y_grad", "X", "scale", "mean", "inv_std_dev"),
    SIMPLIFIED: ("Y_grad", "X", "scale", "inv_std_var"),
    INVERTIBLE: ("Y_grad", "Y", "scale", "bias", "inv_std_var"),
}
EVERY_WIDTH: dict[str, Any] = {
    "width": 1,
    "lanes": 32,
    "vectors": 4,
    "unpredicated_vectors": 0,
    "groups_per_block": 2,
    "aligned": False,
}
"""Of a form, here or of the forward norms, that serves all rows of up to 128 elements."""


@dataclass
class Case:
    """Operands by contract name."""

    operator: str
    inputs: dict[str, np.ndarray]

    def check(self, results: dict[str, np.ndarray]) -> None:
        """Every result is as near to float64 mathematics as its type allows."""
        expected = reference(self.operator, self.inputs)
        alone = self.inputs["Y_grad"].shape[-1] == 1  # what is left of such a row's gradient is rounding
        summed = terms(self.operator, self.inputs) if alone else {}
        for name, out in results.items():
            of = "X_grad" if name == "branch_grad" else name
            assert_close(self.operator, name, out, expected[name], summed.get(of))
            if name in ("X_grad", "branch_grad"):
                assert_elements_close(self.operator, name, out, expected[name])


def case(
    operator: str,
    rows: int,
    columns: int,
    data: str,
    upstream: str,
    parameter: str,
    statistic: str,
    seed: int,
    residual: bool = False,
) -> Case:
    random = np.random.default_rng(seed)
    X = (1.5 * random.standard_normal((rows, columns)) + 0.5).astype(data)
    D = random.standard_normal((rows, columns)).astype(upstream)
    scale = (random.uniform(0.5, 1.5, columns) * random.choice([-1, 1], columns)).astype(parameter)
    bias = random.standard_normal(columns).astype(parameter)
    wide = X.astype(np.float64)
    mean = (wide.mean(1) if columns else np.zeros(rows)).astype(statistic)
    inv_std = (1 / np.sqrt(wide.var(1) + 1e-2) if columns else np.ones(rows)).astype(statistic)
    values = {"Y_grad": D, "X": X, "Y": X, "scale": scale, "bias": bias, "mean": mean}
    values |= {"inv_std_dev": inv_std, "inv_std_var": inv_std}
    inputs = {name: values[name] for name in INPUTS[operator]}
    if residual:
        inputs["residual_grad"] = random.standard_normal((rows, columns)).astype(data)
    return Case(operator, inputs)
