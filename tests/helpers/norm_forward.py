"""Cases of the layer norms: random operands of a shape, and their outputs in float64."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np

from helpers.reference import reference
from helpers.tolerance import assert_close, assert_elements_close

LAYER = "LayerNormalization"
SIMPLIFIED = "SimplifiedLayerNormalization"
SKIP = "SkipLayerNormalization"
SKIP_SIMPLIFIED = "SkipSimplifiedLayerNormalization"
SUM = "input_skip_bias_sum"
OUTPUTS = {
    LAYER: ("Y", "Mean", "InvStdDev"),
    SIMPLIFIED: ("Y", "inv_std_var"),
    SKIP: ("output", "mean", "inv_std_var", SUM),
    SKIP_SIMPLIFIED: ("output", "inv_std_var", SUM),
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
        if SUM in results:  # a sum at the middle of two numbers may be rounded to either, and is normalised as it is
            normalised = {**self.inputs, "input": results[SUM], "skip": np.zeros_like(results[SUM])}
            normalised.pop("bias", None)
            expected |= reference(self.operator, normalised, {"epsilon": self.epsilon}) | {SUM: expected[SUM]}
        for name, out in results.items():
            exact = expected[name].reshape(out.shape)
            if name in ("Mean", "mean"):  # which may be next to nothing beside the elements it is of
                of = self.inputs["X"].astype(np.float64) if "X" in self.inputs else expected[SUM]
                terms = np.abs(of).mean(1).reshape(out.shape)
                assert_close(self.operator, name, out, exact, terms)
            else:
                assert_close(self.operator, name, out, exact)
            if name in ("Y", "output", SUM):
                assert_elements_close(self.operator, name, out, exact)


def case(
    operator: str,
    rows: int,
    columns: int,
    data: str,
    parameter: str,
    seed: int,
    biased: bool = True,
    residual: str | None = None,
) -> Case:
    """Rows with a mean other than 0, and deviations of different sizes in different rows; residual: type of skip."""
    random = np.random.default_rng(seed)
    size = random.uniform(0.5, 2, (rows, 1))
    X, skip = (
        (size * (random.standard_normal((rows, columns)) + 0.5)).astype(each) for each in (data, residual or data)
    )
    scale = random.uniform(0.5, 1.5, columns).astype(parameter)
    bias, shift = (random.standard_normal(columns).astype(parameter) for _ in range(2))
    biases = {name: each for name, each in {"B": bias, "beta": bias, "bias": shift}.items() if biased}
    made = {"X": X, "input": X, "skip": skip, "Scale": scale, "scale": scale, "gamma": scale, **biases}
    names = {
        LAYER: ("X", "Scale", "B"),
        SIMPLIFIED: ("X", "scale"),
        SKIP: ("input", "skip", "gamma", "beta", "bias"),
        SKIP_SIMPLIFIED: ("input", "skip", "gamma", "bias"),
    }[operator]
    return Case(operator, {name: made[name] for name in names if name in made}, 1e-2)
