"""Cases of the layer-norm family: random operands, their float64 gradients, and how far a result may be off."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np

LAYER = "LayerNormalizationGrad"
SIMPLIFIED = "SimplifiedLayerNormalizationGrad"
INVERTIBLE = "InvertibleLayerNormalizationGrad"
ALL_OUTPUTS = {
    LAYER: ("X_grad", "scale_grad", "bias_grad"),
    SIMPLIFIED: ("X_grad", "scale_grad"),
    INVERTIBLE: ("X_grad", "scale_grad", "bias_grad"),
}
INPUTS = {
    LAYER: ("Y_grad", "X", "scale", "mean", "inv_std_dev"),
    SIMPLIFIED: ("Y_grad", "X", "scale", "inv_std_var"),
    INVERTIBLE: ("Y_grad", "Y", "scale", "bias", "inv_std_var"),
}
RELATIVE = {"float64": 1e-13, "float32": 1e-6, "float16": 3e-4, "bfloat16": 2.2e-3}  # ||out - ref|| / ||ref||


@dataclass
class Case:
    """Operands by contract name and, computed from the rounded operands, the gradients in float64."""

    operator: str
    inputs: dict[str, np.ndarray]
    gradients: dict[str, np.ndarray]


def case(
    operator: str, rows: int, columns: int, data: str, upstream: str, parameter: str, statistic: str, seed: int
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
    return Case(operator, inputs, gradients(operator, inputs))


def gradients(operator: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    wide = {name: array.astype(np.float64) for name, array in inputs.items()}
    D, scale = wide["Y_grad"], wide["scale"]
    r = wide["inv_std_dev" if operator == LAYER else "inv_std_var"].reshape(-1, 1)
    if operator == LAYER:
        xh = (wide["X"] - wide["mean"].reshape(-1, 1)) * r
    elif operator == SIMPLIFIED:
        xh = wide["X"] * r
    else:
        xh = (wide["Y"] - wide["bias"]) / scale
    g = D * scale
    columns = max(1, D.shape[1])
    s1 = 0 if operator == SIMPLIFIED else g.sum(1, keepdims=True) / columns
    s2 = (g * xh).sum(1, keepdims=True) / columns
    result = {"X_grad": r * (g - s1 - xh * s2), "scale_grad": (D * xh).sum(0)}
    if operator != SIMPLIFIED:
        result["bias_grad"] = D.sum(0)
    return result


def disagreement(name: str, out: np.ndarray, reference: np.ndarray, sum_of: int = 1) -> str:
    """'' if `out` is as near to the float64 reference as its type allows, else what is wrong."""
    dtype = out.dtype.name
    if reference.size == 0:
        return ""
    wide = out.astype(np.float64)
    if not np.isfinite(wide).all():
        return f"{name}: {np.count_nonzero(~np.isfinite(wide))} of {wide.size} elements are not finite"
    limit = 1e-12 if dtype == "float64" and sum_of > 1_000_000 else RELATIVE[dtype]
    error = np.linalg.norm(wide - reference) / max(np.linalg.norm(reference), np.finfo(np.float64).tiny)
    ulp = np.abs(np.spacing(reference.astype(out.dtype)).astype(np.float64))
    rounded = (np.abs(wide - reference) <= ulp).all()  # of few numbers, roundings do not average
    if not error <= limit and not rounded:
        return f"{name}: relative error {error:.3g} > {limit}"
    if name == "X_grad":  # two units in the last place, and 1e-6 of the row's largest element
        allowed = 2 * ulp + 1e-6 * np.abs(reference).max(1, keepdims=True)
        if not (np.abs(wide - reference) <= allowed).all():
            return f"{name}: an element is {np.max(np.abs(wide - reference) / allowed):.3g} times too far off"
    return ""
