"""From a batch norm to launches of its own kernel, on a machine without a device: which passes, with what, or none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda import launches_plan
from gradkern.cuda.device import Device
from gradkern.cuda.rows import EmptyPlan
from gradkern.kernels.channels import streaming_plan
from gradkern.ops.batch_norm.cuda import parts, streaming
from gradkern.ops.batch_norm.cuda.problem import Problem
from gradkern.policy import Policy
from gradkern.search.implementation import candidates_of

COUNTER, WORKSPACE = 7, 1 << 20
SUMS = ("dScale", "dBias")


def tensor(array: np.ndarray) -> Tensor:
    return Tensor(array.dtype, array.shape, array.strides, 16)


def problem(*outputs: str, data: np.ndarray | None = None) -> Problem:
    X = tensor(np.empty((32, 64, 14, 14), "float16") if data is None else data)
    parameter = tensor(np.empty(X.shape[1], "float32"))
    wanted: dict[str, Any] = {name: X if name == "dX" else parameter for name in outputs}
    return Problem(X, X, parameter, parameter, parameter, **wanted)


class Launched:
    """Stands for a launch: its config, and the values it is called with, by the kernel's names."""

    def __init__(self, config: Any, given: list[str], numbers: dict[str, int], then: Any) -> None:
        self.config, self.given, self.elements, self.then = config, given, numbers["elements"], then
        self.values: dict[str, int] = {}

    def __call__(self, values: tuple[int, ...], stream: int) -> None:
        self.values = dict(zip(self.given, values, strict=True))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device(0, (9, 0), 132, 232448)
    made: list[Launched] = []

    def launch(
        config: Any,
        _walk: Any,
        _device: Any,
        given: list[str],
        _adding: bool,
        numbers: dict[str, int],
        then: Any = None,
    ) -> Any:
        made.append(Launched(config, given, numbers, then))
        return made[-1]

    monkeypatch.setattr(streaming_plan, "device_of", lambda _call: device)
    monkeypatch.setattr(streaming_plan, "_launch", launch)
    monkeypatch.setattr(launches_plan, "scratch", lambda _device, _stream, _size: (COUNTER, WORKSPACE))
    return device


def launched(candidate: Any, outputs: int) -> Any:
    """The launch of a call whose inputs are at 1, 2, 3, ... and whose outputs are at 11, 12, ..."""
    candidate.prepare()
    candidate(tuple(range(1, 6)), tuple(range(11, 11 + outputs)), 0, 0)
    return candidate.alone.launches[0]


def test_both_passes_are_one_launch(device: Device) -> None:
    (candidate,) = candidates_of(streaming, problem("dX", *SUMS), device)
    launch = launched(candidate, 3)
    assert launch.config.totals
    assert launch.config.outputs == {"scale_sum", "bias_sum"}
    assert (launch.then.outputs, launch.then.centred, launch.then.backward) == ({"dX"}, True, True)
    assert launch.elements == 32 * 14 * 14
    named = ("D", "X", "scale", "mean", "deviation", "dX", "scale_sum", "bias_sum", "counter")
    assert [launch.values[name] for name in named] == [1, 2, 3, 4, 5, 11, 12, 13, COUNTER]
    places = sorted(launch.values[name] for name in ("partial", "scale_total", "bias_total"))
    assert places[0] >= WORKSPACE
    assert places[-1] + 64 * 4 <= WORKSPACE + candidate.workspace
    assert min(np.diff(places)) >= 64 * 4
    assert streaming.build(problem("dX", *SUMS), device, candidate.recipe).name == candidate.name


def test_its_ring_fills_the_shared_memory_and_fits(device: Device) -> None:
    (candidate,) = candidates_of(streaming, problem("dX"), device)
    launch = launched(candidate, 1)
    config = launch.config
    blocks = config.blocks_per_processor
    assert config.held_rows > 0
    assert launch.then.reuses_ring
    assert (
        blocks * (config.shared_bytes + 1024)
        <= device.shared_bytes + 1024
        < blocks * (config.shared_bytes + config.stage_bytes + 1024)
    )


def test_sums_alone_are_one_pass(device: Device) -> None:
    (candidate,) = candidates_of(streaming, problem("dBias"), device)
    launch = launched(candidate, 1)
    assert (launch.config.outputs, launch.config.totals, launch.then) == ({"bias_sum"}, False, None)


def test_channels_last_is_taken_as_it_lies(device: Device) -> None:
    data = np.empty((8, 28, 28, 64), "float16").transpose(0, 3, 1, 2)
    (one,) = candidates_of(streaming, problem("dX", data=data), device)
    launch = launched(one, 1)
    assert launch.config.columns


def test_arrays_with_gaps_are_refused(device: Device) -> None:
    (candidate,) = candidates_of(streaming, problem("dX", data=np.empty((4, 8, 6, 6), "float32")[..., ::2]), device)
    with pytest.raises(Refusal):
        candidate.prepare()


def part(outputs: list[str], images: int = 4, parts: int = 0, **attributes: int) -> Call:
    """A call of one of the two steps of a batch in parts. parts: how many counts there are."""
    X, statistic = (tensor(np.empty(shape, "float32")) for shape in ((images, 6, 10), (6,)))
    names = ["saved_mean", "saved_inv_std"] if outputs != ["dX"] else ["Scale", "saved_mean", "saved_inv_std", *SUMS]
    inputs = {"dY": X, "X": X, **dict.fromkeys(names, statistic)}
    if parts:
        inputs["counts"] = tensor(np.empty(parts, "float32"))
    results = {name: X if name == "dX" else statistic for name in outputs}
    return Call("", inputs, results, attributes, {"parts": parts}, frozenset(), "cuda:0", Policy())


def test_a_part_has_its_sums_in_one_pass_and_its_gradient_in_another(device: Device) -> None:
    sums: Any = parts.plan(part([*SUMS]))
    assert sums.launches[0].given == ["D", "X", "mean", "deviation", "scale_sum", "bias_sum", "partial", "counter"]
    assert (sums.launches[0].config.totals, sums.launches[0].then) == (False, None)
    assert sums.scratch > 0
    gradient: Any = parts.plan(part(["dX"], count=999))
    read = ["D", "X", "scale", "mean", "deviation", "scale_total", "bias_total"]
    assert gradient.launches[0].given == [*read, "dX"]
    assert (gradient.launches[0].config.centred, gradient.launches[0].elements) == (True, 999)
    assert (gradient.scratch, gradient.launches[0].config.sums, gradient.launches[0].then) == (0, 0, None)
    counted: Any = parts.plan(part(["dX"], parts=4))
    assert counted.launches[0].given == [*read, "counts", "dX"]
    assert (counted.launches[0].config.counted, counted.launches[0].elements) == (True, 4)


def test_the_sums_of_an_empty_part_are_zero(device: Device) -> None:
    empty = parts.plan(part([*SUMS], images=0))
    assert isinstance(empty, EmptyPlan)
    assert empty.sizes == (24, 24)
