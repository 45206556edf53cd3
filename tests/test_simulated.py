"""The kernels under the CUDA simulator, which must be chosen before numba is imported: hence a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.checkout import ROOT

pytestmark = pytest.mark.thorough

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
TESTS = ROOT / "tests"
FILES = sorted(TESTS.rglob("simulated_*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.relative_to(TESTS).with_suffix("")))
def test_the_kernels_own_source_is_right_under_the_simulator(file: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(file)]
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
