"""Cases of the layer norms: random operands of a shape, and their outputs in float64."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np

from helpers.reference import reference
from helpers.tolerance import assert_close, assert_elements_close

LAYER = "LayerNormalization"
SIMPLIFIED = "SimplifiedLayerNormalization"
OUTPUTS = {LAYER: ("Y", "Mean", "InvStdDev"), SIMPLIFIED: ("Y", "inv_std_var")}
NAMES = {  # of a kernel's tensors, by contract name
    "X": "X",
    "Scale": "scale",
    "scale": "scale",
    "B": "bias",
    "Y": "Y",
    "Mean": "mean",
    "InvStdDev": "inv_std",
    "inv_std_var": "inv_std",
}


@dataclass
class Case:
    """Operands by contract name."""

    operator: str
    inputs: dict[str, np.ndarray]
    epsilon: float

    def check(self, results: dict[str, np.ndarray]) -> None:
        """Every result is as near to float64 mathematics as its type allows."""
        expected = reference(self.operator, self.inputs, {"epsilon": self.epsilon})
        for name, out in results.items():
            exact = expected[name].reshape(out.shape)
            if name == "Mean":  # which may be next to nothing beside the elements it is of
                terms = np.abs(self.inputs["X"].astype(np.float64)).mean(1).reshape(out.shape)
                assert_close(self.operator, name, out, exact, terms)
            else:
                assert_close(self.operator, name, out, exact)
            if name == "Y":
                assert_elements_close(self.operator, name, out, exact)


def case(operator: str, rows: int, columns: int, data: str, parameter: str, seed: int, biased: bool = True) -> Case:
    """Rows with a mean other than 0, and deviations of different sizes in different rows."""
    random = np.random.default_rng(seed)
    size = random.uniform(0.5, 2, (rows, 1))
    inputs = {"X": (size * (random.standard_normal((rows, columns)) + 0.5)).astype(data)}
    name = "Scale" if operator == LAYER else "scale"
    inputs[name] = random.uniform(0.5, 1.5, columns).astype(parameter)
    if operator == LAYER and biased:
        inputs["B"] = random.standard_normal(columns).astype(parameter)
    return Case(operator, inputs, 1e-2)
