"""Tables of measurements are drawn of any rows that a file of results has, and of none."""

from __future__ import annotations

import json
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
import readme
import result_tables

MACHINE = {
    "gpu": "a GPU",
    "driver": "580.1",
    "cuda": "13.0",
    "date": "2026-11-22",
    "processor": "a CPU",
    "cores": 2,
    "python": "3.11",
    "commands": ["bench.py"],
    "versions": {"torch": "2.11", "cudnn": 91900, "gradkern": "0.2"},
    "packages": dict.fromkeys(("torch", "triton", "liger-kernel", "numba-cuda"), "2.11.0"),
}
TIMED = {"microseconds": 10.0, "spread": 0.1, "gigabytes_per_second": 9.0, "gigaflops_per_second": None}
NORM = {"operator": "LayerNormalizationGrad", "size": "rows=8", "types": {"T": "float32"}, "outputs": ["X_grad"]}
NORM |= {**TIMED, "axes": {"rows": [8], "columns": [4]}, "share_of_limit": 0.9, "peers": {"torch": 20.0}}
CONV = {"network": "A", "layer": "64x56x56 -> 64, 3x3", "setting": "float16", "outputs": "dX", "plan_seconds": 1.0}
CONV |= {"kernel": "dX: gemm", "torch_over_gradkern": 2.0, "torch_microseconds": 2.0, "microseconds": 1.0}
DRAW = {"kind": "norm", "range": "1-50", "warm": False, "seed": 7, "microseconds": 10, "peers": {"torch": 20}}
TIMES = {"eager": {"ms": 3.0}, "compile": {"ms": 2.0, "kinds": {}, "kernels_ms": 1.0}, "gradkern": {"ms": 1.0}}
LOSS = {f"{name} loss": {"ms": 1.0} for name in ("compile", "gradkern")}
START = {"work": "A", "process": "empty", "type": "bfloat16", "first_seconds": 1, "calls": [{"seconds": 1}]}
CALL = {"operator": "gelu_backward", **dict.fromkeys(("torch", "taken", "declined", "bare"), 1.0)}
ROWS: dict[str, list[dict[str, Any]]] = {
    **{key: [NORM, {**NORM, "peers": {}}] for key in ("h200.json", "h100.json", "forward.json", "others.json")},
    "cpu.json": [NORM, {**NORM, "peers": {}, "gigaflops_per_second": 3.0}],
    "conv.json": [CONV, {**CONV, "outputs": "dX,dW,dB"}, {**CONV, "setting": "bfloat16"}],
    "sweep.json": [DRAW, {**DRAW, "failed": "no"}],
    "train.json": [
        {"model": "A", "machine": MACHINE, "error": "no"},
        {"model": "B", "machine": MACHINE, "columns": TIMES},
        {"model": "C", "machine": MACHINE, "columns": {**TIMES, **LOSS}},
    ],
    "cold.json": [{**START, "failed": "no"}, START, {**START, "process": "torch", "framework_seconds": 2.0}],
    "overrides.json": [CALL],
    "compiled_calls.json": [{"call": "A", "of": of, "us": 5.0} for of in ("gradkern", "Triton")],
}
PARTS = {
    "layers": [{"channels": 64, "side": 7, "mode": "eager", "us": {"local": 1.0, "torch": 3.0, "gradkern": 2.0}}],
    "ResNet-50": {"local": 1e4, "torch": 3e4},
    "messages": [{"size": 4, "channels": 64, "us": {"gather": 10.0, "reduce": 20.0}}],
    "models": {"A": {"eager": {"ms": 1.0, "first_seconds": 2.0, "loss": 3.0}}},
}
TABLES = {
    f"{page}: {name}": make
    for page, parts in readme.PAGES.items()
    for name, make in parts.items()
    if make.__module__.endswith("_tables") or name == "summary"
}


def every_table(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """All that says something, each table of which has a line."""
    monkeypatch.setattr(result_tables, "RESULTS", folder)
    texts = {name: text for name, make in TABLES.items() if (text := make())}
    for name, text in texts.items():
        lines = [*text.splitlines(), ""]
        assert all(after.startswith("| ") for line, after in pairwise(lines) if line.startswith("| ---")), name
        assert "2026-11-22" in text or name.endswith("summary"), name
    return texts


def test_no_table_needs_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(TABLES) == 15
    assert every_table(tmp_path, monkeypatch) == {}


@pytest.mark.parametrize("file", ROWS)
def test_a_table_is_drawn_of_any_rows(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ROWS[file]
    for taken in (each for count in range(len(rows) + 1) for each in combinations(rows, count)):
        (tmp_path / file).write_text(json.dumps({"machine": MACHINE, "rows": taken}))
        shown = any("failed" not in row for row in taken)
        pages = 2 if file in ("h200.json", "conv.json", "train.json") else 1
        of_conv = file == "conv.json" and shown and all("," in row["outputs"] for row in taken)  # none in the summary
        assert len(every_table(tmp_path, monkeypatch)) == shown * pages - of_conv, taken


def test_parts_of_a_step_on_several_gpus_are_shown_where_they_were_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for taken in (each for count in range(len(PARTS) + 1) for each in combinations(PARTS, count)):
        parts = {name: each if name in taken else type(each)() for name, each in PARTS.items()}
        found = {"machine": MACHINE, "size": 4, "norms": {"64": 1}, **parts}
        (tmp_path / "distributed.json").write_text(json.dumps(found))
        (text,) = every_table(tmp_path, monkeypatch).values() or [""]
        assert text.count("\n| --- ") == len({*taken} - {"messages"})
        assert ("8, simulated" in text) == ({"ResNet-50", "messages"} <= {*taken})
