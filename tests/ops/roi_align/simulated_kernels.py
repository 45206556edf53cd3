"""Whole plans of ROI align's gradients under the CUDA simulator; test_simulated runs this file in its own process."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from helpers.guarded import Guarded
from helpers.held import Held, hold
from helpers.reference import reference
from helpers.simulate_losses import Launch, kernel_of
from helpers.tolerance import assert_close

from gradkern.arrays.host import NUMPY
from gradkern.arrays.kind import View
from gradkern.contract.check import check
from gradkern.contract.request import Views, request_of
from gradkern.cuda import launches_plan
from gradkern.cuda.device import Device
from gradkern.ops.roi_align import resolve
from gradkern.ops.roi_align.cuda import plan as module
from gradkern.policy import Policy

ROI, OUTPUTS = "DmlRoiAlignGrad", ("OutputGradient", "OutputROIGradient")


@pytest.mark.parametrize(
    ("dtype", "index", "maximum", "nearest", "corners", "last"),
    [
        ("float32", "uint32", False, False, 0, False),
        ("bfloat16", "int64", True, False, 1, True),
        ("float64", "int32", True, True, 0, False),
        ("float16", "int32", False, True, 1, True),
        ("float64", "int64", False, False, 1, True),
    ],
)
def test_both_gradients(dtype: str, index: str, maximum: bool, nearest: bool, corners: int, last: bool) -> None:
    random = np.random.default_rng(0)
    regions = np.sort(random.uniform(-2, 9, (7, 2, 2)), 1).reshape(7, 4)
    regions[1], regions[2, 2:] = regions[1, [2, 3, 0, 1]], regions[2, :2]  # turned over, and empty
    X, D = random.standard_normal((2, 3, 6, 7)), random.standard_normal((7, 3, 3, 2))
    images = np.array([0, 1, 1, 0, 1, 1, 0])
    kinds = {"InputGradient": dtype, "ROI": "float32" if dtype != "float64" else dtype, "BatchIndices": index}
    arrays = {"InputGradient": D, "ROI": regions, "BatchIndices": images, "Input": X}
    arrays = {name: each.astype(kinds.get(name, dtype)) for name, each in arrays.items()}
    given: dict[str, Any] = {
        "ReductionFunction": "MAX" if maximum else "AVERAGE",
        "InterpolationMode": "NEAREST_NEIGHBOR" if nearest else "LINEAR",
        "AlignRegionsToCorners": corners, "SpatialScaleX": 0.7, "SpatialScaleY": 1.1, "MinimumSamplesPerOutput": 2,
    }  # fmt: skip
    expected = reference(ROI, arrays, given)
    # an index out of range: on a GPU it reaches no image, and its own gradient is 0
    bad = {**arrays, "BatchIndices": np.append(arrays["BatchIndices"], [2]).astype(index)}
    bad |= {name: np.concatenate([arrays[name], arrays[name][:1]]) for name in ("InputGradient", "ROI")}
    held = {name: hold(each) for name, each in bad.items()}
    if last:  # the same elements with the channels last in memory
        held["Input"] = hold(np.ascontiguousarray(np.moveaxis(arrays["Input"], 1, -1)))
    views = {name: View(each.tensor, None, "cuda:0", NUMPY) for name, each in held.items()}
    if last:
        tensor = held["Input"].tensor
        strides = tuple(tensor.strides[axis] for axis in (0, 3, 1, 2))
        views["Input"] = View(tensor._replace(shape=X.shape, strides=strides), None, "cuda:0", NUMPY)
        views["OutputGradient"] = views["Input"]
    inputs = {name: views[name].tensor for name in held}
    out = {name: views[name] for name in ("OutputGradient",) if name in views}
    request = request_of(ROI, (), {**inputs, **given}, OUTPUTS, out or None)
    views.pop("OutputGradient", None)
    call = check(request, Views(views, out, frozenset()), Policy(), resolve)
    results = {name: Held((1, each.size), each.dtype) for name, each in call.outputs.items()}
    memory = Guarded((1 << 12,), np.uint8)
    with ExitStack() as stack:
        for name, stand_in in (("kernel_of", kernel_of), ("Launch", Launch)):
            stack.enter_context(patch.object(module, name, stand_in))
        stack.enter_context(patch.object(module, "device_of", lambda _: Device(0, (9, 0), 132, 232448)))
        stack.enter_context(patch.object(launches_plan, "scratch", lambda *_: (0, memory.address)))
        small = {"tile": (2, 4), "lanes": 4, "channels": 2}
        stack.enter_context(patch.object(module, "FIRST", {"tile": (4, 8), "lanes": 1, "channels": 2}))
        stack.enter_context(patch.object(module, "LAST", small))
        addresses = tuple(held[name].address for name in call.inputs)
        module.plan(call)(addresses, tuple(each.address for each in results.values()), 0)
    for each in (*results.values(), *held.values()):
        each.memory.check()
    memory.check()
    found = np.array(results["OutputGradient"].array).reshape((2, 6, 7, 3) if last else X.shape)
    found = np.moveaxis(found, -1, 1) if last else found
    assert_close(ROI, "OutputGradient", found, expected["OutputGradient"])
    regions_found = np.array(results["OutputROIGradient"].array).reshape(8, 4)
    assert_close(ROI, "OutputROIGradient", regions_found[:7], expected["OutputROIGradient"])
    assert not regions_found[7].any()
