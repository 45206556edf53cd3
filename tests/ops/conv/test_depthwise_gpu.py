"""Depthwise convolution and its gradients on a GPU: types, layouts and edges against float64, in guarded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.depthwise import Depthwise, make
from helpers.guarded import OnDevice
from helpers.tolerance import assert_close

pytestmark = pytest.mark.gpu

b, h, f, d = "bfloat16", "float16", "float32", "float64"
EACH = pytest.mark.parametrize("gradient", ["dX", "dW", "Y"])
LAYOUTS = pytest.mark.parametrize("last", [False, True], ids=["channels_first", "channels_last"])
SAME = {3: (1, 1, 1, 1), 5: (2, 2, 2, 2), 7: (3, 3, 3, 3)}


def run(case: Depthwise, times: int = 1, on_tensor_cores: bool = False) -> list[np.ndarray]:
    """The output of every candidate, each checked."""
    from gradkern.cuda.device import activate, get_device
    from gradkern.cuda.scratch import scratch
    from gradkern.ops.conv.cuda.depthwise import candidates, mma_candidates
    from gradkern.search.implementation import candidates_of

    results = []
    device = get_device(0)
    for candidate in candidates_of(mma_candidates if on_tensor_cores else candidates, make(case)[0], device):
        _, arrays, out, expected = make(case)
        output = {"dX": "X", "dW": "W", "Y": "dY"}[case.gradient]
        with activate(device):
            there = {name: OnDevice(each) for name, each in arrays.items()}
            candidate.prepare()
            _, workspace = scratch(device, 0, candidate.workspace)
            order = {"dX": ("dY", "W"), "dW": ("dY", "X"), "Y": ("X", "W", "B")}[case.gradient]
            inputs = tuple(there[name].address for name in order if name in there)
            for before in range(times):
                if before:
                    there[output].poison()
                candidate(inputs, (there[output].address,), workspace, 0)
            for each in there.values():
                each.fetch()
                each.free()
        assert_close("ConvGrad", f"{case.gradient} of {candidate.name}", out, expected)
        results.append(np.array(out))
    assert results
    return results


@EACH
@LAYOUTS
@pytest.mark.parametrize("dtype", [b, h, f, d])
def test_every_type(gradient: str, last: bool, dtype: str) -> None:
    run(Depthwise(gradient, 3, 40, (14, 14), (7, 7), pads=SAME[7], dtype=dtype, channels_last=last))


@EACH
@LAYOUTS
@pytest.mark.parametrize(("size", "kernel", "dtype"), [(56, 7, h), (7, 7, b), (28, 5, f), (30, 3, d)])
def test_every_size(gradient: str, last: bool, size: int, kernel: int, dtype: str) -> None:
    run(Depthwise(gradient, 3, 40, (size, size), (kernel,) * 2, pads=SAME[kernel], dtype=dtype, channels_last=last))


@EACH
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
        {"spatial": (9917,), "kernel": (3,), "strides": (2,), "pads": (1, 1)},  # rows that no block can have whole
        {"spatial": (16000,), "kernel": (31,), "pads": (15, 15)},
        {"spatial": (3, 6001), "kernel": (3, 5), "strides": (1, 3), "pads": (1, 4, 1, 0)},
        {"spatial": (10, 18, 18), "kernel": (3, 3, 3), "pads": (1,) * 6},
        {"spatial": (25, 20, 50), "kernel": (1, 1, 1), "strides": (2, 2, 2)},
        {"spatial": (9, 14, 30), "kernel": (5, 3, 3), "strides": (2, 1, 3), "dilations": (2, 3, 1), "pads": (4, 1) * 3},
        {"spatial": (2, 4, 4), "kernel": (5, 3, 3), "pads": (4, 1, 1, 2, 1, 1)},
        {"spatial": (6, 3, 1025), "kernel": (2, 3, 3), "strides": (3, 1, 1), "pads": (0, 1, 1, 0, 1, 1)},
    ],
    ids=lambda how: "x".join(map(str, how["spatial"])),
)
def test_every_geometry(gradient: str, last: bool, how: dict[str, Any]) -> None:
    run(Depthwise(gradient, 2, 5, dtype=h, channels_last=last, biased=gradient == "Y", **how))


@EACH
@LAYOUTS
@pytest.mark.parametrize("channels", [1, 17, 96])
def test_any_number_of_channels(gradient: str, last: bool, channels: int) -> None:
    run(Depthwise(gradient, 4, channels, (14, 14), (7, 7), pads=SAME[7], dtype=h, channels_last=last))


@EACH
@pytest.mark.parametrize("dtype", [b, f, d])
@pytest.mark.parametrize(("channels", "size", "kernel"), [(101, 28, 3), (102, 56, 3), (75, 14, 5), (13, 57, 3)])
def test_channels_that_make_no_vectors(gradient: str, dtype: str, channels: int, size: int, kernel: int) -> None:
    how = {"pads": SAME[kernel], "dtype": dtype, "channels_last": True, "biased": gradient == "Y"}
    run(Depthwise(gradient, 3, channels, (size, size), (kernel,) * 2, **how), times=2)
    run(Depthwise(gradient, 2, channels, (size, size), (kernel,) * 2, (2, 2), offset=1, spread=3, **how))


@EACH
@pytest.mark.parametrize("dtype", [b, h])
@pytest.mark.parametrize(
    "how",
    [
        {"channels": 96, "spatial": (56, 56), "kernel": (3, 3), "pads": SAME[3]},
        {"channels": 104, "spatial": (28, 28), "kernel": (3, 3), "pads": SAME[3], "spread": 6},
        {"channels": 34, "spatial": (19, 19), "kernel": (3, 3), "pads": (0, 1, 2, 0), "offset": 2},
        {"channels": 576, "spatial": (7, 7), "kernel": (3, 3), "dilations": (2, 3), "pads": (2, 3, 2, 3)},
        {"channels": 50, "spatial": (150,), "kernel": (9,), "pads": (4, 4), "offset": 4},
        {"channels": 70, "spatial": (5, 12, 14), "kernel": (3, 3, 3), "pads": (1,) * 6},
    ],
    ids=lambda how: f"{how['channels']}x{'x'.join(map(str, how['spatial']))}",
)
def test_two_channels_a_thread(gradient: str, dtype: str, how: dict[str, Any]) -> None:
    case = Depthwise(gradient, 3, dtype=dtype, channels_last=True, biased=gradient == "Y", **how)
    run(case, times=2)


@EACH
@LAYOUTS
@pytest.mark.parametrize("offset", [1, 4])
def test_arrays_that_start_anywhere_and_images_apart(gradient: str, last: bool, offset: int) -> None:
    how = {"dtype": h, "channels_last": last, "offset": offset, "spread": 5}
    run(Depthwise(gradient, 3, 8, (12, 12), (3, 3), pads=SAME[3], **how))


@EACH
@LAYOUTS
def test_the_same_call_gives_the_same_bits(gradient: str, last: bool) -> None:
    case = Depthwise(gradient, 16, 32, (28, 28), (7, 7), pads=SAME[7], channels_last=last)
    for first, again in zip(run(case), run(case, times=5), strict=True):
        assert first.tobytes() == again.tobytes()


@EACH
@LAYOUTS
@pytest.mark.parametrize("dtype", [b, h, f, d])
def test_three_axes_in_every_type(gradient: str, last: bool, dtype: str) -> None:
    run(Depthwise(gradient, 3, 40, (6, 14, 14), (3, 3, 3), (1, 2, 2), pads=(1,) * 6, dtype=dtype, channels_last=last))
    run(Depthwise(gradient, 9, 24, (4, 9, 7), (3, 5, 5), pads=(1, 2, 2) * 2, dtype=dtype, channels_last=last), times=3)


NETWORK_LAYERS = [  # images, channels, rows and columns, rows and columns of taps
    (5, 96, (56, 56), 7),
    (9, 40, (28, 28), 7),
    (64, 64, (14, 14), 7),
    (65, 48, (7, 7), 7),
    (3, 240, (28, 28), 5),
    (33, 72, (14, 14), 5),
]


@pytest.mark.parametrize("dtype", [b, h])
@pytest.mark.parametrize(
    ("images", "channels", "size", "kernel"),
    [
        *NETWORK_LAYERS,
        (4, 16, (13, 21), 3),
        (2, 8, (31, 63), 3),
        (1, 8, (5, 3), 3),
    ],
    ids=lambda each: str(each).replace(" ", ""),
)
def test_tensor_cores(dtype: str, images: int, channels: int, size: tuple[int, int], kernel: int) -> None:
    case = Depthwise("dW", images, channels, size, (kernel,) * 2, pads=SAME[kernel], dtype=dtype, channels_last=True)
    run(case, on_tensor_cores=True)


@pytest.mark.parametrize(
    "how",
    [
        {"spatial": (9, 20), "kernel": (8, 9), "pads": (7, 0, 0, 8)},
        {"spatial": (12, 30), "kernel": (2, 4)},
        {"spatial": (17, 11), "kernel": (6, 1), "pads": (0, 2, 9, 1)},
        {"spatial": (4, 9), "kernel": (1, 1)},
        {"spatial": (3, 4), "kernel": (7, 7), "pads": (3, 3, 3, 3)},
        {"spatial": (10, 10), "kernel": (3, 3), "pads": (1, 1, 1, 1), "spread": 8},
    ],
    ids=lambda how: "x".join(map(str, how["spatial"])),
)
def test_tensor_cores_on_every_geometry(how: dict[str, Any]) -> None:
    run(Depthwise("dW", 7, 24, dtype=h, channels_last=True, **how), on_tensor_cores=True)


def test_tensor_cores_give_the_same_bits() -> None:
    case = Depthwise("dW", 64, 32, (28, 28), (7, 7), pads=SAME[7], dtype=b, channels_last=True)
    for again in range(2, 12):
        for first, other in zip(run(case, on_tensor_cores=True), run(case, again, on_tensor_cores=True), strict=True):
            assert first.tobytes() == other.tobytes()


def test_tensor_cores_leave_other_channels_alone_where_one_has_an_infinity() -> None:
    """Compared with float64 where it is finite."""
    import torch
    from torch.nn.grad import conv2d_weight

    import gradkern

    X, dY = (torch.randn(3, 14, 14, 32, device="cuda").half().permute(0, 3, 1, 2) for _ in range(2))
    W = torch.zeros(32, 1, 7, 7, device="cuda").half()
    X[1, 5, 3, 3] = float("inf")
    settings = {"pads": [3] * 4, "group": 32, "outputs": ["dW"]}
    dW = gradkern.run("ConvGrad", dY, X, W, policy={"kernel": "depthwise_mma_32_channels"}, **settings).dW
    exact = conv2d_weight(X.double(), W.shape, dY.double(), padding=3, groups=32)
    others = [channel for channel in range(32) if channel != 5]
    assert not torch.isfinite(dW[5]).all()
    assert (dW[others].double() - exact[others]).norm() <= 3e-4 * exact[others].norm()


@pytest.mark.parametrize("gradient", ["dX", "Y"])
@pytest.mark.parametrize("dtype", [b, h])
@pytest.mark.parametrize(
    ("images", "channels", "size", "kernel"),
    [
        *NETWORK_LAYERS,
        (2, 32, (112, 112), 3),
        (3, 24, (9, 128), 3),
    ],
)
def test_outputs_on_tensor_cores(
    gradient: str, dtype: str, images: int, channels: int, size: tuple[int, int], kernel: int
) -> None:
    how = {"pads": SAME[kernel], "dtype": dtype, "channels_last": True, "biased": gradient == "Y"}
    case = Depthwise(gradient, images, channels, size, (kernel,) * 2, **how)
    run(case, times=3, on_tensor_cores=True)


@pytest.mark.parametrize("gradient", ["dX", "Y"])
@pytest.mark.parametrize(
    "how",
    [
        {"spatial": (19, 23), "kernel": (3, 5), "pads": (1, 0, 1, 4)},
        {"spatial": (1, 8), "kernel": (1, 2), "pads": (0, 1, 0, 1)},
        {"spatial": (30, 50), "kernel": (8, 9), "pads": (7, 8, 0, 0)},
        {"spatial": (100,), "kernel": (9,), "pads": (4, 4)},
        {"spatial": (10, 10), "kernel": (3, 3), "pads": (1, 1, 1, 1), "spread": 8},
    ],
    ids=lambda how: "x".join(map(str, how["spatial"])),
)
def test_outputs_on_tensor_cores_on_every_geometry(gradient: str, how: dict[str, Any]) -> None:
    run(Depthwise(gradient, 7, 24, dtype=h, channels_last=True, **how), on_tensor_cores=True)


def test_outputs_on_tensor_cores_beside_an_infinity_are_what_they_were() -> None:
    """In other channels, images, and rows and columns that are farther away than a window."""
    import torch

    import gradkern

    X, W = torch.randn(3, 32, 20, 56, device="cuda").half(), torch.randn(32, 1, 7, 7, device="cuda").half()
    X = X.to(memory_format=torch.channels_last)
    settings = {"pads": [3] * 4, "group": 32, "policy": {"kernel": "depthwise_mma_32_channels_4_rows"}}
    before = gradkern.run("Conv", X, W, **settings).Y
    X[1, 5, 10, 30] = float("inf")
    after = gradkern.run("Conv", X, W, **settings).Y
    near = torch.zeros_like(after, dtype=torch.bool)
    near[1, 5, 7:14, 30 - 15 : 30 + 16] = True
    assert not torch.isfinite(after[1, 5, 7:14, 27:34]).any()
    assert torch.equal(after[~near], before[~near])
