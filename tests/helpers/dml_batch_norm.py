"""Cases of DirectML's batch norm: random operands of a shape, and its gradients in float64."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np

from helpers.reference import reference
from helpers.tolerance import assert_close, assert_elements_close

DML = "DmlBatchNormalizationGrad"
EPSILON = 1e-3
OUTPUTS = ("OutputGradient", "OutputScaleGradient", "OutputBiasGradient")


@dataclass
class Case:
    """Operands by contract name, in C order."""

    inputs: dict[str, np.ndarray]

    def check(self, results: dict[str, np.ndarray]) -> None:
        """Every result is as near to float64 mathematics as its type allows."""
        expected = reference(DML, self.inputs, {"Epsilon": EPSILON})
        for name, out in results.items():
            terms = None if name == "OutputGradient" else self.terms(name)
            if not np.isfinite(expected[name]).all():
                np.testing.assert_array_equal(np.isfinite(out), np.isfinite(expected[name]), err_msg=name)
            elif name == "OutputGradient":
                assert_elements_close(DML, name, out, expected[name])
            with np.errstate(invalid="ignore"):  # infinities
                assert_close(DML, name, out, expected[name], terms)

    def terms(self, name: str) -> np.ndarray:
        """The root of the sum of squares of what each sum adds: rounding is relative to it where terms cancel."""
        wide = {key: array.astype(np.float64) for key, array in self.inputs.items()}
        with np.errstate(all="ignore"):
            each = wide["InputGradient"]
            if name == "OutputScaleGradient":
                each = each * (wide["Input"] - wide["Mean"]) / np.sqrt(wide["Variance"] + EPSILON)
            each = np.where(np.isfinite(each), each, 0)
        summed = tuple(axis for axis, size in enumerate(wide["Mean"].shape) if size == 1)
        return np.sqrt((each**2).sum(summed))


def case(sizes: tuple[int, ...], statistics: tuple[int, ...], dtype: str, seed: int = 0) -> Case:
    random = np.random.default_rng(seed)
    Mean = random.standard_normal(statistics).astype(dtype)
    inputs = {
        "Input": (1.5 * random.standard_normal(sizes, np.float32) + Mean.astype(np.float32)).astype(dtype),
        "InputGradient": random.standard_normal(sizes, np.float32).astype(dtype),
        "Mean": Mean,
        "Variance": random.uniform(0.5, 2, statistics).astype(dtype),
        "Scale": (random.uniform(0.5, 1.5, statistics) * random.choice([-1, 1], statistics)).astype(dtype),
    }
    return Case(inputs)
