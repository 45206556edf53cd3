"""dB as sums over channels: which arrays it takes, and that its kernel compiles. Batch norms test the sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from helpers.conv_problems import bias_problem, conv_problem

from gradkern.call import Refusal, Tensor
from gradkern.cuda.compile import compile_kernel
from gradkern.cuda.device import Device
from gradkern.kernels.channels import streaming_plan
from gradkern.kernels.channels.streaming_tiling import ARGUMENTS
from gradkern.ops.conv.cuda import bias
from gradkern.ops.conv.cuda.problem import Problem
from gradkern.search.implementation import candidates_of


def tensor(array: np.ndarray) -> Tensor:
    return Tensor(array.dtype, array.shape, array.strides, 16)


def problem(dY: np.ndarray) -> Problem:
    return bias_problem(tensor(dY), tensor(np.empty(dY.shape[1], dY.dtype)))


class _Launched:
    """Stands for a launch, on a machine without a device: the kernel is compiled, and the call is kept."""

    def __init__(self, config: Any, given: list[str]) -> None:
        from gradkern.kernels.channels.streaming_kernel import build

        self.compiled = compile_kernel(
            build(config), len(ARGUMENTS), (9, 0), config.threads, config.blocks_per_processor
        )
        self.given = given


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device(0, (9, 0), 132, 232448)
    monkeypatch.setattr(streaming_plan, "device_of", lambda _call: device)
    monkeypatch.setattr(streaming_plan, "_launch", lambda config, _walk, _device, given, *_: _Launched(config, given))
    return device


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("dtype", "last"),
    [
        ("float16", False),
        pytest.param("float64", True, marks=pytest.mark.every_kernel),
        pytest.param("float16", True, marks=pytest.mark.every_kernel),
        pytest.param("float64", False, marks=pytest.mark.every_kernel),
    ],
)
def test_its_kernel_compiles_and_asks_for_scratch_memory(device: Device, last: bool, dtype: str) -> None:
    dY = np.empty((8, 28, 28, 64), dtype).transpose(0, 3, 1, 2) if last else np.empty((8, 64, 28, 28), dtype)
    (candidate,) = candidates_of(bias, problem(dY), device)
    candidate.prepare()
    alone: Any = candidate.alone
    (launched,) = alone.launches
    assert launched.given == ["D", "bias_sum", "partial", "counter"]
    assert launched.compiled.spilled == 0
    assert candidate.workspace >= 64 * 4
    assert bias.build(problem(dY), device, candidate.recipe).name == candidate.name


def test_arrays_with_gaps_are_refused(device: Device) -> None:
    (candidate,) = candidates_of(bias, problem(np.empty((4, 8, 6, 6), "float32")[..., ::2]), device)
    with pytest.raises(Refusal):
        candidate.prepare()


def test_other_gradients_are_unfit(device: Device) -> None:
    dY = tensor(np.empty((2, 4, 3), "float32"))
    with pytest.raises(Refusal, match="dB"):
        next(candidates_of(bias, conv_problem("dX", dY, dY, dY), device))
