"""Local response normalization's gradient on a GPU against float64: types, windows, orders of memory."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.calls import run_any
from helpers.examples import OPERATORS, sample
from helpers.reference import reference
from helpers.tolerance import assert_close
from helpers.torch_on_gpu import back, there

pytestmark = [pytest.mark.gpu, pytest.mark.torch]

DML = "DmlLocalResponseNormalizationGrad"


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("row", OPERATORS[DML].combinations, ids=lambda row: row["T"])
def test_every_type_window_and_order(row: dict[str, str], last: bool) -> None:
    for example in OPERATORS[DML].examples:
        inputs = sample(OPERATORS[DML], row, example)
        expected = reference(DML, inputs, example.attributes)["OutputGradient"]
        found: Any = run_any(DML, *(there(each, last) for each in inputs.values()), **example.attributes)
        assert_close(DML, "OutputGradient", back(found.OutputGradient), expected)
