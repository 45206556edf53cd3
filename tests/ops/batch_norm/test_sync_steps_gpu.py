"""The steps of a batch norm over a batch in parts, on a GPU, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.calls import run_any
from helpers.examples import OPERATORS, sample
from helpers.reference import reference
from helpers.tolerance import assert_close
from helpers.torch_on_gpu import back, there

from gradkern.contract.schema import Example

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

STEPS = [f"BatchNormalization{each}" for each in ("Statistics", "MergeStatistics", "FromStatistics", "GradSums")]
SIZES: list[dict[str, Any]] = [
    {"N": 6, "C": 24, "spatial": (13, 12)},
    {"N": 50, "C": 16, "spatial": ()},
    {"N": 7, "C": 5, "spatial": (31,)},
    {"N": 2, "C": 8, "spatial": (3, 4, 5)},
    {"N": 4, "C": 3, "spatial": (70, 65)},
    {"N": 1, "C": 6, "spatial": ()},
    {"N": 32, "C": 2048, "spatial": (7, 7)},
    {"N": 32, "C": 64, "spatial": (28, 28)},
]


def poisoned(tensor: Any) -> Any:
    return torch.full_like(tensor, float("nan"))


@pytest.mark.parametrize("last", [False, True], ids=["channels_first", "channels_last"])
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("axes", SIZES, ids=str)
def test_every_type_and_layout(name: str, axes: dict[str, Any], last: bool) -> None:
    operator = OPERATORS[name]
    numbers = 2 * axes["C"] + (name != "BatchNormalizationGradSums")
    sizes = {**axes, "numbers": numbers, "parts": 3}
    example = Example(axes={key: sizes[key] for key in operator.axes})
    wanted = [each.name for each in operator.outputs]
    for row in operator.combinations:
        inputs = sample(operator, row, example, 0)
        if "X" in inputs:
            inputs["X"] = (inputs["X"] + np.float32(2)).astype(inputs["X"].dtype)
        expected = reference(name, inputs, {})
        tensors = {key: there(each, last) for key, each in inputs.items()}
        made = run_any(name, **tensors, outputs=wanted)
        results = {key: poisoned(getattr(made, key)) for key in wanted}  # every element must be written
        run_any(name, **tensors, outputs=wanted, out=results)
        for key in wanted:
            assert_close(name, key, back(results[key]), expected[key])
            assert torch.equal(results[key], getattr(made, key))  # the same bits
