"""Every operator in every type against central differences of its forward pass, on the registry's examples.

The forward pass runs in float64 on the very values the operator gets. A gradient G of a parameter P is right when, for
any direction V, <G, V> is the rate at which the loss <upstream, forward(P)> changes along V.
"""

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from helpers import forward
from helpers.examples import attributes_of, cases, every_output, sample
from helpers.reference import directional_difference
from helpers.tolerance import norm_of

import gradkern
from gradkern.contract.schema import Example, Operator

pytestmark = pytest.mark.thorough

EPSILON = 0.1  # large, so that no row of few columns bends within the step of a difference
Arrays = dict[str, np.ndarray]
Forward = Callable[[Mapping[str, np.ndarray]], np.ndarray]


def exact(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)


def consistent(name: str, inputs: Arrays, attributes: Mapping[str, object]) -> tuple[Arrays, Forward, dict[str, str]]:
    """Inputs with the forward pass's own statistics; that pass; and which output is which parameter's gradient."""

    def stored(key: str, value: np.ndarray) -> None:
        inputs[key] = value.reshape(inputs[key].shape).astype(inputs[key].dtype)

    axis = int(attributes.get("axis", -1))  # type: ignore[call-overload]
    match name:
        case "LayerNormalizationGrad" | "SimplifiedLayerNormalizationGrad" | "InvertibleLayerNormalizationGrad":
            centred = name != "SimplifiedLayerNormalizationGrad"
            X = exact(inputs["X" if "X" in inputs else "Y"])
            axes = tuple(range(axis % X.ndim, X.ndim))
            mean, variance = forward.moments(X, axes) if centred else (0 * X, (X**2).mean(axes))
            stored("inv_std_dev" if "inv_std_dev" in inputs else "inv_std_var", 1 / np.sqrt(variance + EPSILON))
            if "mean" in inputs:
                stored("mean", mean)
            if name == "InvertibleLayerNormalizationGrad":
                scale, bias = exact(inputs["scale"]), exact(inputs["bias"])
                stored("Y", forward.layer_norm(X, scale, bias, axis, EPSILON))
                inputs["X"] = X
            bias = np.zeros(inputs["scale"].shape)

            def norm(p: Mapping[str, np.ndarray]) -> np.ndarray:
                if not centred:
                    return forward.rms_norm(p["X"], p["scale"], axis, EPSILON)
                return forward.layer_norm(p["X"], p["scale"], p.get("the bias", bias), axis, EPSILON)

            wanted = {"X": "X_grad", "scale": "scale_grad"} | ({"the bias": "bias_grad"} if centred else {})
            return inputs, norm, wanted
        case "BatchNormalizationGrad":
            X = exact(inputs["X"])
            mean, variance = forward.moments(X, (0, *range(2, X.ndim)))
            stored("saved_mean", mean)
            stored("saved_inv_std", 1 / np.sqrt(variance + EPSILON))
            run = lambda p: forward.batch_norm(p["X"], p["Scale"], p["the bias"], EPSILON)  # noqa: E731
            return inputs, run, {"X": "dX", "Scale": "dScale", "the bias": "dBias"}
        case "BatchNormalizationGradSums" | "BatchNormalizationGradFromSums":
            return part_of_a_batch(inputs, stored, int(attributes.get("count", 0)))  # type: ignore[call-overload]
        case "DmlBatchNormalizationGrad":
            constants = [exact(inputs[key]) for key in ("Mean", "Variance")]
            run = lambda p: forward.dml_batch_norm(  # noqa: E731
                p["Input"],
                *constants,
                p["Scale"],
                p["the bias"],
                float(attributes["Epsilon"]),  # type: ignore[arg-type]
            )
            return (
                inputs,
                run,
                {"Input": "OutputGradient", "Scale": "OutputScaleGradient", "the bias": "OutputBiasGradient"},
            )
        case "BiasGeluGrad_dX" | "BiasFastGeluGrad_dX":
            gelu = forward.bias_gelu if name == "BiasGeluGrad_dX" else forward.bias_fast_gelu
            return inputs, lambda p: gelu(p["X"], p["B"]), {"X": "dX", "B": "dB"}
        case "ConvGrad":
            run = lambda p: forward.conv(p["X"], p["W"], p["the bias"], **attributes)  # noqa: E731
            inputs["the bias"] = np.zeros(len(inputs["W"]))
            return inputs, run, {"X": "dX", "W": "dW", "the bias": "dB"}
    raise AssertionError(f"no forward pass for {name}")


def part_of_a_batch(
    inputs: Arrays, stored: Callable[[str, np.ndarray], None], count: int
) -> tuple[Arrays, Forward, dict[str, str]]:
    """X is the first part of a batch that has `count` elements of each channel; without a count, it is half of one."""
    X, D, random = exact(inputs["X"]), exact(inputs["dY"]), np.random.default_rng(2)
    others = (0, *range(2, X.ndim))
    part = X.size // X.shape[1]
    more = (len(X) * (count or 2 * part) // part - len(X), *X.shape[1:])
    rest, rest_D = random.standard_normal(more), random.standard_normal(more)
    whole, whole_D = np.concatenate([X, rest]), np.concatenate([D, rest_D])
    mean, variance = forward.moments(whole, others)
    inv_std = 1 / np.sqrt(variance + EPSILON)
    stored("saved_mean", mean)
    stored("saved_inv_std", inv_std)
    if "Scale" not in inputs:  # the sums are rates of the part's own loss
        inputs["the scale"], channels = np.ones(X.shape[1]), mean.shape[1:]

        def norm(p: Mapping[str, np.ndarray]) -> np.ndarray:
            scale, bias = p["the scale"].reshape(channels), p["the bias"].reshape(channels)
            return forward.dml_batch_norm(X, mean, variance, scale, bias, EPSILON)

        return inputs, norm, {"the scale": "dScale", "the bias": "dBias"}
    stored("dScale", (whole_D * (whole - mean) * inv_std).sum(others))
    stored("dBias", whole_D.sum(others))
    inputs["the upstream"] = whole_D
    Scale, bias = exact(inputs["Scale"]), np.zeros(X.shape[1])
    run = lambda p: forward.batch_norm(np.concatenate([p["X"], rest]), Scale, bias, EPSILON)  # noqa: E731
    return inputs, run, {"X": "dX"}


@pytest.mark.parametrize(("name", "operator", "row", "example"), list(cases()))
def test_gradients_agree_with_differences_of_the_forward_pass(
    name: str, operator: Operator, row: dict, example: Example
) -> None:
    random = np.random.default_rng(1)
    inputs, run, wanted = consistent(name, sample(operator, row, example), example.attributes)
    given = {each.name: inputs[each.name] for each in operator.inputs}
    result = gradkern.run(name, **given, outputs=every_output(operator), **attributes_of(operator, row, example))
    own = given["InputGradient" if name == "DmlBatchNormalizationGrad" else operator.inputs[0].name]
    upstream = exact(inputs.get("the upstream", own))
    parameters = {
        key: exact(inputs[key]) if key in inputs else np.zeros(getattr(result, output).shape)
        for key, output in wanted.items()
    }
    for key, output in wanted.items():
        gradient = exact(getattr(result, output))
        # Partly along the gradient: at right angles to it any multiple of it has the same rate.
        along = gradient * (np.sqrt(gradient.size) / 2 / (np.linalg.norm(gradient) or 1.0))
        direction = random.standard_normal(gradient.shape) + along
        loss = lambda value, key=key: float((upstream * run({**parameters, key: value})).sum())  # noqa: E731
        difference = directional_difference(loss, parameters[key], direction)
        rate = float((gradient * direction).sum())
        # The statistics and Y are rounded to their own types, which moves the result as much as rounding it does.
        types = [getattr(result, output).dtype, *(array.dtype for array in given.values())]
        bound = max(norm_of(name, each) for each in types) * 4 + 1e-9
        scale = np.linalg.norm(gradient) * np.linalg.norm(direction)
        assert abs(rate - difference) <= bound * scale + 1e-9, f"{name}.{output}: {rate} against {difference}"
