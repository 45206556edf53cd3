"""gradkern.jax on a CPU: gradients against XLA's of the plain formula in float64, eager, under jit and under vmap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax", reason="JAX is not installed: pip install 'gradkern[jax]'")

from helpers.calls import run_any
from helpers.tolerance import assert_close
from helpers.toys import toy_arguments, toys

import gradkern
import gradkern.jax
from gradkern.jax.foreign_call import foreign_call

__all__ = ["toys"]

jax: Any = import_module("jax")  # types are checked where it is not installed
jnp: Any = import_module("jax.numpy")
NUMBERS = np.random.default_rng(0)
TYPES = [("float64", "float64"), ("float32", "float32"), ("float16", "float32"), ("bfloat16", "bfloat16")]


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def normalized(x: Any, over: tuple[int, ...], center: bool = True) -> Any:
    apart = x - x.mean(over, keepdims=True) if center else x
    return apart / jnp.sqrt((apart**2).mean(over, keepdims=True) + 1e-5)


CASES: dict[str, tuple[str, Callable[..., Any], Callable[..., Any], tuple[Any, ...], tuple[str, ...]]] = {
    # operator, function, formula, shapes, names of the gradients
    "layer norm": (
        "LayerNormalizationGrad",
        gradkern.jax.layer_norm,
        lambda x, w, b: normalized(x, (2,)) * w + b,
        ((3, 5, 40), (40,), (40,)),
        ("X_grad", "scale_grad", "bias_grad"),
    ),
    "layer norm of two axes without a bias": (
        "LayerNormalizationGrad",
        lambda x, w: gradkern.jax.layer_norm(x, w, axis=1),
        lambda x, w: normalized(x, (1, 2)) * w,
        ((6, 5, 8), (5, 8)),
        ("X_grad", "scale_grad"),
    ),
    "RMS norm": (
        "SimplifiedLayerNormalizationGrad",
        gradkern.jax.rms_norm,
        lambda x, w: normalized(x, (1,), center=False) * w,
        ((12, 40), (40,)),
        ("X_grad", "scale_grad"),
    ),
    "GELU": (
        "BiasGeluGrad_dX",
        lambda x, b: gradkern.jax.bias_gelu(x, b, False),
        lambda x, b: jax.nn.gelu(x + b, approximate=False),
        ((4, 6, 24), (24,)),
        ("dX", "dB"),
    ),
    "GELU with tanh": (
        "BiasFastGeluGrad_dX",
        gradkern.jax.bias_gelu,
        lambda x, b: jax.nn.gelu(x + b, approximate=True),
        ((24, 24), (24,)),
        ("dX", "dB"),
    ),
    "batch norm, channels last": (
        "BatchNormalizationGrad",
        lambda x, w, b: gradkern.jax.batch_norm(x, w, b)[0],
        lambda x, w, b: normalized(x, (0, 1, 2)) * w + b,
        ((4, 5, 7, 3), (3,), (3,)),
        ("dX", "dScale", "dBias"),
    ),
    "batch norm, channels first": (
        "BatchNormalizationGrad",
        lambda x, w, b: gradkern.jax.batch_norm(x, w, b, axis=1)[0],
        lambda x, w, b: normalized(x, (0, 2)) * w.reshape(-1, 1) + b.reshape(-1, 1),
        ((6, 3, 35), (3,), (3,)),
        ("dX", "dScale", "dBias"),
    ),
}


def arrays(shapes: tuple[Any, ...], types: tuple[str, str]) -> list[Any]:
    """The first of the first type, the others, which are parameters, of the second."""
    kinds = [types[0], *[types[1]] * (len(shapes) - 1)]
    return [jnp.asarray(NUMBERS.standard_normal(shape)).astype(kind) for shape, kind in zip(shapes, kinds, strict=True)]


@pytest.mark.parametrize(
    ("name", "types"),
    [(name, types) for name in CASES for types in (TYPES if name == "layer norm" else (TYPES[0], TYPES[-1]))],
)
def test_values_and_gradients_are_those_of_the_formula(name: str, types: tuple[str, str]) -> None:
    operator, function, formula, shapes, names = CASES[name]
    leaves = arrays(shapes, types)
    (upstream,) = arrays(shapes[:1], types)
    exact, exact_gradients = jax.vjp(formula, *[each.astype("float64") for each in leaves])
    expected = exact_gradients(upstream.astype("float64"))
    for call in (function, jax.jit(function)):
        y, gradients = jax.vjp(call, *leaves)
        assert y.dtype == leaves[0].dtype
        assert_close(operator, "output", np.asarray(y), np.asarray(exact))
        for part, leaf, result, reference in zip(names, leaves, gradients(upstream), expected, strict=True):
            assert result.dtype == leaf.dtype
            assert_close(operator, part, np.asarray(result), np.asarray(reference))


def test_a_step_is_compiled_whole_and_runs_again_on_other_arrays() -> None:
    formulas = CASES["layer norm"][2], CASES["layer norm"][1]
    reference, ours = (
        jax.jit(jax.grad(lambda *leaves, f=f: (f(*leaves) ** 3).sum(), argnums=(0, 1, 2))) for f in formulas
    )
    for _ in range(3):
        leaves = arrays(CASES["layer norm"][3], ("float64", "float64"))
        for one, other in zip(ours(*leaves), reference(*leaves), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


def test_batches_of_vmap_are_called_one_by_one() -> None:
    x, weight = arrays(((4, 6, 8), (8,)), ("float64", "float64"))

    def gradient(x: Any) -> Any:
        return jax.grad(lambda x: (gradkern.jax.rms_norm(x, weight) ** 3).sum())(x)

    np.testing.assert_allclose(jax.vmap(gradient)(x), jnp.stack([gradient(each) for each in x]), rtol=1e-12)


def test_statistics_of_a_batch_norm_come_without_gradients() -> None:
    x, weight, bias = arrays(((4, 5, 3), (3,), (3,)), ("float64", "float64"))
    _, mean, variance = gradkern.jax.batch_norm(x, weight, bias)
    np.testing.assert_allclose(mean, np.mean(x, (0, 1)), rtol=1e-12)
    np.testing.assert_allclose(variance, np.var(x, (0, 1)), rtol=1e-12)
    assert not jax.grad(lambda x: gradkern.jax.batch_norm(x, weight, bias)[2].sum())(x).any()
    with pytest.raises(ValueError, match="batch_norm: axis is -1 of 1 dimensions; expected 1 or -1"):
        gradkern.jax.batch_norm(x.ravel(), weight, bias)


def test_what_is_empty_has_gradients_of_zero() -> None:
    x, weight, bias = arrays(((0, 8), (8,), (8,)), ("float32", "float32"))
    grads = jax.grad(lambda *leaves: gradkern.jax.layer_norm(*leaves).sum(), argnums=(0, 1, 2))(x, weight, bias)
    assert [each.shape for each in grads] == [(0, 8), (8,), (8,)]
    assert not any(each.any() for each in grads)


def test_the_policy_in_force_is_that_of_the_trace() -> None:
    x, weight = arrays(((4, 8), (8,)), ("float32", "float32"))

    def traced() -> str:
        return str(jax.make_jaxpr(jax.grad(lambda x: gradkern.jax.rms_norm(x, weight).sum()))(x))

    assert '"policy": {}' in traced()
    with gradkern.policy(deterministic=True):
        assert '"policy": {"deterministic": true}' in traced()


def test_what_a_contract_refuses_is_said_in_its_words() -> None:
    x, weight, inv_std = arrays(((4, 8), (8,), (4,)), ("float32", "float64"))
    inputs = {"Y_grad": x, "X": x, "scale": weight, "inv_std_var": inv_std.astype("float32")}
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"SimplifiedLayerNormalizationGrad.*float64"):
        jax.block_until_ready(foreign_call("SimplifiedLayerNormalizationGrad", inputs, {"X_grad": x}, axis=1))


@pytest.mark.parametrize(
    ("error", "call", "text"),
    [
        (
            gradkern.ShapeError,
            lambda f, x, w: f.layer_norm(x, w[:1], w),
            r"layer_norm: scale has shape \(1,\); expected",
        ),
        (gradkern.ShapeError, lambda f, x, w: f.layer_norm(x, w, w[:1]), r"layer_norm: bias has shape \(1,\)"),
        (gradkern.ArgumentError, lambda f, x, w: f.layer_norm(x, None), "layer_norm: scale is a NoneType"),
        (gradkern.ArgumentError, lambda f, x, w: f.layer_norm([1.0], w), "layer_norm: x is a list; expected an array"),
        (
            gradkern.AttributeValueError,
            lambda f, x, w: f.rms_norm(x, w, axis=2),
            "rms_norm: axis is 2; expected one of",
        ),
        (gradkern.DTypeError, lambda f, x, w: f.rms_norm(x.astype(int), w), "rms_norm: x has type int"),
        (gradkern.DTypeError, lambda f, x, w: f.rms_norm(x, w.astype("float16")), "expected float32$"),
        (gradkern.ShapeError, lambda f, x, w: f.bias_gelu(x, w[:1]), r"bias_gelu: bias has shape \(1,\)"),
        (gradkern.AttributeValueError, lambda f, x, w: f.bias_gelu(x, w, "tanh"), "approximate is 'tanh'"),
        (gradkern.ShapeError, lambda f, x, w: f.batch_norm(x, w, w[:1]), r"batch_norm: bias has shape \(1,\)"),
        (gradkern.AttributeValueError, lambda f, x, w: f.batch_norm(x, w, w, axis=0), "batch_norm: axis is 0"),
    ],
)
def test_functions_refuse_before_they_compute(error: type[Exception], call: Callable[..., Any], text: str) -> None:
    x, weight = arrays(((4, 8), (8,)), ("float32", "float32"))
    with pytest.raises(error, match=text):
        call(gradkern.jax, x, weight)


def test_there_is_no_second_derivative() -> None:
    x, weight = arrays(((4, 8), (8,)), ("float32", "float32"))
    once = jax.grad(lambda x: (gradkern.jax.rms_norm(x, weight) ** 2).sum())
    with pytest.raises(ValueError, match="cannot be differentiated"):
        jax.grad(lambda x: once(x).sum())(x)


# --- what contracts say that those above do not need -----------------------------------------------------------------


def test_a_foreign_call_takes_integers_masks_and_inputs_on_the_host(toys: Any) -> None:
    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("SoftmaxDropoutGrad", "dx", {"ratio": 0.25}),
        ("SoftmaxDropoutGrad", "dx", {"ratio": 0.25, "training_mode": False}),
        ("BitmaskDropoutGrad", "dx", {}),
        ("GatherGrad", "dX", {}),
    ]
    for name, output, changes in cases:
        given = toy_arguments(name, **changes)
        arrays = {key: jnp.asarray(each) for key, each in given.items() if isinstance(each, np.ndarray)}
        named = {key: each for key, each in given.items() if key not in arrays}
        expected = getattr(run_any(name, **given), output)
        like = jax.ShapeDtypeStruct(expected.shape, expected.dtype)
        (found,) = jax.jit(partial(foreign_call, name, outputs={output: like}, **named))(arrays)
        np.testing.assert_array_equal(found, expected)


def test_a_foreign_call_takes_arrays_in_any_order(toys: Any) -> None:
    given = toy_arguments("BatchScale")
    like = jax.ShapeDtypeStruct(given["input"].shape, given["input"].dtype)
    scales: dict[str, Any] = {"scale_0": 2.0, "scale_1": 3.0}
    three, two = foreign_call("BatchScale", {"input": given["input"]}, {"output_1": like, "output_0": like}, **scales)
    np.testing.assert_array_equal(two * 3, three * 2)


def test_an_alias_leaves_jaxs_array_as_it_was(toys: Any) -> None:
    total, value = jnp.ones(3, "float32"), jnp.ones(3, "float32")
    add = lambda total: foreign_call("InPlaceAccumulator", {"old_sum": total, "value": value}, {"new_sum": total})[0]  # noqa: E731
    assert add(total).tolist() == jax.jit(add)(total).tolist() == [2] * 3
    assert total.tolist() == [1] * 3
