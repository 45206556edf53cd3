"""The benchmark of training steps, with its small models on the CPU."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest
import train_bench
import train_cell

ROOT = Path(__file__).resolve().parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "train_bench.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.torch
@pytest.mark.slow
def test_a_table_and_json_of_every_column(tmp_path: Path) -> None:
    file = tmp_path / "train.json"
    columns = "eager,enable,gradkern,liger"
    options = ("--tiny", "--seconds", "0.2", "--columns", columns, "--batch", "3", "--turns", "2", "--json", str(file))
    done = bench("GPT 12x1024", *options)
    assert done.returncode == 0, done.stderr
    results = json.loads(file.read_text())
    assert results["machine"]["packages"]["torch"]
    eager, enabled, compiled, liger = results["rows"]
    assert eager["loss"] == pytest.approx(enabled["loss"], rel=1e-4)
    assert eager["loss"] == pytest.approx(compiled["loss"], rel=1e-4)
    assert enabled["taken"] + enabled["declined"] > 0  # which of both is faster at this size is the machine's matter
    assert compiled["fused"] == 3
    first, third = eager["in_a_row_quartiles"]
    assert 0 < first <= eager["in_a_row"] <= third < 1e4
    assert "step" in liger or "error" in liger
    assert "| GPT 12x1024, batch 3 | enable |" in done.stdout


@pytest.mark.torch
def test_columns_have_turns_and_what_tune_found_for_one_is_not_in_force_in_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import gradkern.torch

    log: list[tuple[str, bool]] = []

    def logged(cell: train_cell._Cell, seconds: float) -> None:
        assert seconds == 2.0
        log.append((cell.row["column"], gradkern.torch.is_enabled()))

    monkeypatch.setattr(train_cell._Cell, "make_ready", lambda cell: None)
    monkeypatch.setattr(train_cell._Cell, "take_turn", logged)
    monkeypatch.setattr(train_cell._Cell, "conclude", lambda cell: cell.row.update(step=1.0))
    rows = train_cell.measured("GPT 12x1024", ["enable", "eager"], True, 6.0, turns=3)
    assert log == [("enable", True), ("eager", False)] * 3
    assert rows == [{"model": "GPT 12x1024", "column": each, "step": 1.0} for each in ("enable", "eager")]
    assert not gradkern.torch.is_enabled()


@pytest.mark.torch
@pytest.mark.parametrize("failing", ["eager", "enable"])
def test_a_column_that_fails_says_of_what_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    """And not the advice that PyTorch gives behind the errors of CUDA; and with nothing of that column in force."""
    import gradkern.torch

    class AcceleratorError(RuntimeError):
        __module__, __qualname__ = "torch", "AcceleratorError"

    turns: list[str] = []

    def turn(cell: train_cell._Cell, seconds: float) -> None:
        turns.append(cell.row["column"])
        assert gradkern.torch.is_enabled() == (cell.row["column"] == "enable")
        if cell.row["column"] == failing:
            raise AcceleratorError("CUDA error: an illegal memory access\nCompile with `DSA` for more.")

    monkeypatch.setattr(train_cell._Cell, "make_ready", lambda cell: None)
    monkeypatch.setattr(train_cell._Cell, "take_turn", turn)
    monkeypatch.setattr(train_cell._Cell, "conclude", lambda cell: cell.row.update(step=1.0))
    first, second = train_cell.measured("GPT 12x1024", [failing, "compile"], True, 1.0, turns=2)
    assert first["error"] == "torch.AcceleratorError: CUDA error: an illegal memory access"
    assert "step" not in first
    assert second["step"] == 1.0
    assert turns == [failing, "compile", "compile"]


ASKED = argparse.Namespace(seconds=1.0, tiny=True, batch=None, fusions=None, limit=3.0, turns=1)


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("import sys; print('noise'); sys.exit(7)", "exit status 7"),
        ("import sys; sys.exit('first\\nlast words')", "last words"),
        (
            "import sys; sys.exit('Traceback:\\ntorch.AcceleratorError: CUDA error: no\\nCompile with DSA.')",
            "torch.AcceleratorError: CUDA error: no",
        ),
        ("import time; time.sleep(30)", "longer than 3 s"),
    ],
)
def test_a_process_that_ends_without_rows_says_why_for_each_column(
    monkeypatch: pytest.MonkeyPatch, program: str, error: str
) -> None:
    monkeypatch.setattr(train_bench, "_command", lambda *_: [sys.executable, "-c", program])
    found = train_bench.in_a_process("GPT", ["eager", "enable"], ASKED)
    assert found == [{"model": "GPT", "column": each, "error": error} for each in ("eager", "enable")]


@pytest.mark.parametrize("option", ["--batch", "--turns"])
@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5"])
def test_a_batch_has_at_least_one_sample_and_a_column_one_turn(option: str, value: str) -> None:
    done = bench(f"{option}={value}")
    assert done.returncode == 2
    assert f"argument {option}: expected a number of at least 1, got {value}" in done.stderr


def test_unknown_columns_are_named() -> None:
    done = bench("--columns", "eagre")
    assert done.returncode == 2
    assert "no column 'eagre'; there are eager, and with + between: enable, accelerate, compile, " in done.stderr
