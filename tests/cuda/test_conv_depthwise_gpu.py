"""Depthwise convolution's gradients on a GPU: types, layouts and edges against float64, in guarded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from depthwise_cases import Depthwise, make
from guarded import OnDevice
from tolerance import assert_close

pytestmark = pytest.mark.gpu

b, h, f, d = "bfloat16", "float16", "float32", "float64"
BOTH = pytest.mark.parametrize("gradient", ["dX", "dW"])
LAYOUTS = pytest.mark.parametrize("last", [False, True], ids=["channels_first", "channels_last"])
SAME = {3: (1, 1, 1, 1), 5: (2, 2, 2, 2), 7: (3, 3, 3, 3)}


def run(case: Depthwise, times: int = 1) -> list[np.ndarray]:
    """The output of every candidate, each checked."""
    from gradkern.cuda.device import activate, device
    from gradkern.cuda.scratch import scratch
    from gradkern.ops.conv_grad.depthwise import candidates

    results = []
    which = device(0)
    for index in range(2):
        problem, arrays, out, expected = make(case)
        found = list(candidates(problem, which))
        if index >= len(found):
            break
        candidate = found[index]
        output = {"dX": "X", "dW": "W"}[case.gradient]
        with activate(which):
            there = {name: OnDevice(each) for name, each in arrays.items()}
            candidate.prepare()
            _, workspace = scratch(which, 0, candidate.workspace)
            inputs = there["dY"].address, there["W" if case.gradient == "dX" else "X"].address
            for _ in range(times):
                candidate(inputs, (there[output].address,), workspace, 0)
            for each in there.values():
                each.fetch()
                each.free()
        assert_close("ConvGrad", f"{case.gradient} of {candidate.name}", out, expected)
        results.append(np.array(out))
    return results


@BOTH
@LAYOUTS
@pytest.mark.parametrize("dtype", [b, h, f, d])
def test_every_type(gradient: str, last: bool, dtype: str) -> None:
    run(Depthwise(gradient, 3, 40, (14, 14), (7, 7), pads=SAME[7], dtype=dtype, channels_last=last))


@BOTH
@LAYOUTS
@pytest.mark.parametrize(("size", "kernel", "dtype"), [(56, 7, h), (7, 7, b), (28, 5, f), (30, 3, d)])
def test_every_size(gradient: str, last: bool, size: int, kernel: int, dtype: str) -> None:
    run(Depthwise(gradient, 3, 40, (size, size), (kernel,) * 2, pads=SAME[kernel], dtype=dtype, channels_last=last))


@BOTH
@LAYOUTS
@pytest.mark.parametrize(
    "how",
    [
        {"spatial": (56, 56), "kernel": (5, 5), "strides": (2, 2), "pads": (2, 2, 2, 2)},
        {"spatial": (113, 57), "kernel": (3, 3), "strides": (2, 2), "pads": (0, 1, 1, 0)},
        {"spatial": (19, 23), "kernel": (3, 5), "strides": (3, 1), "dilations": (2, 3), "pads": (1, 0, 4, 2)},
        {"spatial": (10, 10), "kernel": (2, 2), "strides": (3, 3)},
        {"spatial": (9, 17), "kernel": (3, 2), "strides": (4, 5)},
        {"spatial": (1, 8), "kernel": (1, 2), "strides": (2, 2), "pads": (1, 0, 1, 1)},
        {"spatial": (3, 4), "kernel": (7, 7), "pads": (3, 3, 3, 3)},
        {"spatial": (6, 5), "kernel": (2, 3), "pads": (4, 9, 3, 8)},
        {"spatial": (1, 1), "kernel": (1, 1)},
        {"spatial": (200,), "kernel": (9,), "dilations": (4,), "pads": (32, 0)},
        {"spatial": (16, 300), "kernel": (3, 3), "pads": (1, 1, 1, 1)},
        {"spatial": (224, 224), "kernel": (3, 3), "pads": (1, 1, 1, 1)},
    ],
    ids=lambda how: "x".join(map(str, how["spatial"])),
)
def test_every_geometry(gradient: str, last: bool, how: dict[str, Any]) -> None:
    run(Depthwise(gradient, 2, 5, dtype=h, channels_last=last, **how))


@BOTH
@LAYOUTS
@pytest.mark.parametrize("channels", [1, 17, 96])
def test_any_number_of_channels(gradient: str, last: bool, channels: int) -> None:
    run(Depthwise(gradient, 4, channels, (14, 14), (7, 7), pads=SAME[7], dtype=h, channels_last=last))


@BOTH
@LAYOUTS
@pytest.mark.parametrize("offset", [1, 4])
def test_arrays_that_start_anywhere_and_images_apart(gradient: str, last: bool, offset: int) -> None:
    how = {"dtype": h, "channels_last": last, "offset": offset, "spread": 5}
    run(Depthwise(gradient, 3, 8, (12, 12), (3, 3), pads=SAME[3], **how))


@BOTH
@LAYOUTS
def test_the_same_call_gives_the_same_bits(gradient: str, last: bool) -> None:
    case = Depthwise(gradient, 16, 32, (28, 28), (7, 7), pads=SAME[7], channels_last=last)
    for first, again in zip(run(case), run(case, times=5), strict=True):
        assert first.tobytes() == again.tobytes()
