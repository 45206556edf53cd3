"""dW of a convolution of few channels on tensor cores of a GPU: against float64, in guarded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.few_channels import FewChannels, make
from helpers.guarded import OnDevice
from helpers.tolerance import assert_close

pytestmark = pytest.mark.gpu

b, h = "bfloat16", "float16"
STEM = (7, 7), (2, 2), (3, 3, 3, 3)


def run(case: FewChannels, times: int = 1) -> np.ndarray:
    """dW, checked."""
    from gradkern.cuda.device import activate, get_device
    from gradkern.cuda.scratch import scratch
    from gradkern.ops.conv.cuda.few_channels import candidates
    from gradkern.search.implementation import candidates_of

    device = get_device(0)
    problem, arrays, out, expected = make(case)
    (candidate,) = candidates_of(candidates, problem, device)
    with activate(device):
        there = {name: OnDevice(each) for name, each in arrays.items()}
        candidate.prepare()
        _, workspace = scratch(device, 0, candidate.workspace)
        for before in range(times):
            if before:
                there["W"].poison()
            candidate((there["dY"].address, there["X"].address), (there["W"].address,), workspace, 0)
        for each in there.values():
            each.fetch()
            each.free()
    assert_close("ConvGrad", "dW", out, expected)
    return np.array(out)


@pytest.mark.parametrize("dtype", [b, h])
@pytest.mark.parametrize(
    "how",
    [
        (4, 3, 64, (224, 224), *STEM),
        (9, 3, 64, (63, 61), *STEM),
        (4, 3, 32, (64, 64), (3, 3), (2, 2), (1, 1, 1, 1)),
        (3, 3, 96, (64, 64), (4, 4), (4, 4), (0, 0, 0, 0)),
        (2, 1, 8, (28, 28), (5, 5), (1, 1), (2, 2, 2, 2)),
        (3, 7, 136, (17, 19), (3, 2), (1, 3), (1, 0, 0, 2)),
        (2, 4, 72, (9, 300), (8, 8), (1, 1), (4, 3, 4, 3)),
        (300, 3, 16, (5, 6), (3, 3), (1, 1), (1, 1, 1, 1)),
        (5, 3, 32, (299, 299), (3, 3), (2, 2), (0, 0, 0, 0)),
        (3, 3, 64, (50, 224), (3, 3), (1, 1), (1, 1, 1, 1)),
        (3, 5, 24, (31, 38), (2, 2), (3, 4), (0, 0, 0, 0)),
    ],
    ids=lambda how: "x".join(map(str, how[:4])).replace(" ", ""),
)
def test_every_geometry(dtype: str, how: tuple[Any, ...]) -> None:
    run(FewChannels(*how, dtype=dtype))


def test_images_apart_and_a_filter_of_another_order() -> None:
    run(FewChannels(3, 3, 16, (14, 18), (3, 3), (1, 1), (1, 1, 1, 1), h, spread=8, filters_last=False))


def test_the_same_call_gives_the_same_bits() -> None:
    case = FewChannels(16, 3, 64, (56, 56), (7, 7), (2, 2), (3, 3, 3, 3), b)
    assert run(case).tobytes() == run(case, times=5).tobytes()


def test_sums_of_one_sign_lose_nothing_to_the_tensor_cores() -> None:
    """Which cut off where others round: here nothing cancels."""
    import torch
    from torch.nn.grad import conv2d_weight

    import gradkern

    X = torch.rand(64, 112, 112, 3, device="cuda").half().permute(0, 3, 1, 2)
    dY = (torch.rand(64, 56, 56, 64, device="cuda") / 1024).half().permute(0, 3, 1, 2)
    W = torch.zeros(64, 3, 7, 7, device="cuda").half().to(memory_format=torch.channels_last)
    settings = {"pads": [3] * 4, "strides": [2, 2], "outputs": ["dW"], "policy": {"kernel": "few_channels"}}
    dW = gradkern.run("ConvGrad", dY, X, W, **settings).dW
    exact = conv2d_weight(X.double(), W.shape, dY.double(), stride=2, padding=3)
    assert (dW.double() - exact).norm() <= 3e-4 * exact.norm()
