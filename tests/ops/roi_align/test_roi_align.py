"""ROI align's gradients on the CPU: against torchvision's autograd, DirectML's own example, and what is refused."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from helpers.calls import message, run_any
from helpers.reference import reference
from helpers.tolerance import assert_close

from gradkern import ArgumentError, AttributeValueError, DataError

ROI, OUTPUTS = "DmlRoiAlignGrad", ("OutputGradient", "OutputROIGradient")
RANDOM = np.random.default_rng(0)
REGIONS = np.sort(RANDOM.uniform(-3, 13, (6, 2, 2)), 1).reshape(6, 4) + np.array([0, 0, 2, 2])
IMAGES = np.array([0, 1, 1, 0, 1, 1], np.int32)
MEAN: dict[str, Any] = {"ReductionFunction": "AVERAGE", "InterpolationMode": "LINEAR"}


@pytest.mark.torch
@pytest.mark.models
@pytest.mark.parametrize("ratio", [-1, 2])
@pytest.mark.parametrize("aligned", [False, True])
def test_means_have_the_gradients_of_torchvisions_roi_align(ratio: int, aligned: bool) -> None:
    import torch
    from helpers.models import torchvision

    torchvision()
    forward = import_module("torchvision.ops.roi_align")._roi_align.__wrapped__  # its formula in PyTorch's operators
    regions = np.sort(RANDOM.uniform(1, 8.4, (6, 2, 2)), 1).reshape(6, 4) + np.array([-0.2, -0.2, 1.5, 1.5])  # inside
    X = torch.tensor(RANDOM.standard_normal((2, 3, 9, 11)), requires_grad=True)
    D = RANDOM.standard_normal((6, 3, 3, 2))
    rois = torch.tensor(np.concatenate([IMAGES[:, None], regions], 1), requires_grad=True)
    forward(X, rois, 0.8, 3, 2, ratio, aligned).backward(torch.tensor(D))
    most = {"MinimumSamplesPerOutput": ratio, "MaximumSamplesPerOutput": ratio} if ratio > 0 else {}
    given = {**MEAN, **most, "SpatialScaleX": 0.8, "SpatialScaleY": 0.8, "InputPixelOffset": 0.5 if aligned else 0.0}
    found = run_any(ROI, D, regions, IMAGES, X.detach(), outputs=OUTPUTS, **given)
    assert X.grad is not None
    assert rois.grad is not None
    np.testing.assert_allclose(found.OutputGradient, X.grad, atol=1e-12)
    if ratio > 0:  # torchvision's count of samples is part of its graph
        np.testing.assert_allclose(found.OutputROIGradient, rois.grad[:, 1:], atol=1e-11)


def test_the_example_of_directmls_documentation() -> None:
    D, regions = (
        np.arange(1, 13, dtype=np.float32).reshape(4, 1, 1, 3),
        [[0, 0, 2, 2], [2, 0, 4, 2], [0, 2, 2, 4], [2, 2, 4, 4]],
    )
    given = {**MEAN, "InterpolationMode": "NEAREST_NEIGHBOR", "MaximumSamplesPerOutput": 1}
    found = run_any(ROI, D, np.array(regions, "f"), np.zeros(4, "u4"), BatchCount=1, OutputSizes=[4, 4], **given)
    expected = [[3, 3, 9, 6], [0, 0, 0, 0], [15, 9, 21, 12], [0, 0, 0, 0]]
    np.testing.assert_array_equal(found.OutputGradient[0, 0], expected)


@pytest.mark.parametrize("reduction", ["AVERAGE", "MAX"])
@pytest.mark.parametrize("mode", ["LINEAR", "NEAREST_NEIGHBOR"])
@pytest.mark.parametrize("corners", [0, 1])
def test_every_mode(reduction: str, mode: str, corners: int) -> None:
    regions = REGIONS.copy()
    regions[1], regions[2, 2:] = regions[1, [2, 3, 0, 1]], regions[2, :2]  # turned over, and empty
    arrays = {"InputGradient": RANDOM.standard_normal((6, 4, 3, 2)), "ROI": regions, "BatchIndices": IMAGES}
    arrays["Input"] = RANDOM.standard_normal((2, 4, 9, 11))
    given = {"ReductionFunction": reduction, "InterpolationMode": mode, "AlignRegionsToCorners": corners}
    given |= {"SpatialScaleX": 0.8, "SpatialScaleY": 1.1, "MinimumSamplesPerOutput": 2}
    expected = reference(ROI, arrays, given)
    for name, each in run_any(ROI, **arrays, outputs=OUTPUTS, **given)._asdict().items():
        assert_close(ROI, name, each, expected[name])


@pytest.mark.parametrize(
    ("error", "changes", "text"),
    [
        (DataError, {"BatchIndices": np.array([0, 2, 1, 0, 1, 1])}, "1 numbers out of range, the first 2 at 1"),
        (ArgumentError, {"outputs": OUTPUTS, "Input": None}, "Input is missing, which OutputROIGradient takes"),
        (ArgumentError, {"ReductionFunction": "MAX", "Input": None}, "Input is missing, which ReductionFunction MAX"),
        (ArgumentError, {"BatchCount": None, "Input": None}, "nothing gives its N; expected input Input or attribute"),
        (AttributeValueError, {"MinimumSamplesPerOutput": 3, "MaximumSamplesPerOutput": 2}, "at most the maximum, 2"),
    ],
)
def test_what_does_not_fit_is_named(error: type[Exception], changes: dict[str, Any], text: str) -> None:
    given = {"InputGradient": np.ones((6, 4, 3, 2)), "ROI": REGIONS, "BatchIndices": IMAGES, "BatchCount": 2}
    given |= {"OutputSizes": [9, 11], "Input": np.ones((2, 4, 9, 11)), **MEAN, **changes}
    assert text in message(error, run_any, ROI, **{name: each for name, each in given.items() if each is not None})
