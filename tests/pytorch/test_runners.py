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

    from gradkern.torch.overrides import runners
    from gradkern.torch.overrides.request import Constant

    made = torch.zeros(4)
    kind = SimpleNamespace(stream=lambda: 7, maker=lambda tensor: lambda stream: (made, made.data_ptr()))
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
