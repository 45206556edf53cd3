"""The gradient of resizing on the CPU against PyTorch's and against ONNX's formulas."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np
import pytest
from helpers.reference import reference

import gradkern

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

SIZES = [
    ((9, 8), (17, 5)),
    ((4, 4), (9, 13)),
    ((7,), (11,)),
    ((3, 4, 5), (6, 3, 9)),
    ((5, 5), (1, 1)),
    ((1, 1), (3, 4)),
]
NAMES = {1: "linear", 2: "bilinear", 3: "trilinear"}


@pytest.mark.parametrize(("size", "out"), SIZES)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear", "linear-corners", "bicubic", "bicubic-corners"])
def test_every_mode_agrees_with_pytorch(size: tuple[int, ...], out: tuple[int, ...], mode: str) -> None:
    if "bicubic" in mode and len(size) != 2:
        pytest.skip("PyTorch has no cubic of this rank")
    name, _, corners = mode.partition("-")
    smooth = not mode.startswith("nearest")
    x = torch.randn((2, 3, *size), dtype=torch.float64, requires_grad=True)
    theirs = NAMES[len(size)] if name == "linear" else name if smooth else mode
    y = torch.nn.functional.interpolate(x, out, mode=theirs, align_corners=bool(corners) if smooth else None)
    g = torch.randn_like(y)
    y.backward(g)
    transformation = "align_corners" if corners == "corners" else "half_pixel"
    if not smooth:
        transformation = "tf_half_pixel_for_nn" if corners else "asymmetric"
    attributes: dict[str, Any] = {
        "mode": {"bicubic": "cubic"}.get(name, name),
        "coordinate_transformation_mode": transformation,
        "nearest_mode": "floor",
    }
    found: Any = gradkern.run("ResizeGrad", g, input_size=size, **attributes)
    torch.testing.assert_close(found.dX, x.grad)
    assert torch.equal(gradkern.run("ResizeGrad", g, X=x.detach(), **attributes).dX, found.dX)


MODES = gradkern.operators()["ResizeGrad"].attributes["coordinate_transformation_mode"].allowed
ROUNDINGS = cycle(gradkern.operators()["ResizeGrad"].attributes["nearest_mode"].allowed)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("transformation", MODES)
def test_every_coordinate_mode_agrees_with_its_formula(mode: str, transformation: Any) -> None:
    dY = np.random.default_rng(0).standard_normal((2, 2, 8, 4))
    attributes: dict[str, Any] = {
        "input_size": (5, 7),
        "mode": mode,
        "coordinate_transformation_mode": transformation,
        "nearest_mode": next(ROUNDINGS),
        "exclude_outside": 1,
        "scales": [1.0, 1.0, 1.75, 0.625],
        "roi": [0, 0, 0.25, -0.25, 1, 1, 0.75, 1.25],
    }
    found: Any = gradkern.run("ResizeGrad", dY, **attributes)
    np.testing.assert_allclose(found.dX, reference("ResizeGrad", {"dY": dY}, attributes)["dX"], rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("excluded", [0, 1])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiasing_agrees_with_the_reference_of_onnx(mode: str, excluded: int) -> None:
    """Its forward pass is linear: each column of its matrix is that of one input."""
    resize = pytest.importorskip("onnx.reference.ops.op_resize")
    for size, out, scale, transformation in (
        (23, 5, None, "half_pixel"),
        (9, 4, 0.45, "half_pixel_symmetric"),
        (7, 1, None, "half_pixel"),
        (12, 5, None, "align_corners"),
        (8, 2, None, "asymmetric"),
        (4, 9, None, "half_pixel"),
    ):
        scales = [scale or out / size]
        coefficients = getattr(resize, f"_{mode}_coeffs_antialias")
        matrix = [
            resize._interpolate_nd(
                column,
                coefficients,
                output_size=[out] if scale is None else None,
                scale_factors=None if scale is None else scales,
                coordinate_transformation_mode=transformation,
                exclude_outside=bool(excluded),
            )
            for column in np.eye(size)
        ]
        dY = np.random.default_rng(0).standard_normal((1, 2, out))
        given: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": transformation, "antialias": 1}
        given |= {"input_size": [size], "exclude_outside": excluded, "scales": [1.0, 1, *scales]}
        found = gradkern.run("ResizeGrad", dY, **given).dX
        np.testing.assert_allclose(found, dY @ np.array(matrix).T, atol=1e-6)  # scales are float32


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("size", [(23, 16), (5, 6), (9, 41)])
def test_antialiasing_agrees_with_pytorch(size: tuple[int, int], mode: str) -> None:
    if mode == "lanczos" and not hasattr(torch.ops.aten, "_upsample_lanczos2d_aa"):
        pytest.skip("PyTorch has it from 2.13 on")
    out = (5, 6)
    x = torch.randn((2, 3, *size), dtype=torch.float64, requires_grad=True)
    y = torch.nn.functional.interpolate(x, out, mode=mode, antialias=True)
    g = torch.randn_like(y)
    y.backward(g)
    given: dict[str, Any] = {"mode": mode.removeprefix("bi"), "antialias": 1, "exclude_outside": 1}
    found: Any = gradkern.run("ResizeGrad", g, input_size=size, cubic_coeff_a=-0.5, **given)
    torch.testing.assert_close(found.dX, x.grad)


def test_antialiasing_refuses_what_has_no_filter() -> None:
    given: dict[str, Any] = {"input_size": [8], "antialias": 1}
    with pytest.raises(
        gradkern.AttributeValueError, match="mode nearest has no filter, expected linear, cubic or lanczos"
    ):
        gradkern.run("ResizeGrad", np.ones((1, 1, 2)), **given)
    with pytest.raises(gradkern.AttributeValueError, match="antialias is 0; mode lanczos expects 1"):
        gradkern.run("ResizeGrad", np.ones((1, 1, 2)), input_size=[8], mode="lanczos")
    with pytest.raises(gradkern.GradkernError, match="with antialias makes no 2 outputs of 8 inputs"):
        gradkern.run("ResizeGrad", np.ones((1, 1, 2)), mode="linear", scales=[1, 1, 1e-6], **given)


def test_lists_of_another_length_are_refused() -> None:
    with pytest.raises(gradkern.ShapeError, match="input scales has 3 values; expected 4, for all 4 dimensions"):
        gradkern.run("ResizeGrad", np.ones((1, 1, 2, 2)), input_size=[1, 1], scales=[1.0, 1, 2])
    mode: Any = "tf_crop_and_resize"
    with pytest.raises(gradkern.ArgumentError, match="input roi is missing"):
        gradkern.run("ResizeGrad", np.ones((1, 1, 2)), input_size=[1], coordinate_transformation_mode=mode)


def test_directml_s_documentation_has_this_resampling() -> None:
    D = np.array([[4, 5, 6]], np.float32)[None, None]
    scales: dict[str, Any] = {
        "Scales": [1, 1, 0.5, 1.5],
        "InputPixelOffsets": [0.5] * 4,
        "OutputPixelOffsets": [-0.5] * 4,
    }
    scales |= {"Scales": [1, 1, 0.5, 1.5], "OutputSizes": [1, 1, 2, 2], "InterpolationMode": "NEAREST_NEIGHBOR"}
    found = gradkern.run("DmlResampleGrad", D, **scales).OutputGradient
    np.testing.assert_array_equal(found[0, 0], [[9, 6], [0, 0]])
    with pytest.raises(gradkern.AttributeValueError, match="expected 1 and 0 of the first two dimensions"):
        gradkern.run("DmlResampleGrad", D, **{**scales, "Scales": [1, 2, 0.5, 1.5]})
    with pytest.raises(gradkern.ShapeError, match="of the first two, as InputGradient"):
        gradkern.run("DmlResampleGrad", D, **{**scales, "OutputSizes": [1, 2, 2, 2]})


@pytest.mark.parametrize("transformation", ["half_pixel", "align_corners"])
def test_nothing_is_resized_to_zeros(transformation: Any) -> None:
    for out, size in (((0, 2), (0, 3)), ((0, 2), (4, 3)), ((3, 0), (2, 5))):
        given = {"input_size": size, "mode": "linear", "coordinate_transformation_mode": transformation}
        found = gradkern.run("ResizeGrad", np.ones((1, 2, *out), np.float32), **given).dX
        np.testing.assert_array_equal(found, np.zeros((1, 2, *size), np.float32))
