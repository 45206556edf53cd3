"""Batch norms with an activation and a residual, forward and backward, in float64: cases and what they must give."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np
from scipy.special import ndtr

EPSILON, MOMENTUM, ALPHA = 1e-3, 0.8, 0.2
ROUNDING = {"float64": 1e-13, "float32": 4e-6, "float16": 1e-3, "bfloat16": 8e-3}
"""Of one element, relative to the largest terms it is made of."""

Arrays = dict[str, np.ndarray]


@dataclass
class Forward:
    """BatchNormalization's inputs by contract name, in C order, and its attributes."""

    inputs: Arrays
    activation: str = "none"
    unbiased: int = 0
    wanted: tuple[str, ...] = ("Y", "running_mean", "running_var", "saved_mean", "saved_inv_std")
    saved: str = field(init=False)

    def __post_init__(self) -> None:
        self.saved = "float64" if self.inputs["X"].dtype == np.float64 else "float32"

    @property
    def attributes(self) -> dict[str, Any]:
        more = {"activation": self.activation, "activation_alpha": ALPHA, "unbiased": self.unbiased}
        return {"epsilon": EPSILON, "momentum": MOMENTUM, **more}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Shape and type of each that is wanted."""
        X, channels = self.inputs["X"], self.inputs["scale"].shape
        kinds = {"Y": X.dtype, "saved_mean": np.dtype(self.saved), "saved_inv_std": np.dtype(self.saved)}
        for name, each in (("running_mean", "input_mean"), ("running_var", "input_var")):
            if each in self.inputs:
                kinds[name] = self.inputs[each].dtype
        return {name: (X.shape if name == "Y" else channels, kinds[name]) for name in self.wanted}

    def check(self, results: Arrays) -> None:
        """Every result is as near to float64 mathematics as its type allows."""
        inputs = {name: each.astype(np.float64) for name, each in self.inputs.items()}
        X = inputs["X"]
        axes, across = (0, *range(2, X.ndim)), (1, -1, *(1 for _ in X.shape[2:]))
        m = X.size // X.shape[1]
        mean, variance = X.mean(axes), X.var(axes)
        inverse = 1 / np.sqrt(variance + EPSILON)
        tight = ROUNDING[self.saved]
        data = ROUNDING[self.inputs["X"].dtype.name]
        for name, found in results.items():
            out = found.astype(np.float64)
            if name == "saved_mean":
                np.testing.assert_allclose(out, mean, rtol=tight / 10, atol=tight * np.sqrt(variance).max())
            elif name == "saved_inv_std":
                np.testing.assert_allclose(out, inverse, rtol=tight)
            elif name == "Y":
                self.check_Y(out, inputs, mean.reshape(across), inverse.reshape(across), data)
            else:
                before, of_batch = inputs[name.replace("running", "input")], mean
                if name == "running_var":
                    with np.errstate(all="ignore"):
                        of_batch = variance * (m / np.float64(m - 1) if self.unbiased else 1)
                step = ROUNDING[found.dtype.name]
                expected = before * MOMENTUM + of_batch * (1 - MOMENTUM)
                np.testing.assert_allclose(out, expected, rtol=step, atol=step, err_msg=name)

    def check_Y(self, out: np.ndarray, inputs: Arrays, mean: Any, inverse: Any, data: float) -> None:
        """Rounding of saved_mean, which the formula subtracts, counts as its own."""
        across = mean.shape
        scale = inputs["scale"].reshape(across)
        t = (inputs["X"] - mean) * inverse * scale + inputs["B"].reshape(across)
        terms = np.abs((inputs["X"] - mean) * inverse * scale) + np.abs(inputs["B"].reshape(across))
        if "Z" in inputs:
            t, terms = t + inputs["Z"], terms + np.abs(inputs["Z"])
        expected = activated(t, self.activation)
        own = np.finfo(self.saved).eps / 2 * np.abs(mean) * np.abs(inverse * scale)
        bound = data * np.abs(expected) + ROUNDING[self.saved] * (terms + 1) + 2 * own
        assert_within("Y", out, expected, bound)


@dataclass
class Backward:
    """BatchNormalizationGrad's inputs by contract name, in C order. residual: what else was added before the
    activation.
    """

    inputs: Arrays
    residual: np.ndarray | None
    activation: str
    wanted: tuple[str, ...] = ("dX", "dScale", "dBias")

    @property
    def attributes(self) -> dict[str, Any]:
        return {"activation": self.activation, "activation_alpha": ALPHA}

    def outputs(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Shape and type of each that is wanted."""
        like = {name: self.inputs["X" if name in ("dX", "dZ") else "Scale"] for name in self.wanted}
        return {name: (each.shape, each.dtype) for name, each in like.items()}

    def shape(self, name: str) -> tuple[int, ...]:
        return self.outputs()[name][0]

    def kind(self, name: str) -> np.dtype:
        return self.outputs()[name][1]

    def check(self, results: Arrays) -> None:
        """Every result is as near to float64 mathematics as its type allows; with dZ, dX may be made of what was
        rounded.
        """
        inputs = {name: each.astype(np.float64) for name, each in self.inputs.items()}
        X = inputs["X"]
        axes, across = (0, *range(2, X.ndim)), (1, -1, *(1 for _ in X.shape[2:]))
        m = X.size // X.shape[1]
        mean, inverse, scale = (inputs[name].reshape(across) for name in ("saved_mean", "saved_inv_std", "Scale"))
        xh = (X - mean) * inverse
        D = inputs["dY"] + inputs.get("dY2", 0.0)
        if self.activation != "none":
            t = inputs["Y"] if "Y" in inputs else xh * scale + inputs["B"].reshape(across)
            D = D * derivative(t, self.activation)
        if "dZ" in results:
            D = D.astype(self.inputs["X"].dtype).astype(np.float64)
        dBias, dScale = D.sum(axes), (D * xh).sum(axes)
        dX = scale * inverse * (D - dBias.reshape(across) / m - xh * dScale.reshape(across) / m)
        roots = {"dScale": np.sqrt(((D * xh) ** 2).sum(axes)), "dBias": np.sqrt((D**2).sum(axes))}
        expected = {"dX": dX, "dScale": dScale, "dBias": dBias, "dZ": D}
        work = ROUNDING["float64" if self.inputs["X"].dtype == np.float64 else "float32"]
        for name, found in results.items():
            terms = roots[name] if name in roots else np.abs(D) + np.abs(xh) * np.abs(dScale.reshape(across)) / m + 0.1
            bound = ROUNDING[found.dtype.name] * np.abs(expected[name]) + work * (terms + 1e-3) * 4
            assert_within(name, found.astype(np.float64), expected[name], bound)


def assert_within(name: str, found: np.ndarray, expected: np.ndarray, bound: np.ndarray) -> None:
    """Every element is off by its bound at most; which are not, and by how much, tells where to look."""
    off = np.abs(found - expected) / bound
    wrong = np.argwhere(~(off <= 1))
    first = [f"{tuple(map(int, at))}: {found[tuple(at)]} for {expected[tuple(at)]}" for at in wrong[:5]]
    assert not len(wrong), f"{name}: {len(wrong)} of {off.size} elements are off, by up to {off.max()} bounds; {first}"


def activated(t: np.ndarray, activation: str) -> np.ndarray:
    if activation == "relu":
        return np.maximum(t, 0)
    if activation == "leaky_relu":
        return np.maximum(t, 0) + ALPHA * np.minimum(t, 0)
    if activation == "relu6":
        return np.clip(t, 0, 6)
    if activation == "hardswish":
        return t * np.clip(t + 3, 0, 6) / 6
    if activation == "elu":
        return np.where(t > 0, t, ALPHA * np.expm1(np.minimum(t, 0)))
    if activation == "gelu":
        return t * ndtr(t)
    return t / (1 + np.exp(-t)) if activation == "silu" else t


def derivative(t: np.ndarray, activation: str) -> np.ndarray:
    """At t, or where the sign tells it at the output of the activation, whose NaN relu lets pass."""
    if activation == "relu":
        return (~(t <= 0)).astype(np.float64)
    if activation == "leaky_relu":
        return ALPHA + (1 - ALPHA) * (t > 0)
    if activation == "relu6":
        return ((t > 0) & (t < 6)).astype(np.float64)
    if activation == "hardswish":
        return np.where(np.abs(t) < 3, t / 3 + 0.5, t > 0)
    if activation == "elu":
        return np.where(t > 0, 1.0, ALPHA * np.exp(np.minimum(t, 0)))
    if activation == "gelu":
        return ndtr(t) + t * np.exp(-0.5 * t**2) / np.sqrt(2 * np.pi)
    s = 1 / (1 + np.exp(-t))
    return s * (1 + t * (1 - s))


def forward(
    sizes: tuple[int, ...],
    data: str,
    parameter: str = "",
    running: str = "",
    *,
    activation: str = "none",
    residual: bool = False,
    seed: int = 0,
    far: float = 1,
    **more: Any,
) -> Forward:
    """far: how many deviations a mean is from zero, about."""
    random = np.random.default_rng(seed)
    channels = sizes[1]
    across = (1, channels, *(1 for _ in sizes[2:]))
    mean = far * random.uniform(0.5, 1.5, channels) * random.choice([-1, 1], channels)
    inputs = {
        "X": (1.5 * random.standard_normal(sizes) + mean.reshape(across)).astype(data),
        "scale": (random.uniform(0.5, 1.5, channels) * random.choice([-1, 1], channels)).astype(parameter or data),
        "B": random.standard_normal(channels).astype(parameter or data),
    }
    if running:
        inputs["input_mean"] = random.standard_normal(channels).astype(running)
        inputs["input_var"] = random.uniform(0.5, 1.5, channels).astype(running)
    else:
        more.setdefault("wanted", ("Y", "saved_mean", "saved_inv_std"))
    if residual:
        inputs["Z"] = random.standard_normal(sizes).astype(data)
    return Forward(inputs, activation, **more)


def backward(
    sizes: tuple[int, ...],
    data: str,
    parameter: str = "",
    statistic: str = "",
    *,
    activation: str = "relu",
    residual: bool = False,
    second: bool = False,
    seed: int = 0,
    **more: Any,
) -> Backward:
    """relu and leaky_relu take Y where there is a residual, and else B; no element lies so near to 0 that rounding
    decides.
    """
    random = np.random.default_rng(seed)
    ahead = forward(sizes, data, parameter, residual=residual, seed=seed)
    X, scale, B = (ahead.inputs[name] for name in ("X", "scale", "B"))
    across = (1, -1, *(1 for _ in sizes[2:]))
    axes = (0, *range(2, X.ndim))
    wide = X.astype(np.float64)
    mean = wide.mean(axes).astype(statistic or data)
    inverse = (1 / np.sqrt(wide.var(axes) + EPSILON)).astype(statistic or data)
    gain = scale.astype(np.float64) * inverse.astype(np.float64)
    t = (wide - mean.astype(np.float64).reshape(across)) * gain.reshape(across) + B.astype(np.float64).reshape(across)
    near = np.abs(t) < 1e-3
    X = np.where(near, X.astype(np.float64) + 0.05 / gain.reshape(across), wide).astype(data)
    t = (X.astype(np.float64) - mean.astype(np.float64).reshape(across)) * gain.reshape(across)
    t = t + B.astype(np.float64).reshape(across)
    inputs = {"dY": (random.standard_normal(sizes) + 0.2).astype(data), "X": X, "Scale": scale}
    inputs |= {"saved_mean": mean, "saved_inv_std": inverse}
    Z = ahead.inputs.get("Z")
    if activation == "silu" or (activation != "none" and not residual):
        inputs["B"] = B
    if activation in ("relu", "leaky_relu") and Z is not None:
        inputs["Y"] = activated(t + Z.astype(np.float64), activation).astype(data)
    if second:
        inputs["dY2"] = random.standard_normal(sizes).astype(data)
    if residual:
        more.setdefault("wanted", ("dX", "dScale", "dBias", "dZ"))
    return Backward(inputs, Z, activation, **more)
