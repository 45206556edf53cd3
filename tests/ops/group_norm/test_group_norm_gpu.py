"""Group norms on a GPU against float64: types, layouts, groups, activations, edges, large arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.calls import run_any
from helpers.reference import reference
from helpers.terms import terms
from helpers.tolerance import assert_close, assert_within_terms

import gradkern
from gradkern.arrays.host import torch_as_numpy

pytestmark = pytest.mark.gpu

b, h, f, d = "bfloat16", "float16", "float32", "float64"
SHAPES = [
    *((2, 320, 32, 32), (3, 24, 7, 9), (2, 64, 5, 6, 7), (5, 40, 301), (9, 256), (4, 30, 16, 16), (2, 512, 64, 64)),
    *((2, 2560, 16, 16), (16, 48, 1, 5), (1, 32, 64, 64, 64), (2, 33, 129), (1, 8, 1000, 1000), (3, 6, 1, 1)),
]
GRADIENTS = ("dX", "dgamma", "dbeta")
OF_SAMPLES = ("sample_scale_grad", "sample_shift_grad")


def on_gpu(array: np.ndarray, last: bool) -> Any:
    import torch  # pyright: ignore[reportMissingImports]

    name = array.dtype.name
    wide = torch.from_numpy(np.ascontiguousarray(array.astype(d if name == d else f))).cuda().to(getattr(torch, name))
    return torch.movedim(torch.movedim(wide, 1, -1).contiguous(), -1, 1) if last and array.ndim > 2 else wide


def check(
    shape: tuple[int, ...], groups: int, dtype: str, last: bool, activation: str = "silu", parameter: str = "",
    sample: bool = False, residual: bool = False, offset: float = 0.0, saved: str = "",
) -> None:  # fmt: skip
    random, wide = np.random.default_rng(0), d if dtype == d else f
    (N, C), parameter = shape[:2], parameter or wide
    X, dY = (
        (random.standard_normal(shape, np.float32) + offset).astype(dtype),
        random.standard_normal(shape, np.float32),
    )
    gamma, beta = (random.standard_normal(C).astype(parameter) for _ in range(2))
    more = {name: random.standard_normal((N, C)).astype(dtype) for name in ("sample_scale", "sample_shift") if sample}
    forward = {"X": X, "scale": gamma, "bias": beta, **more}
    attributes: dict[str, Any] = {"activation": activation, "activation_alpha": 0.2}
    given = {name: on_gpu(each, last and each.ndim == len(shape)) for name, each in forward.items()}
    outputs = ["Y", "mean", "inv_std"]
    found = run_any("GroupNormalization", **given, num_groups=groups, **attributes, outputs=outputs)
    assert found.Y.stride() == given["X"].stride()
    exact = reference("GroupNormalization", forward, {"num_groups": groups, **attributes})
    size = np.abs(X.astype(d)).reshape(N, groups, -1).mean(2)
    assert_close("GroupNormalization", "mean", torch_as_numpy(found.mean.cpu()), exact["mean"], size)
    assert_close("GroupNormalization", "inv_std", torch_as_numpy(found.inv_std.cpu()), exact["inv_std"])
    if not offset:
        assert_close("GroupNormalization", "Y", torch_as_numpy(found.Y.cpu()), exact["Y"])

    statistics = {name: torch_as_numpy(getattr(found, name).cpu()).astype(saved or wide) for name in outputs[1:]}
    inputs = {"dY": dY.astype(dtype), "X": X, **statistics, "gamma": gamma, "beta": beta, **more}
    if residual:
        inputs["residual_grad"] = random.standard_normal(shape).astype(dtype)
    attributes["groups"] = groups
    expected, of = reference("GroupNormGrad", inputs, attributes), terms("GroupNormGrad", inputs, attributes)
    given = {name: on_gpu(each, last and each.shape == shape) for name, each in inputs.items()}
    names = [*GRADIENTS, *(OF_SAMPLES if sample else ())]
    first, second = (run_any("GroupNormGrad", **given, **attributes, outputs=names) for _ in range(2))
    for name in names:
        one, again = (torch_as_numpy(getattr(each, name).cpu()) for each in (first, second))
        assert one.tobytes() == again.tobytes()
        assert_within_terms(one, expected[name], of[name])
    assert first.dX.stride() == given["X"].stride()


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [b, h, f, d])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_and_type(shape: tuple[int, ...], dtype: str, last: bool) -> None:
    for groups in {1, shape[1], next(n for n in (32, 8, 6, 3, 2, 1) if shape[1] % n == 0)}:
        check(shape, groups, dtype, last)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("activation", ["none", "relu", "leaky_relu", "silu", "gelu"])
def test_every_activation_with_numbers_of_samples_and_a_residual(activation: str, last: bool) -> None:
    for dtype, parameter in ((b, b), (b, f), (h, h), (f, f), (d, d)):
        check((2, 64, 12, 12), 8, dtype, last, activation, parameter, sample=True, residual=True)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("dtype", [b, h, f, d])
@pytest.mark.parametrize("shape", [(2, 320, 32, 32), (3, 24, 7, 9), (2, 512, 64, 64), (1, 32, 64, 64, 64), (9, 256)])
def test_the_norm_is_of_the_rounded_sum_with_skip_and_bias(shape: tuple[int, ...], dtype: str, last: int) -> None:
    random, (N, C), wide = np.random.default_rng(0), shape[:2], d if dtype == d else f

    def data() -> np.ndarray:
        drawn = (random.standard_normal(shape, np.float32) + 1).astype(dtype)
        return np.ascontiguousarray(np.moveaxis(drawn, 1, -1)) if last else drawn

    whole = {
        "X": data(),
        "gamma": random.standard_normal(C).astype(wide),
        "beta": random.standard_normal(C).astype(wide),
    }
    skips = data(), random.standard_normal((N, C)).astype(dtype)
    for skip, biased, over in (
        (skips[0], True, ""),
        (skips[0], False, "S"),
        (skips[1], True, "S"),
        (skips[1], False, "Y"),
    ):
        inputs = {**whole, "skip": skip}
        if biased:
            inputs["bias"] = random.standard_normal(C).astype(dtype)
        attributes = {"groups": 8, "activation": 1, "channels_last": last}
        expected = reference("SkipGroupNorm", inputs, attributes)
        for outputs in (["Y", "S", "mean", "inv_std"], [over or "Y"]):
            given = {name: on_gpu(each, False) for name, each in inputs.items()}
            out = {over: given["X"]} if over else {}
            found = run_any("SkipGroupNorm", **given, **attributes, outputs=outputs, out=out)
            for name in outputs:
                result = torch_as_numpy(getattr(found, name).cpu())
                assert_close("SkipGroupNorm", name, result, expected[name])


@pytest.mark.parametrize("last", [False, True])
def test_group_norms_in_place_have_the_same_bits(last: bool) -> None:
    for shape, groups in (((2, 320, 64, 64), 32), ((8, 512, 64, 64), 32), ((64, 48, 9, 16), 3)):
        X = on_gpu(np.random.default_rng(0).standard_normal(shape, np.float32), last)
        weight, bias = (on_gpu(np.random.default_rng(n).standard_normal(shape[1]).astype(f), False) for n in (1, 2))
        expected = run_any("GroupNormalization", X, weight, bias, num_groups=groups).Y
        for _ in range(5):
            again = X.clone()
            run_any("GroupNormalization", again, weight, bias, num_groups=groups, out={"Y": again})
            assert again.equal(expected)


@pytest.mark.parametrize("last", [False, True])
def test_statistics_of_16_bits(last: bool) -> None:
    for dtype in (b, h):
        check((2, 64, 12, 12), 8, dtype, last, "none", dtype, saved=dtype)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [b, h, f, d])
def test_a_mean_far_above_the_deviation(dtype: str, last: bool) -> None:
    for groups in (1, 8, 64):
        check((2, 64, 64, 64), groups, dtype, last, "none", offset=1000.0)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("shape", [(32, 320, 64, 64), (32, 640, 32, 32), (8, 512, 128, 128)])
def test_arrays_that_fill_the_gpu(shape: tuple[int, ...], last: bool) -> None:
    import torch  # pyright: ignore[reportMissingImports]

    order = torch.channels_last if last else torch.contiguous_format
    X, dY = (torch.randn(shape, device="cuda").bfloat16().contiguous(memory_format=order) for _ in range(2))
    gamma, beta = (torch.randn(shape[1], device="cuda") for _ in range(2))
    silu: dict[str, Any] = {"activation": "silu"}
    made = run_any("GroupNormalization", X, gamma, beta, num_groups=32, **silu, outputs=["Y", "mean", "inv_std"])
    gradients = run_any("GroupNormGrad", dY, X, *made[1:], gamma, beta, groups=32, **silu, outputs=list(GRADIENTS))
    wide, weight, bias = (each.double().contiguous().requires_grad_() for each in (X, gamma, beta))
    exact = torch.nn.functional.silu(torch.nn.functional.group_norm(wide, 32, weight, bias))
    found, expected = (made[0], *gradients), (exact, *torch.autograd.grad(exact, (wide, weight, bias), dY.double()))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2**-8, atol=1e-4 * float(other.detach().abs().max()))


@pytest.mark.parametrize("last", [False, True])
def test_offsets_beyond_2_to_the_31_are_right(last: bool) -> None:
    import torch  # pyright: ignore[reportMissingImports]

    shape = (17, 128, 1000, 1000)
    order = torch.channels_last if last else torch.contiguous_format
    X = torch.empty(shape, dtype=torch.bfloat16, device="cuda", memory_format=order).zero_()
    X[-1, ::2] = 2.0
    weight, bias = (torch.full((128,), value, device="cuda") for value in (1.0, 0.5))
    Y = gradkern.run("GroupNormalization", X=X, scale=weight, bias=bias, num_groups=64)[0]
    assert torch.equal(Y[-1, 0::2].unique(), torch.tensor([1.5], dtype=torch.bfloat16, device="cuda"))
    assert torch.equal(Y[-1, 1::2].unique(), torch.tensor([-0.5], dtype=torch.bfloat16, device="cuda"))
    assert torch.equal(Y[0].unique(), torch.tensor([0.5], dtype=torch.bfloat16, device="cuda"))


@pytest.mark.parametrize("last", [False, True])
def test_a_captured_graph_gives_the_same_bits(last: bool) -> None:
    import torch  # pyright: ignore[reportMissingImports]

    X, dY = (on_gpu(np.random.default_rng(n).standard_normal((4, 320, 32, 32)).astype(b), last) for n in (0, 1))
    weight, bias = torch.ones(320, device="cuda"), torch.zeros(320, device="cuda")

    def step() -> list[Any]:
        parameters: dict[str, Any] = {"activation": "silu"}
        made = gradkern.run(
            "GroupNormalization", X, weight, bias, num_groups=32, **parameters, outputs=["Y", "mean", "inv_std"]
        )
        return [made.Y, *gradkern.run("GroupNormGrad", dY, X, *made[1:], weight, bias, groups=32, **parameters)]

    expected = [each.clone() for each in step()]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    for _ in range(10):
        graph.replay()
        assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
