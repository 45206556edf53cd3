"""ROI align's gradients on a GPU against float64: types, reductions, orders of memory; the same bits every time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.calls import run_any
from helpers.reference import reference
from helpers.tolerance import assert_close
from helpers.torch_on_gpu import back, there

pytestmark = [pytest.mark.gpu, pytest.mark.torch]

ROI, OUTPUTS = "DmlRoiAlignGrad", ("OutputGradient", "OutputROIGradient")


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("reduction", ["AVERAGE", "MAX"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_every_type_reduction_and_order(dtype: str, reduction: str, last: bool) -> None:
    random = np.random.default_rng(0)
    corner, cells = random.integers(-16, 200, (300, 2)), random.integers(1, 20, (300, 2))
    regions = np.concatenate([corner, corner + 7 * cells], 1) / 4  # of 7 cells whose samples no type rounds
    arrays = {
        "InputGradient": random.standard_normal((300, 70, 7, 7)).astype(dtype),
        "ROI": regions.astype("float64" if dtype == "float64" else "float32"),
        "BatchIndices": random.integers(0, 3, 300).astype(np.int32),
        "Input": random.standard_normal((3, 70, 50, 61)).astype(dtype),
    }
    given: dict[str, Any] = {"ReductionFunction": reduction, "InterpolationMode": "LINEAR", "SpatialScaleX": 0.5}
    given |= {"MinimumSamplesPerOutput": 2, "MaximumSamplesPerOutput": 2}
    given["InputPixelOffset"] = 0.5 - 1 / 64  # no sample is where the derivative jumps
    expected = reference(ROI, arrays, given)
    tensors = {name: there(each, last and each.ndim == 4) for name, each in arrays.items()}
    found: Any = run_any(ROI, **tensors, outputs=OUTPUTS, **given)
    again: Any = run_any(ROI, **tensors, outputs=OUTPUTS, **given)
    for name in OUTPUTS:
        assert_close(ROI, name, back(getattr(found, name)), expected[name])
        assert back(getattr(found, name)).tobytes() == back(getattr(again, name)).tobytes()
