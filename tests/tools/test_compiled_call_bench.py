"""The benchmark of calls from compiled code, whose launches are of Triton's kernels: on a GPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "compiled_call_bench.py"


@pytest.mark.gpu
@pytest.mark.torch
def test_operators_and_kernels_are_measured(tmp_path: Path) -> None:
    file = tmp_path / "compiled_calls.json"
    command = [sys.executable, str(TOOL), "--calls", "30", "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text())["rows"]
    of_gradkern = {row["call"] for row in rows if row["of"] == "gradkern"}
    assert of_gradkern >= {"gradkern.bias_gelu_forward.default", "gradkern.add_layer_norm_backward.default"}
    assert any(row["of"] == "Triton" for row in rows)
    assert all(row["us"] > 0 for row in rows)
    assert done.stdout.count("\n| ") == len(rows) + 1
