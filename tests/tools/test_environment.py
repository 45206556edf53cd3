"""The environment of tools/test: where there is a GPU, its pack is built, taken from a file, or left out."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import environment
import pytest

PYTHON = Path("python")


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """What is run by the environment's interpreter, which has what compiles kernels; nothing is."""
    seen: list[list[str]] = []

    def run(command: Any, **_: Any) -> subprocess.CompletedProcess[str]:
        seen.append([str(each) for each in command])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(environment.subprocess, "run", run)
    monkeypatch.setattr(environment, "_installed", lambda *extras: PYTHON)
    monkeypatch.setattr(environment, "has_gpu", lambda: True)
    monkeypatch.setattr(environment, "PACKS", tmp_path / "packs")
    monkeypatch.delenv("GRADKERN_PACK", raising=False)
    return seen


def test_the_pack_of_the_gpu_is_built_in_the_checkout(commands: list[list[str]], tmp_path: Path) -> None:
    assert environment.python("test") == PYTHON
    assert commands[-1] == ["python", "-m", "gradkern", "pack", "build", "--refresh", str(tmp_path / "packs")]
    assert (tmp_path / "packs").is_dir()


def test_it_may_be_taken_from_a_file(commands: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADKERN_PACK", "sm_90.pack")
    environment.python("test")
    assert commands[-1] == ["python", "-m", "gradkern", "pack", "install", "sm_90.pack"]


@pytest.mark.parametrize("why", ["told not to", "no GPU", "no compiler"])
def test_it_may_be_left_out(commands: list[list[str]], monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    if why == "told not to":
        monkeypatch.setenv("GRADKERN_PACK", "0")
    elif why == "no GPU":
        monkeypatch.setattr(environment, "has_gpu", lambda: False)
    else:
        monkeypatch.setattr(environment.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1))
    assert environment.python("test") == PYTHON
    assert not [each for each in commands if "pack" in each]


def test_ctrl_c_leaves_it_out(
    commands: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = environment.subprocess.run

    def interrupted(command: Any, **more: Any) -> Any:
        run(command, **more)
        if "pack" in command:
            raise KeyboardInterrupt
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(environment.subprocess, "run", interrupted)
    assert environment.python("test") == PYTHON
    assert "kernels are compiled when they are first needed" in capsys.readouterr().err
