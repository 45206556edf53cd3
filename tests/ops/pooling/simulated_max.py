"""The kernels of max pooling under the CUDA simulator; test_simulated runs this file in its own process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.reference import reference
from helpers.simulate_launch import simulate
from helpers.tolerance import assert_close

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.ops.pooling.cuda.plan import plan
from gradkern.policy import Policy
from gradkern.strides import c_strides

b, h, f, d = "bfloat16", "float16", "float32", "float64"


def attributes(kernel: Any, strides: Any, pads: Any, dilations: Any, index_base: str) -> dict[str, Any]:
    given = {"kernel_shape": kernel, "strides": strides, "pads": (*pads, *pads), "dilations": dilations}
    return {**given, "index_base": index_base}


POOLS: list[tuple[Any, Any, Any, Any, Any]] = [  # shape, kernel, strides, pads, dilations
    ((2, 3, 8, 12), (3, 3), (2, 2), (1, 1), (1, 1)),
    ((1, 8, 5, 7), (2, 3), (3, 1), (0, 1), (1, 2)),
    ((3, 2, 16), (4,), (1,), (2,), (1,)),
    ((1, 4, 3, 4, 4), (2, 2, 3), (1, 2, 2), (1, 0, 1), (2, 1, 1)),
    ((1, 2, 5, 9), (5, 3), (1, 1), (2, 0), (1, 2)),
    ((1, 2, 5, 4, 8), (3, 2, 2), (2, 2, 2), (1, 0, 1), (1, 1, 1)),
    ((1, 2, 3, 4, 8), (2, 3, 2), (1, 1, 1), (1, 1, 0), (1, 1, 1)),
    ((1, 2, 11, 16), (3, 2), (2, 1), (0, 1), (1, 1)),
    ((1, 2, 5, 16), (3, 3), (2, 2), (1, 1), (1, 1)),
    ((1, 8, 7, 6), (6, 2), (2, 2), (0, 0), (1, 1)),
]
OF_ANY_WINDOWS = [POOLS[1], POOLS[-1]]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("dtype", "kind", "base"),
    [(b, "int64", "plane"), (f, "uint8", "plane"), (d, "int64", "tensor"), (h, "uint8", "plane")],
)
@pytest.mark.parametrize("pool", POOLS)
def test_a_gradient_of_the_forward_pass_is_that_of_the_formulas(
    pool: Any, dtype: str, kind: str, base: str, last: bool
) -> None:
    shape, *windows = pool
    random = np.random.default_rng(0)
    X = random.integers(-3, 3, shape).astype(dtype)  # with ties
    X[:, 0, ..., :3], X[0, 1, ..., 1] = -np.inf, np.nan
    kernel, strides, pads, dilations = windows
    given = attributes(kernel, strides, pads, dilations, base)
    formula = {key: value for key, value in given.items() if key != "index_base"}
    expected = reference("MaxPool", {"X": X}, {**formula, "index_base": base}, {"I": kind})
    out = expected["Y"].shape
    axes = {"spatial": shape[2:], "out": out[2:]}
    found, _ = simulate(plan, "MaxPool", {"X": X}, {"Y": (out, dtype), "Indices": (out, kind)}, given, axes, last)
    np.testing.assert_array_equal(found["Y"].astype(d), expected["Y"].astype(d))
    np.testing.assert_array_equal(found["Indices"], expected["Indices"])
    inputs = {"dY": random.standard_normal(out).astype(dtype), "Indices": found["Indices"]}
    gradient, kernel = simulate(plan, "MaxPoolGrad", inputs, {"dX": (shape, dtype)}, given, axes, last)
    of = reference("MaxPoolGrad", inputs, {**formula, "index_base": base, "input_size": shape[2:]})
    assert_close("MaxPoolGrad", "dX", gradient["dX"], of["dX"])
    assert ("_of_" in kernel) == (pool not in OF_ANY_WINDOWS)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("index", [-1, 1 << 31, 1 << 40, -(1 << 62), 999])
def test_indices_that_no_forward_pass_makes_reach_no_other_memory(index: int, last: bool) -> None:
    """The memory around the arrays is guarded."""
    dY, shape = np.ones((1, 2, 4, 4), f), (1, 2, 8, 8)
    given = attributes((2, 2), (2, 2), (0, 0), (1, 1), "tensor")
    inputs, axes = {"dY": dY, "Indices": np.full(dY.shape, index)}, {"spatial": (8, 8), "out": (4, 4)}
    found, _ = simulate(plan, "MaxPoolGrad", inputs, {"dX": (shape, f)}, given, axes, last)
    assert found["dX"].sum() <= dY.sum()


def test_a_plane_of_more_outputs_than_31_bits_count_is_refused() -> None:
    shape, out = (1, 1, 1, 1), (1, 1, 1 << 16, 1 << 16)
    tensors = [
        Tensor(np.dtype(kind), each, c_strides(each, np.dtype(kind).itemsize), 16)
        for kind, each in ((f, out), ("uint8", out), (f, shape))
    ]
    given = attributes((1 << 16, 1 << 16), (1, 1), ((1 << 16) - 1,) * 2, (1, 1), "plane")
    axes = {"spatial": shape[2:], "out": out[2:]}
    inputs, outputs = {"dY": tensors[0], "Indices": tensors[1]}, {"dX": tensors[2]}
    with dry_run(DryRunDevice(0, (9, 0), 132, 227 << 10)), pytest.raises(Refusal, match="4294967296 outputs"):
        plan(Call("MaxPoolGrad", inputs, outputs, given, axes, frozenset(), "cuda:0", Policy()))
