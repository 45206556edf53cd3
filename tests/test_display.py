"""What an interactive session prints fits a screen, in text and in a notebook, and names what it is about."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.calls import run_any

import gradkern

ROWS = np.ones((64, 512), np.float32)
SCALE, MEAN = np.ones(512, np.float32), np.ones(64, np.float32)
LAYER = "LayerNormalizationGrad", ROWS, ROWS, SCALE, MEAN, MEAN


def test_a_result_says_what_its_arrays_are_without_their_elements() -> None:
    narrow = run_any("BiasGeluGrad_dX", *np.ones((2, 3, 4), np.float32), np.ones(4, np.float32))
    assert repr(narrow) == "BiasGeluGrad_dX(dX=ndarray float32 (3, 4) cpu, dB=None)"
    assert repr(gradkern.run(*LAYER)).splitlines() == [
        "LayerNormalizationGrad(",
        "    X_grad=ndarray float32 (64, 512) cpu,",
        "    scale_grad=ndarray float32 (512,) cpu,",
        "    bias_grad=ndarray float32 (512,) cpu,",
        ")",
    ]


@pytest.mark.torch
def test_a_result_of_tensors_says_where_they_are() -> None:
    import torch

    x, bias = torch.ones(3, 4, dtype=torch.bfloat16), torch.ones(4, dtype=torch.bfloat16)
    found = run_any("BiasGeluGrad_dX", x, x, bias)
    assert repr(found) == "BiasGeluGrad_dX(dX=Tensor bfloat16 (3, 4) cpu, dB=None)"


def objects() -> dict[str, Any]:
    plan = gradkern.prepare(*LAYER)
    operators = gradkern.operators()
    return {"result": plan(*LAYER[1:]), "plan": plan, "cache": gradkern.plan_cache, "contracts": operators, **operators}


@pytest.mark.parametrize("name", ["result", "plan", "cache", "contracts", *gradkern.operators()])
def test_it_fits_a_screen(name: str) -> None:
    shown = repr(objects()[name])
    assert len(shown) <= 24 * 80
    assert shown.count("\n") < 24
    assert "object at" not in shown


def test_an_operator_shows_its_call_and_in_a_notebook_what_each_argument_is() -> None:
    operator: Any = gradkern.operators()["BiasGeluGrad_dX"]
    assert repr(operator) == "<gradkern operator of com.microsoft: (dY, X, B) -> (dX, dB)>"
    page = operator._repr_html_()
    assert all(each.doc in page for each in (*operator.inputs, *operator.outputs))
    assert page.count("<tr>") == 1 + 5


def test_a_plan_and_a_result_are_tables_in_a_notebook() -> None:
    plan: Any = gradkern.prepare(*LAYER)
    assert f">{plan.kernel}<" in plan._repr_html_()
    assert ">(64, 512)<" in plan(*LAYER[1:])._repr_html_()


def test_what_a_table_shows_is_text_and_not_html() -> None:
    from gradkern.system.display import table

    page = table("a < b", ("<i>",), [["<script>"]] * 41)
    assert "&lt;script&gt;" in page
    assert "a &lt; b" in page
    assert "&lt;i&gt;" in page
    assert "and 1 more" in page
    assert page.count("&lt;script&gt;") == 40


@pytest.mark.torch
def test_a_report_and_an_acceleration_are_short_and_say_how_to_see_all() -> None:
    from torch import nn

    import gradkern.torch
    from gradkern.torch.overrides.report import Row

    rows = tuple(Row("layer_norm", "cuda", f"({n}, 64)", 1, 2, "small") for n in range(100))
    report: Any = gradkern.torch.Report(rows)
    assert repr(report) == (
        "<gradkern.torch report: 100 kinds of calls, 100 by gradkern and 200 by PyTorch; print it to see all>"
    )
    assert len(str(report).splitlines()) == 101
    assert "and 60 more" in report._repr_html_()
    done: Any = gradkern.torch.accelerate(nn.Sequential(nn.BatchNorm2d(8), nn.ReLU()))
    assert repr(done) == "<gradkern.torch acceleration: 1 modules replaced, 0 left>"
    assert "BatchNorm2d + ReLU" in done._repr_html_()
