"""From a problem to its results: the candidates' launches, with the arguments they make, under the CUDA simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.batch_norm import INPUTS, OUTPUTS, case
from helpers.simulate_plans import addresses, arrays, device_in_python, tensors

from gradkern.call import Call
from gradkern.cuda.device import Device
from gradkern.ops.batch_norm.cuda import parts, streaming
from gradkern.ops.batch_norm.cuda.problem import Problem
from gradkern.policy import Policy
from gradkern.search.implementation import candidates_of


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return device_in_python(monkeypatch)


@pytest.mark.parametrize(
    ("outputs", "last"),
    [
        (OUTPUTS, False),
        (OUTPUTS[1:2], True),
        pytest.param(OUTPUTS, True, marks=pytest.mark.every_kernel),
        pytest.param(OUTPUTS[1:2], False, marks=pytest.mark.every_kernel),
        *(pytest.param(OUTPUTS[:1], last, marks=pytest.mark.every_kernel) for last in (False, True)),
    ],
)
def test_the_candidate_computes_the_gradients(device: Device, outputs: tuple[str, ...], last: bool) -> None:
    operands = case((40, 24, 5, 7), "float16", "float16", "float32")
    shapes = {name: (operands.shape(name), operands.kind(name)) for name in outputs}
    read, _ = arrays({name: operands.inputs[name] for name in INPUTS}, {}, last)
    _, write = arrays({}, shapes, last)
    (candidate,) = candidates_of(streaming, Problem(*tensors(read).values(), **tensors(write)), device)
    candidate.prepare()
    candidate(addresses(read), addresses(write), 0, 0)
    for held in (each[0] for each in (*read.values(), *write.values())):
        held.check()
    operands.check({name: array for name, (_, array, _) in write.items()})


def test_the_two_steps_of_a_batch_in_parts(device: Device) -> None:
    whole = case((30, 10, 16), "bfloat16", "float32", "float32")

    def step(outputs: dict[str, Any], part: slice, **more: Any) -> dict[str, np.ndarray]:
        names = INPUTS if "dX" in outputs else [name for name in INPUTS if name != "Scale"]
        given = {name: whole.inputs[name][part] if name in ("dY", "X") else whole.inputs[name] for name in names}
        attributes = {"count": more.pop("count")} if more else {}
        read, write = arrays({**given, **more}, outputs, False)
        plan = parts.plan(Call("", tensors(read), tensors(write), attributes, {}, frozenset(), "cuda:0", Policy()))
        plan(addresses(read), addresses(write), 0)
        return {name: array for name, (_, array, _) in write.items()}

    cuts, kind = (slice(0, 11), slice(11, 30)), whole.inputs["X"].dtype
    sums = [step(dict.fromkeys(OUTPUTS[1:], ((10,), np.float32)), part) for part in cuts]
    added = {name: sums[0][name] + sums[1][name] for name in OUTPUTS[1:]}
    halves = [step({"dX": ((part.stop - part.start, 10, 16), kind)}, part, **added, count=30 * 16) for part in cuts]
    whole.check({"dX": np.concatenate([each["dX"] for each in halves]), **added})
