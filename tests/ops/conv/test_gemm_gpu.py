"""ConvGrad's matrix products on a GPU: every candidate of every shape, type and layout against float64, guarded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.capture import Capture
from helpers.conv_gemm import Setting, Shape, setting
from helpers.guarded import Guarded, OnDevice
from helpers.tolerance import CONV_NORM, assert_close

pytestmark = pytest.mark.gpu

NHWC = ("nhwc", "nhwc", "nhwc")
SHAPES = [
    Shape(9, 1, 24, 40, (14, 14), (1, 1)),
    Shape(9, 1, 24, 40, (14, 14), (1, 1), layouts=NHWC),
    Shape(5, 4, 16, 8, (7, 7), (1, 1)),
    Shape(5, 4, 16, 8, (7, 7), (1, 1), layouts=NHWC),
    Shape(5, 1, 33, 17, (15, 13), (3, 3), begin=(1, 1), end=(1, 1)),
    Shape(5, 1, 32, 24, (15, 13), (3, 3), begin=(1, 1), end=(1, 1), layouts=NHWC),
    Shape(5, 2, 32, 24, (15, 13), (3, 3), begin=(2, 0), end=(1, 1), layouts=NHWC),
    Shape(3, 1, 33, 17, (15, 13), (3, 3), strides=(2, 2), begin=(1, 1), end=(1, 1)),
    Shape(3, 1, 32, 24, (16, 14), (1, 1), strides=(2, 2)),
    Shape(3, 1, 32, 24, (16, 14), (1, 1), strides=(2, 2), layouts=NHWC),
    Shape(3, 1, 3, 64, (32, 32), (4, 4), strides=(4, 4)),
    Shape(3, 1, 3, 64, (32, 32), (4, 4), strides=(4, 4), layouts=NHWC),
    Shape(4, 1, 48, 32, (301,), (5,), dilations=(3,), begin=(12,), end=(0,)),
    Shape(1, 1, 16, 24, (6, 11, 9), (3, 3, 3), begin=(1, 1, 1), end=(1, 1, 1)),
    Shape(2, 1, 16, 24, (6, 11, 9), (3, 2, 3), strides=(1, 2, 1), layouts=NHWC),
    Shape(3, 1, 12, 10, (9, 8), (3, 3), begin=(1, 1), end=(1, 1), layouts=("gaps", "gaps", "gaps")),
    Shape(3, 1, 12, 10, (9, 8), (3, 3), begin=(1, 1), end=(1, 1), layouts=("nhwc", "nchw", "nchw")),
]


class Running:
    """A setting on the GPU, for one candidate."""

    def __init__(self, given: Setting, candidate: Any) -> None:
        from gradkern.cuda.device import get_device

        self.given, self.candidate, self.device = given, candidate, get_device(0)
        candidate.prepare()
        self.scratch = OnDevice(Guarded((candidate.workspace + 256,), np.uint8))
        self.operands = [OnDevice(each) for each in given.held]

    def __call__(self, stream: int = 0) -> None:
        first, second, output = (each.address for each in self.operands)
        self.candidate((first, second), (output,), -(-self.scratch.address // 256) * 256, stream)

    def result(self) -> np.ndarray:
        for each in (*self.operands, self.scratch):
            each.fetch()
        return self.given.arrays[2].copy()

    def free(self) -> None:
        for each in (*self.operands, self.scratch):
            each.free()


def all_of(shape: Shape, gradient: str, dtype: str, offset: int = 0) -> int:
    """Run every candidate twice; how many there were."""
    from gradkern.cuda.device import activate, get_device
    from gradkern.ops.conv.cuda.gemm import candidates
    from gradkern.ops.conv.cuda.gemm.candidates import build
    from gradkern.search.implementation import candidates_of

    with activate(get_device(0)):
        names = list(candidates_of(candidates, setting(shape, gradient, dtype, offset=offset).problem, get_device(0)))
        for each in names:
            given = setting(shape, gradient, dtype, offset=offset)
            running = Running(given, build(given.problem, get_device(0), each.recipe))
            running()
            first = running.result()
            if "tf32" in each.notes:
                error = np.linalg.norm(first - given.expected) / np.linalg.norm(given.expected)
                assert error <= 1e-3, each.name
            else:
                assert_close("ConvGrad", f"{gradient} by {each.name}", first, given.expected)
            running.operands[2].poison()
            running()
            assert running.result().tobytes() == first.tobytes(), f"{each.name}: other bits"
            running.free()
    return len(names)


@pytest.mark.parametrize("gradient", ["dX", "dW"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_candidate_is_right_and_repeats_its_bits(shape: Shape, gradient: str) -> None:
    assert all_of(shape, gradient, "float32") >= 2


@pytest.mark.parametrize("gradient", ["dX", "dW"])
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_every_type(dtype: str, gradient: str) -> None:
    for shape in (SHAPES[0], SHAPES[1], SHAPES[4], SHAPES[5], SHAPES[7]):
        assert all_of(shape, gradient, dtype) >= 1


@pytest.mark.parametrize("gradient", ["dX", "dW"])
def test_arrays_may_begin_anywhere(gradient: str) -> None:
    for shape in (SHAPES[1], SHAPES[4], SHAPES[5]):
        assert all_of(shape, gradient, "float16", offset=1) >= 1


def test_short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradkern.ops.conv.cuda.gemm.candidates.SLICE", 1 << 18)
    monkeypatch.setattr("gradkern.ops.conv.cuda.gemm.candidates.SMALLER", 1 << 16)
    for gradient in ("dX", "dW"):
        for shape in (SHAPES[4], SHAPES[5], SHAPES[7], SHAPES[13]):
            assert all_of(shape, gradient, "float32") >= 2


def test_a_call_can_be_captured_and_replayed() -> None:
    from helpers.driver import driver

    from gradkern.cuda.device import activate, check, get_device
    from gradkern.ops.conv.cuda.gemm.candidates import build

    with activate(get_device(0)):
        given = setting(SHAPES[4], "dX", "float32")
        running = Running(given, build(given.problem, get_device(0), {"kind": "columns", "slice_bytes": 1 << 18}))
        capture = Capture(mode="THREAD_LOCAL")
        running(capture.stream)  # makes this thread's handle
        check(driver.cuStreamSynchronize(capture.stream), "waiting")
        with capture:
            running(capture.stream)
        capture.replay(times=2, before=running.operands[2].poison)
        assert_close("ConvGrad", "dX", running.result(), given.expected)
        running.free()


@pytest.mark.slow
def test_more_than_2_to_the_31_elements() -> None:
    """A 1x3 convolution whose X has 2^31 elements and some: both gradients, looked at where they are known."""
    torch = pytest.importorskip("torch")
    from helpers.conv_problems import conv_problem

    from gradkern.call import Tensor
    from gradkern.cuda.device import activate, get_device
    from gradkern.ops.conv.cuda.gemm import candidates
    from gradkern.search.implementation import candidates_of

    images, channels, length = 3, 64, 11_200_001
    X = torch.randn(images, channels, length, device="cuda", dtype=torch.float16)
    dY = torch.zeros(images, 8, length, device="cuda", dtype=torch.float16)
    where = [(0, 5), (1, length - 2), (2, length - 1)]
    for image, place in where:
        dY[image, :, place] = torch.randn(8, device="cuda").half()
    W = torch.randn(8, channels, 3, device="cuda").half()
    item = np.dtype("float16")

    def described(array: Any) -> Tensor:
        return Tensor(item, tuple(array.shape), tuple(2 * each for each in array.stride()), 16)

    with activate(get_device(0)):
        problem = conv_problem("dW", described(dY), described(X), described(W), 1, (1,), (1,), (1,), (1,))
        padded = {place: torch.zeros(channels, 3, device="cuda", dtype=torch.float64) for place in where}
        for (image, place), seen in padded.items():
            for tap in range(3):
                if 0 <= place + tap - 1 < length:
                    seen[:, tap] = X[image, :, place + tap - 1].double()
        dW: Any = sum(dY[image, :, place].double()[:, None, None] * seen for (image, place), seen in padded.items())
        for gradient, inputs, output in (("dW", (dY, X), W.clone()), ("dX", (dY, W), torch.empty_like(X))):
            for each in candidates_of(candidates, replace(problem, gradient=gradient), get_device(0)):
                each.prepare()
                scratch = torch.full((each.workspace + 256,), 255, device="cuda", dtype=torch.uint8)
                output.fill_(float("nan"))
                aligned = -(-scratch.data_ptr() // 256) * 256
                each(tuple(a.data_ptr() for a in inputs), (output.data_ptr(),), aligned, 0)
                torch.cuda.synchronize()
                if gradient == "dW":
                    assert (output.double() - dW).norm() <= CONV_NORM["float16"] * dW.norm(), each.name
                    continue
                for image, place in where:
                    here = (dY[image, :, place].double()[:, None] * W[:, :, 1].double()).sum(0)
                    if image == 2:  # its neighbour is no upstream of another
                        assert (output[image, :, place].double() - here).norm() <= CONV_NORM["float16"] * here.norm(), (
                            each.name
                        )
                assert int(output[1, :, : length - 8].count_nonzero()) == 0, each.name
