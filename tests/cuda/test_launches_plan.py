"""Plans of several launches: each gets the arrays that its kernel names, and the scratch memory between them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gradkern.call import Call, Tensor
from gradkern.cuda import launches_plan
from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.ops.local_response_norm.cuda.plan import plan as local_response_norm
from gradkern.ops.pooling.cuda.plan import plan as pooling
from gradkern.policy import Policy
from gradkern.strides import c_strides


def call(operator: str, out: tuple[int, ...], **attributes: Any) -> Call:
    shape = (2, 3, 9, 8)
    X, D = (Tensor(np.dtype(np.float32), each, c_strides(each, 4), 16) for each in (shape, (2, 3, *out)))
    axes = {"N": 2, "C": 3, "spatial": shape[2:], "out": out}
    inputs, outputs = {"Input": X, "InputGradient": D}, {"OutputGradient": X}
    return Call(operator, inputs, outputs, attributes, axes, frozenset(), "cuda:0", Policy())


@pytest.mark.parametrize(
    ("plan", "what", "expected"),
    [
        (
            pooling,
            call(
                "DmlMaxPoolingGrad", (8, 7), WindowSize=(2, 2), Strides=(1, 1), Dilations=(1, 1), StartPadding=(0, 0),
                EndPadding=(0, 0),
            ),
            [[1, 1000], [2, 1000, 3]],
        ),
        (
            local_response_norm,
            call("DmlLocalResponseNormalizationGrad", (9, 8), CrossChannel=1, LocalSize=5, Alpha=1, Beta=1, Bias=1),
            [[1, 2, 1000, 1000 + 1792], [1, 1000, 1000 + 1792, 3]],  # 432 elements of 4 bytes, in whole 256 bytes
        ),
    ],
)  # fmt: skip
def test_each_launch_gets_its_arrays_and_scratch(
    plan: Any, what: Call, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dry_run(DryRunDevice(0, (9, 0), 132, 232448)):
        made = plan(what)
    assert isinstance(made, LaunchesPlan)
    assert [launch.changing for launch in made.launches] == list(map(len, expected))
    seen: list[Any] = []
    recorders: Any = tuple(lambda values, stream: seen.append(values) for _ in made.launches)
    monkeypatch.setattr(launches_plan, "scratch", lambda device, stream, size: (0, 1000))
    replace(made, launches=recorders)((1, 2), (3,), 7)
    assert seen == expected


def test_launches_without_places_take_all_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs, outputs, places in scratch memory and the stream's counter; no memory is taken without offsets."""
    seen: list[Any] = []
    launches: Any = [lambda values, stream: seen.append(values)] * 2
    device = DryRunDevice(0, (9, 0), 132, 232448)
    monkeypatch.setattr(launches_plan, "scratch", lambda device, stream, size: (77, 1000))
    LaunchesPlan("k", 64, tuple(launches), (), (0, 16), device, counted=True)((1, 2), (3,), 7)
    monkeypatch.delattr(launches_plan, "scratch")
    LaunchesPlan("k", 0, tuple(launches[:1]), (), (), device, counted=True)((1, 2), (3,), 7)
    assert seen == [(1, 2, 3, 1000, 1016, 77)] * 2 + [(1, 2, 3)]


def test_an_output_is_copied_behind_the_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    copy = SimpleNamespace(cuMemcpyDtoDAsync=lambda *what: seen.append(what))
    for name, value in (("driver", copy), ("activate", nullcontext), ("check", lambda status, what: None)):
        monkeypatch.setattr(launches_plan, name, value)
    launches: Any = (lambda values, stream: seen.append(values),)
    device = DryRunDevice(0, (9, 0), 132, 232448)
    plan = LaunchesPlan("k", 0, launches, ((0, 1),), (), device, copied=(1, 2, 40))
    plan((1,), (2, 3), 7)
    assert seen == [[1, 2], (3, 2, 40, 7)]
    assert not plan.REPEATABLE
