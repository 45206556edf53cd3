"""Plans of several launches: each gets the arrays that its kernel names, and the scratch memory between them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gradkern.call import Call, Tensor
from gradkern.cuda import launches_plan
from gradkern.cuda.dry_run import DryRunDevice, dry_run
from gradkern.cuda.launches_plan import LaunchesPlan
from gradkern.ops.local_response_norm.cuda.plan import plan as local_response_norm
from gradkern.ops.pooling.cuda.directml import plan as pooling
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
