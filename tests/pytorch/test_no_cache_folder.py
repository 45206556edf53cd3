"""enable(), functions and compiled models in a process that has no folder for what is cached, and no standard error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.checkout import ROOT

pytestmark = [pytest.mark.torch, pytest.mark.thorough]

CODE = """
import pwd, sys
sys.path[:0] = {path!r},

def no_account(*_):
    raise KeyError("no such user")

{before}
import torch
from torch.nn import functional
import gradkern.torch
pwd.getpwuid = no_account

x = torch.randn(8, 64, requires_grad=True)

def step(norm):
    return torch.autograd.grad(norm(x, (64,)).sin().sum(), x)[0]

expected = step(functional.layer_norm)
gradkern.torch.enable(devices="cpu", min_bytes=0, only_faster=False)
gradkern.torch.tune(lambda: step(functional.layer_norm))
for norm in (functional.layer_norm, gradkern.torch.layer_norm):
    torch.testing.assert_close(step(norm), expected, rtol=1e-4, atol=1e-5)
print(gradkern.torch.report().taken > 0)
gradkern.torch.disable()
"""


@pytest.mark.parametrize(
    ("folder", "before"),
    [
        (None, ""),
        ("a" * 300, ""),
        (None, "sys.stderr.close()"),
        ("a" * 300, "sys.stderr = type('Silent', (), {'write': len})()"),
    ],
)
def test_enable_takes_calls_without_a_folder(tmp_path: Path, folder: str | None, before: str) -> None:
    environment = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
    if folder is not None:
        environment["GRADKERN_CACHE_DIR"] = str(tmp_path / folder)
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path)  # PyTorch's own
    command = [sys.executable, "-c", CODE.format(path=str(ROOT), before=before)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=200, env=environment, cwd=tmp_path, check=False
    )
    assert done.stdout == "True\n", done.stderr
    assert done.stderr.count("RuntimeWarning: gradkern") == (0 if before else 1), done.stderr
