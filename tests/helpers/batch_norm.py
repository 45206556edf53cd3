"""Cases of BatchNormalizationGrad: random operands of a shape, whatever their types, and its gradients in float64."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np

from helpers.reference import reference
from helpers.tolerance import assert_close, assert_elements_close

OPERATOR = "BatchNormalizationGrad"
INPUTS = ("dY", "X", "Scale", "saved_mean", "saved_inv_std")
OUTPUTS = ("dX", "dScale", "dBias")


@dataclass
class Case:
    """Operands by contract name, in C order."""

    inputs: dict[str, np.ndarray]

    def kind(self, name: str) -> np.dtype:
        """The type of an output."""
        return self.inputs["X" if name == "dX" else "Scale"].dtype

    def shape(self, name: str) -> tuple[int, ...]:
        return self.inputs["X" if name == "dX" else "Scale"].shape

    def check(self, results: dict[str, np.ndarray]) -> None:
        """Every result is as near to float64 mathematics as its type allows."""
        expected = reference(OPERATOR, self.inputs)
        for name, out in results.items():
            if not np.isfinite(expected[name]).all():
                np.testing.assert_array_equal(np.isfinite(out), np.isfinite(expected[name]), err_msg=name)
            elif name == "dX":
                assert_elements_close(OPERATOR, name, out, expected[name])
            with np.errstate(invalid="ignore"):  # infinities
                assert_close(OPERATOR, name, out, expected[name], None if name == "dX" else self.terms(name))

    def terms(self, name: str) -> np.ndarray:
        """The root of the sum of squares of what each sum adds: rounding is relative to it where terms cancel."""
        each, X, _, mean, inv_std = (self.inputs[key].astype(np.float64) for key in INPUTS)
        across = (1, -1, *(1 for _ in X.shape[2:]))
        with np.errstate(all="ignore"):
            if name == "dScale":
                each = each * (X - mean.reshape(across)) * inv_std.reshape(across)
            each = np.where(np.isfinite(each), each, 0)
        return np.sqrt((each**2).sum((0, *range(2, X.ndim))))


def case(
    sizes: tuple[int, ...], data: str, parameter: str = "", statistic: str = "", seed: int = 0, far: float = 1
) -> Case:
    """Statistics are rounded, and those of no batch; far: how many deviations a mean is from zero, about."""
    random = np.random.default_rng(seed)
    channels = sizes[1:2]
    across = (1, *channels, *(1 for _ in sizes[2:]))
    mean = (far * random.standard_normal(channels)).astype(statistic or data)
    X = 1.5 * random.standard_normal(sizes) + mean.astype(np.float64).reshape(across)
    dY = random.standard_normal(sizes) + 0.3 * (X - mean.astype(np.float64).reshape(across)) + 0.2
    scale = random.uniform(0.5, 1.5, channels) * random.choice([-1, 1], channels)
    return Case(
        {
            "dY": dY.astype(data),
            "X": X.astype(data),
            "Scale": scale.astype(parameter or data),
            "saved_mean": mean,
            "saved_inv_std": random.uniform(0.5, 1, channels).astype(statistic or data),
        }
    )
