"""The extras with PyTorch resolve against the public index, for every Python, to one CUDA and one cuDNN."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from uv import find_uv_bin

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.thorough
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize(("extra", "cuda"), [("torch-cu13", "13"), ("torch-cu12", "12")])
def test_an_extra_with_pytorch_has_one_cuda_and_one_cudnn(extra: str, cuda: str, python: str) -> None:
    resolve = [find_uv_bin(), "pip", "compile", "--quiet", "--no-annotate", "--no-header", "--extra", extra]
    machine = ["--python-version", python, "--python-platform", "x86_64-manylinux_2_28"]
    found = subprocess.run(
        [*resolve, *machine, "pyproject.toml"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    if found.returncode and "No solution found" not in found.stderr:
        pytest.skip(f"the package index cannot be read: {found.stderr.splitlines()[:1]}")
    assert found.returncode == 0, found.stderr
    versions = dict(line.split(" ")[0].split("==") for line in found.stdout.splitlines() if "==" in line)
    assert [name for name in versions if name.startswith("nvidia-cudnn-")] == [f"nvidia-cudnn-cu{cuda}"]
    assert versions["cuda-toolkit"].split(".")[0] == versions["cuda-bindings"].split(".")[0] == cuda
    assert "torch" in versions
