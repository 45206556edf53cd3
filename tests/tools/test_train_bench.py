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


ASKED = argparse.Namespace(seconds=1.0, tiny=True, batch=None, fusions=None, limit=30.0, turns=3)


def cells(monkeypatch: pytest.MonkeyPatch, **programs: str) -> list[train_bench.Row]:
    """What comes of cells that run these, by column, in place of a model."""
    head = f"import sys, time; sys.path[:0] = [{str(ROOT / 'tools')!r}, {str(ROOT)!r}]; import json, train_bench as b; "
    monkeypatch.setattr(
        train_bench, "_command", lambda name, column, args: [sys.executable, "-c", head + programs[column]]
    )
    return train_bench.in_turns("GPT", list(programs), ASKED)


def test_columns_have_turns_in_which_the_others_wait(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = (
        "out = open({log!r}, 'a', buffering=1); out.write('{name} ready\\n'); "
        "[out.write('{name}\\n') for _ in b._told(3)]; print('noise'); print(b._MARK + json.dumps({{'step': {step}}}))"
    )
    programs = {name: program.format(log=str(log), name=name, step=step) for step, name in enumerate(("one", "two"), 5)}
    assert cells(monkeypatch, **programs) == [{"step": 5}, {"step": 6}]
    assert log.read_text().split("\n") == ["one ready", "two ready", *["one", "two"] * 3, ""]


def test_a_cell_that_fails_says_which_error_it_was_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not the advice that PyTorch gives behind those of CUDA."""
    words = "Traceback:\ntorch.AcceleratorError: CUDA error: an illegal memory access\nCompile with `DSA` for more."
    found = cells(
        monkeypatch,
        first=f"next(b._told(1)); sys.stderr.write({words!r}); sys.exit(1)",
        second="sys.exit(7)",
        third="list(b._told(3)); print(b._MARK + '{\"step\": 5}')",
    )
    named = {"model": "GPT", "column": "first"}
    assert found[0] == {**named, "error": "torch.AcceleratorError: CUDA error: an illegal memory access"}
    assert found[1]["error"] == "exit status 7"
    assert found[2] == {"step": 5}


def test_a_cell_has_so_much_time_without_its_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ASKED, "limit", 3.0)
    slow = "[time.sleep(1.2) for _ in b._told(3)]; print(b._MARK + '{\"step\": 5}')"
    quick = "list(b._told(3)); print(b._MARK + '{\"step\": 5}')"
    found = cells(monkeypatch, slow=slow, quick=quick)
    assert found == [{"model": "GPT", "column": "slow", "error": "longer than 3 s"}, {"step": 5}]


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
