"""Benchmarks of a GPU on a machine without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
ASKED = {
    "bench.py": (("LayerNormalizationGrad", "--provider", "cuda"), "; --provider cpu measures the CPU"),
    "compiled_call_bench.py": ((), ""),
    "conv_bench.py": ((), ""),
    "margin_bench.py": ((), ""),
    "override_bench.py": ((), "; --device cpu measures the CPU"),
    "sweep.py": ((), "; --provider cpu measures the CPU"),
    "train_bench.py": (("ResNet-50",), "; --tiny is for a CPU"),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", ASKED)
def test_what_measures_a_gpu_says_why_it_cannot_and_what_can_be_measured_instead(name: str) -> None:
    arguments, otherwise = ASKED[name]
    done = subprocess.run(
        [sys.executable, str(TOOLS / name), *arguments],
        env=dict(os.environ, CUDA_VISIBLE_DEVICES=""),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"{name}: error: this measures a GPU: ")
    assert last.endswith(otherwise)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["compiled_call_bench.py", "override_bench.py"])
def test_blocks_have_calls(name: str) -> None:
    command = [sys.executable, str(TOOLS / name), "--calls", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith("error: argument --calls: expected 1 or more; got 0\n")
