"""The kernels of local response normalization's gradient under the CUDA simulator."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np
import pytest
from helpers import simulated
from helpers.held import Held, hold
from helpers.reference import reference
from helpers.tolerance import assert_close

from gradkern.call import Tensor
from gradkern.cuda.device_code.columns import bits_of
from gradkern.ops.local_response_norm.cuda.kernel import build
from gradkern.ops.local_response_norm.cuda.plan import ARGUMENTS
from gradkern.ops.local_response_norm.windows import Windows

DML = "DmlLocalResponseNormalizationGrad"


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("dtype", "shape", "attributes"),
    [
        ("float32", (2, 5, 3, 4), {"CrossChannel": 1, "LocalSize": 4}),
        ("bfloat16", (2, 3, 4, 5), {"CrossChannel": 0, "LocalSize": 2}),
        ("float64", (1, 2, 3, 2, 4), {"CrossChannel": 0, "LocalSize": 3}),
        ("float16", (1, 7, 9), {"CrossChannel": 1, "LocalSize": 5}),
    ],
)
def test_both_launches(dtype: str, shape: tuple[int, ...], attributes: dict[str, Any], last: bool) -> None:
    random, given = np.random.default_rng(0), {"Alpha": 1.5, "Beta": 0.75, "Bias": 1.25, **attributes}
    order = (0, *range(2, len(shape)), 1) if last else tuple(range(len(shape)))
    X, D = (random.standard_normal(shape).astype(dtype) for _ in range(2))
    item = X.dtype.itemsize
    strided = np.empty([shape[axis] for axis in order], dtype).transpose(np.argsort(order))
    windows = Windows.of(Tensor(X.dtype, shape, strided.strides, item), given)
    assert windows.order == order
    compute = "float64" if dtype == "float64" else "float32"
    held = {name: hold(each.transpose(order).reshape(1, -1)) for name, each in (("X", X), ("D", D))}
    held |= {name: Held((1, X.size), compute) for name in ("own", "others")} | {"dX": Held((1, X.size), dtype)}
    numbers = dict(zip(("w0", "w1", "w2"), windows.sizes, strict=True)) | {"size": X.size, "inner": windows.inner}
    alpha = given["Alpha"] / given["LocalSize"]
    for terms, factor in ((True, alpha), (False, 2 * alpha * given["Beta"])):
        around = windows.before, windows.behind
        before, behind = around if terms else around[::-1]
        values = {"alpha": factor, "beta": given["Beta"], "bias": given["Bias"]}
        every = {name: each.address for name, each in held.items()} | numbers | {"before": before, "behind": behind}
        every |= {name: bits_of(each, compute) for name, each in values.items()}
        kernel = build(dtype, terms, X.size % 2 == 1, True)
        simulated.launch(kernel, -(-X.size // 32), 32, 1, 0, tuple(np.int64(every[name]) for name in ARGUMENTS))
    for each in held.values():
        each.memory.check()
    found = np.array(held["dX"].array).reshape([shape[axis] for axis in order]).transpose(np.argsort(order))
    expected = reference(DML, {"Input": X, "InputGradient": D}, given)["OutputGradient"]
    assert_close(DML, "OutputGradient", found, expected)
