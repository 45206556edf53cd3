"""The benchmark of training steps, with its small models on the CPU."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest
import train_bench

ROOT = Path(__file__).resolve().parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "train_bench.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.torch
@pytest.mark.slow
def test_a_table_and_json_of_every_column(tmp_path: Path) -> None:
    file = tmp_path / "train.json"
    columns = "eager,enable,gradkern,liger"
    options = ("--tiny", "--seconds", "0.1", "--columns", columns, "--batch", "3", "--json", str(file))
    done = bench("GPT 12x1024", *options)
    assert done.returncode == 0, done.stderr
    results = json.loads(file.read_text())
    assert results["machine"]["packages"]["torch"]
    eager, enabled, compiled, liger = results["rows"]
    assert eager["loss"] == pytest.approx(enabled["loss"], rel=1e-4)
    assert eager["loss"] == pytest.approx(compiled["loss"], rel=1e-4)
    assert enabled["taken"] > 0
    assert compiled["fused"] == 3
    assert 0 < eager["in_a_row"] < 1e4
    assert "step" in liger or "error" in liger
    assert "| GPT 12x1024, batch 3 | enable |" in done.stdout


def test_a_cell_that_fails_says_which_error_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not the advice that PyTorch gives behind those of CUDA."""
    words = "Traceback:\ntorch.AcceleratorError: CUDA error: an illegal memory access\nCompile with `DSA` for more."
    done = subprocess.CompletedProcess([], 1, "", words)
    monkeypatch.setattr(train_bench.subprocess, "run", lambda *_, **__: done)
    asked = argparse.Namespace(seconds=1.0, tiny=True, batch=None, fusions=None, limit=9)
    row = train_bench.in_a_process("GPT", "eager", asked, None)
    assert row["error"] == "torch.AcceleratorError: CUDA error: an illegal memory access"
    done.stderr = ""
    assert train_bench.in_a_process("GPT", "eager", asked, None)["error"] == "exit status 1"


def test_a_batch_has_at_least_one_sample() -> None:
    done = bench("--batch", "0")
    assert done.returncode == 2
    assert "argument --batch: expected at least 1, got 0" in done.stderr


def test_unknown_columns_are_named() -> None:
    done = bench("--columns", "eagre")
    assert done.returncode == 2
    assert "no column 'eagre'; there are eager, and with + between: enable, accelerate, compile, " in done.stderr
