"""The kernels under the CUDA simulator, which must be chosen before numba is imported: hence a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
HERE = Path(__file__).parent


@pytest.mark.parametrize("file", sorted(HERE.glob("simulated_*.py")), ids=lambda path: path.stem)
def test_the_kernels_own_source_is_right_under_the_simulator(file: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(file)]
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}
    done = subprocess.run(command, cwd=HERE.parents[1], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
