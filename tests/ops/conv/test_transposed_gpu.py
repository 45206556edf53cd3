"""ConvTranspose and its gradients whole on a GPU: types, ranks, groups and layouts against float64."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  teaches NumPy the name bfloat16
import numpy as np
import pytest
from helpers.reference import reference
from helpers.searches import keep_searches_in
from helpers.tolerance import assert_close
from helpers.torch_on_gpu import back, there

import gradkern
from gradkern.policy import Policy

pytestmark = [pytest.mark.gpu, pytest.mark.torch]

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "2x2, strides of 2": ((4, 32, 14, 15), (32, 24, 2, 2), {"strides": [2, 2]}),
    "4x4, pads": ((4, 32, 14, 14), (32, 16, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "output padding": ((3, 24, 9, 8), (24, 16, 3, 3), {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]}),
    "groups, dilations": ((3, 32, 9, 8), (32, 8, 3, 2), {"group": 4, "dilations": [2, 1], "pads": [2, 1, 2, 0]}),
    "a filter each": ((3, 32, 15, 14), (32, 1, 4, 4), {"group": 32, "strides": [2, 2], "pads": [1] * 4}),
    "behind all windows": ((2, 16, 8, 8), (16, 24, 2, 2), {"strides": [2, 2], "output_shape": [20, 19]}),
    "one axis": ((4, 32, 101), (32, 24, 4), {"strides": [2], "pads": [1, 1]}),
    "three axes": ((2, 16, 4, 6, 5), (16, 24, 2, 2, 2), {"strides": [2, 2, 2]}),
}


@pytest.fixture(autouse=True)
def quick_searches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Short searches, kept in a folder of the test's own; what they warn about is not what is tested."""
    from gradkern.ops.conv.cuda import plan as conv

    keep_searches_in(tmp_path, monkeypatch)
    monkeypatch.setattr(conv, "choose", partial(conv.choose, seconds=0.5))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="gradkern: .* not used, as it is wrong", category=RuntimeWarning)
        yield


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("last", [False, True])
def test_every_shape_type_and_layout(name: str, dtype: str, last: bool) -> None:
    random = np.random.default_rng(0)
    X, W, attributes = CASES[name]
    given = {"X": random.standard_normal(X).astype(dtype), "W": random.standard_normal(W).astype(dtype)}
    Y = reference("ConvTranspose", given, attributes)["Y"]
    B, dY = random.standard_normal(Y.shape[1]).astype(dtype), random.standard_normal(Y.shape).astype(dtype)
    policy = Policy("exhaustive", allow_tf32=False)
    x, w, b, d = there(given["X"], last), there(given["W"], False), there(B, False), there(dY, last)
    found: Any = gradkern.run("ConvTranspose", x, w, **attributes, policy=policy).Y
    assert_close("ConvTranspose", "Y", back(found), Y)
    assert (found.stride(1) == 1) == last
    biased: Any = gradkern.run("ConvTranspose", x, w, b, **attributes, policy=policy).Y
    each = B.astype(float).reshape(-1, *[1] * (Y.ndim - 2))
    assert_close("ConvTranspose", "Y", back(biased), back(found).astype(float) + each)  # Y was rounded before
    expected = reference("ConvTransposeGrad", {"dY": dY, **given}, attributes)
    ours = gradkern.run("ConvTransposeGrad", d, x, w, **attributes, policy=policy)
    for key, array in ours._asdict().items():
        assert_close("ConvTransposeGrad", key, back(array), expected[key])
