"""Depthwise convolutions on the CPU, whose planes are divided, or so small that several images go together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.reference import reference
from helpers.tolerance import assert_close

import gradkern
from gradkern.cpu import threads
from gradkern.ops.conv.cpu import direct
from gradkern.ops.conv.cpu.direct import BLOCK, TASKS, Flat
from gradkern.ops.conv.geometry import Geometry
from gradkern.policy import PolicyFields

DIRECT: PolicyFields = {"kernel": "direct"}
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "pads": {"pads": [1, 1, 1, 1]},
    "strides": {"strides": [2, 3], "pads": [1, 2, 0, 1]},
    "dilations": {"dilations": [2, 1], "pads": [2, 0, 2, 2]},
    "rows that no tap sees": {"strides": [3, 2]},
    "two filters a channel": {"pads": [0, 1, 2, 1]},
}


def arrays(images: int, name: str, dtype: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    random = np.random.default_rng(images)
    filters = 6 if name == "two filters a channel" else 3
    inputs = {
        "X": random.standard_normal((images, 3, 6, 5)).astype(dtype),
        "W": random.standard_normal((filters, 1, 3, 3)).astype(dtype),
    }
    return inputs, {**ATTRIBUTES[name], "group": 3}


@pytest.mark.parametrize("name", ATTRIBUTES)
@pytest.mark.parametrize("images", [1, 64, 300])
@pytest.mark.parametrize(
    "dtype", ["float32", *(pytest.param(each, marks=pytest.mark.thorough) for each in ("float16", "float64"))]
)
def test_all_images_have_their_own_results(name: str, images: int, dtype: str) -> None:
    inputs, attributes = arrays(images, name, dtype)
    Y = gradkern.run("Conv", **inputs, **attributes, policy=DIRECT).Y
    assert_close("Conv", "Y", Y, reference("Conv", inputs, attributes)["Y"])
    dY = np.random.default_rng(1).standard_normal(Y.shape).astype(dtype)
    given = {"dY": dY, **inputs}
    found = gradkern.run("ConvGrad", **given, **attributes, outputs=["dX", "dW"], policy=DIRECT)
    expected = reference("ConvGrad", given, attributes)
    assert_close("ConvGrad", "dX", found.dX, expected["dX"])
    assert_close("ConvGrad", "dW", found.dW, expected["dW"])


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_parts_of_a_plane_are_computed_one_after_another(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "BLOCK", 8)
    monkeypatch.setattr(direct, "_WHOLE", 16)
    test_all_images_have_their_own_results(name, 2, "float32")


def test_a_plane_is_whole_unless_the_policy_limits_its_memory() -> None:
    random = np.random.default_rng(0)
    X, W = random.standard_normal((1, 3, 100, 90), np.float32), random.standard_normal((3, 1, 3, 3), np.float32)
    given = {"group": 3, "pads": [1, 1, 1, 1]}
    whole, parts = (
        gradkern.prepare("Conv", X, W, **given, policy={**DIRECT, "workspace_limit": limit})
        for limit in (None, threads.threads() * 40_000)
    )
    assert whole.scratch > parts.scratch
    assert whole(X, W).Y.tobytes() == parts(X, W).Y.tobytes()


def test_so_many_go_together_as_fill_a_block() -> None:
    axes = {"N": 300, "C": 3, "M": 3, "C_per_group": 1, "spatial": (6, 5), "kernel": (3, 3), "out": (6, 5)}
    attributes = {"group": 3, "pads": (1, 1, 1, 1), "strides": (1, 1), "dilations": (1, 1)}
    small = Flat(Geometry.of(axes, attributes).lifted(3), 2 * BLOCK)
    assert (small.together, small.block) == (BLOCK // 56, BLOCK // 56 * 56)
    assert (
        300 / TASKS < small.together < 300
    )  # the cases above have images for more than one block, and too few for two
    large = Flat(Geometry.of({**axes, "spatial": (80, 60), "out": (80, 60)}, attributes).lifted(3), 2 * BLOCK)
    assert (large.together, large.block) == (0, BLOCK)


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_what_is_not_finite_stays_in_its_image(name: str) -> None:
    inputs, attributes = arrays(40, name, "float32")
    inputs["X"][7, :, -1, -1] = inputs["X"][7, :, 0, 0] = np.inf
    Y = gradkern.run("Conv", **inputs, **attributes, policy=DIRECT).Y
    assert np.isfinite(np.delete(Y, 7, axis=0)).all()
    dY = np.ones(Y.shape, np.float32)
    dY[7, :, -1, -1] = dY[7, :, 0, 0] = np.nan
    dX = gradkern.run("ConvGrad", dY, **inputs, **attributes, outputs=["dX"], policy=DIRECT).dX
    assert np.isfinite(np.delete(dX, 7, axis=0)).all()
    assert np.isnan(dX[7]).any()
