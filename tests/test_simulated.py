"""The kernels under the CUDA simulator, which must be chosen before numba is imported: hence a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.checkout import ROOT

pytestmark = [pytest.mark.thorough, pytest.mark.longest]

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
TESTS = ROOT / "tests"
FILES = sorted(TESTS.rglob("simulated_*.py"))
GROUPS = ("ops/batch_norm", "ops/conv", "ops/layer_norm", "")
"""Folders whose files share a process, which takes seconds to begin; the last has all others."""


def files_of(group: str) -> list[Path]:
    names = [path.relative_to(TESTS).parent.as_posix() for path in FILES]
    return [path for path, name in zip(FILES, names, strict=True) if (name if name in GROUPS else "") == group]


@pytest.mark.parametrize("group", GROUPS)
def test_the_kernels_own_source_is_right_under_the_simulator(group: str, pytestconfig: pytest.Config) -> None:
    files = files_of(group)
    assert files
    options = ["--every-kernel"] if any(map(pytestconfig.getoption, ("--every-kernel", "--long"))) else []
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *options, *map(str, files)]
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}
    # The limit is a guard against hanging, on a busy machine too.
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
