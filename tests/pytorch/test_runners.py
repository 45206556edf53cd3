"""What answers a call on a GPU, tried with host tensors in place of its own: which addresses a plan is given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.torch
pytest.importorskip("torch")


def test_a_plan_gets_its_inputs_in_order_with_constants_and_without_what_it_does_not_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    from gradkern.torch.aten.request import Constant
    from gradkern.torch.overrides import runners

    made = torch.zeros(4)
    kind = SimpleNamespace(stream=lambda: 7, allocator=lambda tensors: lambda: [made])
    monkeypatch.setattr(runners, "device_arrays", lambda: SimpleNamespace(torch_kind=lambda index: kind))
    zeros = torch.zeros(64)
    monkeypatch.setattr(runners, "_address", lambda constant, device: zeros.data_ptr())
    grad, x, unused = (torch.zeros(64) for _ in range(3))
    given = [each.data_ptr() for each in (grad, x, unused)]
    constant = Constant(0.0, (64,), torch.float32)
    for sources, expected in (
        ((0, 1), given[:2]),
        ((1, 0), [given[1], given[0]]),
        ((0, 1, constant), [*given[:2], zeros.data_ptr()]),
        ((constant, 2), [zeros.data_ptr(), given[2]]),
    ):
        asked: Any = SimpleNamespace(
            device="cuda:0",
            outputs=(("dX", SimpleNamespace(place=0, tensor=None)),),
            results=1,
            sources=sources,
        )
        runs: list[Any] = []
        plan: Any = lambda *call, runs=runs: runs.append(call)  # noqa: E731
        run = runners.runner(asked, plan, ("dX",))
        tensors = (grad, x, unused)
        if any(address % 16 for address in given):
            pytest.skip("PyTorch's allocator aligned to less than 16 bytes")
        assert run(tensors) is made
        assert runs == [(tuple(expected), (made.data_ptr(),), 7)]


def test_results_come_in_atens_order_and_none_where_nothing_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from gradkern.torch.overrides import runners

    made = [torch.zeros(4), torch.zeros(5)]
    kind = SimpleNamespace(stream=lambda: 7, allocator=lambda tensors: lambda: made.copy())
    monkeypatch.setattr(runners, "device_arrays", lambda: SimpleNamespace(torch_kind=lambda index: kind))
    outputs = tuple((name, SimpleNamespace(place=place, tensor=None)) for name, place in (("dX", 2), ("dB", 0)))
    asked: Any = SimpleNamespace(device="cuda:0", outputs=outputs, results=4, sources=(0, 1))
    runs: list[Any] = []
    plan: Any = lambda *call: runs.append(call)  # noqa: E731
    tensors = torch.zeros(64), torch.zeros(64)
    found = runners.runner(asked, plan, ("dX", "dB"))(tensors)
    if any(each.data_ptr() % 16 for each in tensors):
        pytest.skip("PyTorch's allocator aligned to less than 16 bytes")
    assert [each is one for each, one in zip(found, (made[1], None, made[0], None), strict=True)] == [True] * 4
    assert runs[0][1] == tuple([each.data_ptr() for each in made])  # in the plan's order
