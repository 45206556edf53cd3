"""The sweep over random sizes: what is drawn, what is kept of a run, and what is said of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import result_tables
import sweep
import sweep_tables
from draws import KINDS, drawn
from helpers.calls import FakeProvider, prepare_any
from memory_orders import in_order

import gradkern
from gradkern.contract.consistency import example_mistakes
from gradkern.contract.samples import inputs_of
from gradkern.contract.schema import shape_of


@pytest.mark.parametrize("kind", KINDS)
def test_draws_are_the_same_for_a_seed_fit_their_contracts_and_have_as_many_bytes(
    kind: str, provider: FakeProvider
) -> None:
    for number in range(40):
        draw = drawn(kind, 3, number, 1e6, 50e6)
        assert draw == drawn(kind, 3, number, 1e6, 50e6)
        operator = gradkern.operators()[draw.operator]
        assert not list(example_mistakes(operator, draw.example))
        arrays = {
            each.name: np.empty(shape_of(each.shape, draw.example.axes), draw.types[each.type])
            for each in operator.inputs_of(draw.example.axes)
        }
        plan = prepare_any(draw.operator, **arrays, outputs=draw.outputs, **draw.example.attributes)
        assert 0.4e6 < plan.bytes < 90e6
        assert {each: plan.call.outputs[each].dtype.name for each in draw.outputs} == {
            each.name: draw.types[each.type] for each in operator.outputs if each.name in draw.outputs
        }
    others = [drawn(kind, seed, number, 1e6, 50e6) for seed in range(3) for number in range(3)]
    assert all(one != other for place, one in enumerate(others) for other in others[:place])


def test_widths_of_every_kind_are_drawn() -> None:
    """Odd ones, multiples of 8 and of 64, and as many below 2048 as above: the middle on a logarithmic scale."""
    drawings = (drawn("gelu", 0, number, 1e8, 8e8) for number in range(300))
    widths = [width for each in drawings if isinstance(width := each.example.axes["columns"], int)]
    assert len(widths) == 300
    assert 64 <= min(widths) < 100
    assert 40000 < max(widths) <= 65536
    assert 120 < sum(width < 2048 for width in widths) < 180
    assert sum(width % 64 == 0 for width in widths) > 90
    assert sum(width % 2 for width in widths) > 30


def test_a_run_that_is_resumed_measures_the_rest_and_one_that_fails_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []

    def measured(operator: str, types: dict, *_: object, **__: object) -> dict:
        seen.append(operator)
        if operator == "ConvGrad":
            raise gradkern.ProviderError("ConvGrad: no")
        peers = {"torch": 30.0}
        return {
            "operator": operator,
            "types": dict(types),
            "size": "1",
            "kernel": "k",
            "microseconds": 10,
            "peers": peers,
        }

    monkeypatch.setattr(sweep, "measured", measured)
    path = tmp_path / "sweep.json"
    command = ["sweep.py", "--provider", "cpu", "--kinds", "gelu,conv", "--ranges", "1-2", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", [*command, "--count", "1"])
    assert sweep.main() == 1
    assert "ConvGrad: no" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", [*command, "--count", "2", "--resume"])
    assert sweep.main() == 1
    assert (len(seen), seen.count("ConvGrad")) == (4, 2)
    rows = json.loads(path.read_text())["rows"]
    assert [(row["kind"], row["range"], row["number"], "failed" in row) for row in rows] == [
        ("gelu", "1-2", 0, False),
        ("conv", "1-2", 0, True),
        ("gelu", "1-2", 1, False),
        ("conv", "1-2", 1, True),
    ]
    assert "3.00 (3.00)" in capsys.readouterr().out


def rows() -> list[dict]:
    shared = {"range": "100-800", "warm": False, "seed": 7, "operator": "LayerNormalizationGrad", "microseconds": 10}
    return [
        {**shared, "kind": "norm", "number": 0, "share_of_floor": 0.9, "peers": {"torch": 20, "compile": 12}},
        {**shared, "kind": "norm", "number": 1, "share_of_floor": 0.7, "peers": {"torch": 30}},
        {**shared, "kind": "norm", "number": 2, "share_of_floor": 0.95, "peers": {}},
        {**shared, "kind": "conv", "number": 0, "share_of_floor": 0.1, "peers": {"torch": 9}, "commit": "0a1b2c3"},
        {**shared, "kind": "conv", "number": 1, "failed": "no"},
    ]


def test_a_summary_has_medians_and_least_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_tables, "RESULTS", tmp_path)
    assert sweep_tables.sweep() == ""
    machine = {"gpu": "a GPU", "driver": "580.1", "cuda": "13.0", "date": "2026-11-22", "packages": {"torch": "2.11.0"}}
    (tmp_path / "sweep.json").write_text(json.dumps({"machine": machine, "rows": rows()}))
    lines = sweep_tables.sweep().splitlines()
    assert lines[4] == "| norm | 100-800 | cold | 7 | 3 | 0.90 (0.70) | 2.50 (2.00) | 1.20 (1.20) | - | - |"
    assert lines[5] == "| conv | 100-800 | cold | 7 | 1 | - | 0.90 (0.90) | - | - | - |"
    other = {"machine": {**machine, "gpu": "another GPU"}, "rows": rows()}
    (tmp_path / "sweep_another.json").write_text(json.dumps(other))
    assert [each.split(",")[0] for each in sweep_tables.sweep().splitlines() if "medians" in each] == [
        "a GPU",
        "another GPU",
    ]


def test_the_worst_draws_come_first() -> None:
    worst = sweep_tables.worst(rows(), 2)
    assert [(value, row["number"]) for value, row in worst["of the floor"]] == [(0.7, 1), (0.9, 0)]
    assert [(value, row["kind"]) for value, row in worst["torch / gradkern"]] == [(0.9, "conv"), (2.0, "norm")]
    assert list(worst) == ["of the floor", "torch / gradkern", "compile / gradkern"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_draw_is_described_as_its_arrays_are(kind: str, provider: FakeProvider) -> None:
    """For what is compiled before anything is measured. Nothing is compiled here: both calls are only described."""
    for number in range(12):
        draw = drawn(kind, 3, number, 1e5, 1e6)
        operator = gradkern.operators()[draw.operator]
        arrays = inputs_of(operator, draw.types, draw.example, np.random.default_rng(0))
        arrays = {name: in_order(array, draw.order) for name, array in arrays.items()}
        described = sweep._wanted(draw).plan("cpu").call
        given = prepare_any(draw.operator, **arrays, outputs=draw.outputs, **draw.example.attributes).call
        told = [
            ({name: _told(each) for name, each in call.inputs.items()}, call.outputs.keys(), call.attributes, call.axes)
            for call in (described, given)
        ]
        assert told[0] == told[1]


def _told(tensor: Any) -> tuple[Any, ...]:
    """All but the alignment, and the steps along axes of one element."""
    steps = [step for size, step in zip(tensor.shape, tensor.strides, strict=True) if size > 1]
    return tensor.dtype, tensor.shape, steps
