"""Local response normalization's gradient: against PyTorch, and its kernels on every architecture."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.compiled import HOPPER, OTHERS, SHARED_MEMORY, made_of

import gradkern
from gradkern.call import Call, Tensor
from gradkern.ops.local_response_norm.windows import Windows
from gradkern.policy import Policy
from gradkern.strides import end_to_end

DML = "DmlLocalResponseNormalizationGrad"


@pytest.mark.torch
@pytest.mark.parametrize("last", [False, True])
def test_it_agrees_with_pytorch(last: bool) -> None:
    import torch
    from torch.nn import functional

    order = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(2, 9, 5, 6, dtype=torch.float64).to(memory_format=order).requires_grad_()
    dY = torch.randn_like(x)
    functional.local_response_norm(x, 5, 1.5, 0.6, 1.2).backward(dY)
    windows = {"CrossChannel": 1, "LocalSize": 5, "Alpha": 1.5, "Beta": 0.6, "Bias": 1.2}
    found = gradkern.run(DML, x.detach(), dY, **windows).OutputGradient
    torch.testing.assert_close(found, x.grad)
    assert found.stride() == x.stride()


def test_a_window_is_no_longer_than_the_array() -> None:
    tensor = Tensor(np.dtype(np.float32), (1, 2, 3, 4), (96, 48, 16, 4), 16)
    windows = Windows.of(tensor, {"CrossChannel": 0, "LocalSize": 1 << 33})
    assert (windows.before, windows.behind) == (4, 4)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("dtype", "capability"), [("bfloat16", HOPPER[0]), ("float64", OTHERS[0]), ("float32", OTHERS[-1])]
)
def test_no_register_is_spilled(dtype: str, capability: tuple[int, int]) -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    from gradkern.cuda.dry_run import DryRunDevice, dry_run
    from gradkern.ops.local_response_norm.cuda.plan import plan

    data = end_to_end(Tensor(np.dtype(dtype), (8, 16, 9, 9), (), 16), (0, 1, 2, 3))
    attributes = {"CrossChannel": 1, "LocalSize": 5, "Alpha": 1e-4, "Beta": 0.75, "Bias": 1.0}
    inputs, outputs = {"Input": data, "InputGradient": data}, {"OutputGradient": data}
    with dry_run(DryRunDevice(0, capability, 132, SHARED_MEMORY[capability])) as device:
        plan(Call(DML, inputs, outputs, attributes, {}, frozenset(), "cuda:0", Policy()))
    assert len(device.specs) == 2
    for spec in device.specs:
        assert made_of(spec).spilled == 0
        assert "ld.local" not in made_of(spec).ptx
