"""The wheel with packs: what it carries is used by who installs it, and nothing is left in the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import build_wheel
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from helpers.checkout import ROOT

CALL = {"op": "BiasGeluGrad_dX", "axes": {"rows": [8], "columns": 64}, "types": "float32", "outputs": ["dX"]}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what a wheel is made of."""
    copy = tmp_path / "checkout"
    shutil.copytree(ROOT / "gradkern", copy / "gradkern", ignore=shutil.ignore_patterns("__pycache__", "packs"))
    for name in ("pyproject.toml", "registry.yaml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.mark.thorough
def test_a_wheel_has_its_pack_and_uses_it(checkout: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    calls = tmp_path / "calls.jsonl"
    calls.write_text(json.dumps(CALL))
    out = tmp_path / "dist"
    asked = ["--calls", calls, "--out", out, "--root", checkout, "--jobs", "1"]
    assert build_wheel.main([str(each) for each in asked]) == 0
    (wheel,) = out.glob("*.whl")
    assert f"{wheel}: " in capfd.readouterr().out
    assert not (checkout / "gradkern" / "packs").exists()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    command = [sys.executable, "-m", "gradkern", "pack", "info", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "GRADKERN_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    (found,) = json.loads(done.stdout)["packs"]
    assert found["path"] == str(tmp_path / "site" / "gradkern" / "packs" / "sm_90.pack")
    assert (found["fault"], found["about"]["kernels"]) == (None, 1)


def test_what_fails_leaves_no_packs_in_the_checkout(checkout: Path, tmp_path: Path) -> None:
    asked = ["--arch", "sm_77", "--calls", os.devnull, "--out", tmp_path / "dist", "--root", checkout]
    assert build_wheel.main([str(each) for each in asked]) == 1
    assert not (checkout / "gradkern" / "packs").exists()
    assert not (tmp_path / "dist").exists()
