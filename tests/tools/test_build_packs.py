"""The wheel with packs: what it carries is used by who installs it, and nothing is left in the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

from helpers.checkout import ROOT

CALL = {"op": "BiasGeluGrad_dX", "axes": {"rows": [8], "columns": 64}, "types": "float32", "outputs": ["dX"]}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what a wheel is made of, with the pack of a checkout in it, which is none of a wheel's."""
    copy = tmp_path / "checkout"
    shutil.copytree(ROOT / "gradkern", copy / "gradkern", ignore=shutil.ignore_patterns("__pycache__", "packs"))
    (copy / "gradkern" / "packs").mkdir()
    (copy / "gradkern" / "packs" / "sm_75.pack").write_bytes(b"the checkout's")
    (copy / "tools").mkdir()
    for name in (
        "pyproject.toml",
        "registry.yaml",
        "README.md",
        "LICENSE",
        ".gitignore",
        "tools/build_packs.py",
        "tools/build_metadata.py",
    ):
        shutil.copy(ROOT / name, copy / name)
    return copy


def built(checkout: Path, **variables: str) -> tuple[subprocess.CompletedProcess[str], list[Path]]:
    """What `python -m build --wheel` would do in this environment, and the wheels."""
    out = checkout / "dist"
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    variables = {**os.environ, **variables}
    done = subprocess.run(command, cwd=checkout, env=variables, capture_output=True, text=True, check=False)
    return done, list(out.glob("*.whl"))


@pytest.mark.thorough
def test_a_wheel_has_its_pack_and_uses_it(checkout: Path, tmp_path: Path) -> None:
    calls = tmp_path / "calls.jsonl"
    calls.write_text(json.dumps(CALL))
    done, (wheel,) = built(checkout, GRADKERN_WHEEL_PACKS="sm_90", GRADKERN_WHEEL_CALLS=str(calls))
    assert "sm_90.pack: " in done.stderr
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    command = [sys.executable, "-m", "gradkern", "pack", "info", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "GRADKERN_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    (found,) = json.loads(done.stdout)["packs"]
    assert found["path"] == str(tmp_path / "site" / "gradkern" / "packs" / "sm_90.pack")
    assert (found["fault"], found["about"]["kernels"]) == (None, 1)


def test_a_wheel_of_nobody_who_asks_for_packs_has_none(checkout: Path) -> None:
    _, (wheel,) = built(checkout, GRADKERN_WHEEL_PACKS="")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if "pack" in name and not name.endswith((".py", ".pyi"))]


def test_a_pack_that_cannot_be_built_is_no_wheel(checkout: Path) -> None:
    done, wheels = built(checkout, GRADKERN_WHEEL_PACKS="sm_77", GRADKERN_WHEEL_CALLS=os.devnull)
    assert done.returncode != 0
    assert "no GPU is known of which sm_77 is the architecture" in done.stderr
    assert "GRADKERN_WHEEL_PACKS=sm_77: the packs could not be built" in done.stderr
    assert not wheels
