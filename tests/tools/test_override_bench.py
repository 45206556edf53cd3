"""The benchmark of what enable() costs the host, on a CPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "override_bench.py"


@pytest.mark.torch
@pytest.mark.slow
def test_every_operator_is_measured_each_way(tmp_path: Path) -> None:
    file = tmp_path / "overrides.json"
    command = [sys.executable, str(TOOL), "--device", "cpu", "--calls", "2", "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads(file.read_text())
    assert results["machine"]["packages"]["torch"]
    assert {row["operator"] for row in results["rows"]} >= {"native_layer_norm_backward", "convolution_backward"}
    assert all(row[way] > 0 for row in results["rows"] for way in ("torch", "bare", "taken", "declined"))
    assert done.stdout.count("\n| ") == len(results["rows"]) + 1
