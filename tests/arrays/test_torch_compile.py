"""torch.compile meets gradkern as one opaque call: right results, one break of the graph, no warnings."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.thorough]

CODE = """
import sys, warnings

warnings.simplefilter("error")
{imports}
import torch._dynamo

LAYER = "LayerNormalizationGrad"
plan = None


def by_run(dY, *others):
    result = gradkern.run(LAYER, dY * 2, *others, axis=-1)
    return result.X_grad + 1, result.scale_grad


def by_plan(dY, *others):
    result = plan(dY * 2, *others)
    return result.X_grad + 1, result.scale_grad


def by_prepare(dY, *others):
    return gradkern.prepare(LAYER, dY * 2, *others)(dY * 2, *others)[:2]


inputs = torch.randn(6, 8), torch.randn(6, 8), torch.randn(8), torch.randn(6), torch.rand(6) + 1
{before}
for function in (by_run, by_prepare, by_plan):
    if function is by_plan:
        plan = gradkern.prepare(LAYER, *inputs)
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="aot_eager")(*inputs)
    assert all(map(torch.equal, compiled, function(*inputs))), function
    counted = torch._dynamo.explain(function)(*inputs).graph_break_count
    assert counted == 1, (function, counted)
"""
ORDERS = {
    "PyTorch first": ("import torch\nimport gradkern\ngradkern.run", ""),
    "gradkern first": ("import gradkern\nimport torch", ""),
    "gradkern first, used before PyTorch is there": (
        "import gradkern\ngradkern.run\nimport torch",
        "gradkern.run(LAYER, *inputs)",
    ),
}


@pytest.mark.parametrize("order", ORDERS)
def test_compiled_code_calls_gradkern_as_it_is(order: str) -> None:
    imports, before = ORDERS[order]
    code = CODE.format(imports=imports, before=before)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
