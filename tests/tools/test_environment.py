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


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What is installed into the environment of a checkout in tmp_path, in order; nothing is."""
    installed: list[str] = []

    def create(home: Path, *, with_pip: bool = False, clear: bool = False) -> None:
        if clear and home.exists():
            for each in home.rglob("*"):
                if each.is_file():
                    each.unlink()
        (home / "bin").mkdir(parents=True, exist_ok=True)
        (home / "bin" / "python").touch()

    def run(command: list[Any], **_: Any) -> None:
        installed.append(str(command[-1]))

    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(environment, "HOME", tmp_path / ".venv")
    monkeypatch.setattr(environment, "STAMP", tmp_path / ".venv" / "gradkern.json")
    monkeypatch.setattr(environment.venv, "create", create)
    monkeypatch.setattr(environment.subprocess, "run", run)
    return installed


def test_what_is_installed_is_not_installed_again(made: list[str], tmp_path: Path) -> None:
    for extras in (("test",), ("test",), ("demo",), ("test", "demo")):
        assert environment.python(*extras, pack=False) == tmp_path / ".venv" / "bin" / "python"
    assert made == [f"{tmp_path}[test]", f"{tmp_path}[demo,test]"]


def test_an_installation_that_was_interrupted_is_taken_up(
    made: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    run = environment.subprocess.run
    monkeypatch.setattr(environment.subprocess, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        environment.python("test", pack=False)
    monkeypatch.setattr(environment.subprocess, "run", run)
    environment.python("test", pack=False)
    assert made == [f"{tmp_path}[test]"]


@pytest.mark.parametrize("how", ["a folder", "a link"])
def test_an_environment_of_somebody_else_is_left_alone(made: list[str], tmp_path: Path, how: str) -> None:
    theirs = tmp_path / (".venv" if how == "a folder" else "theirs")
    theirs.mkdir()
    (theirs / "kept").touch()
    if how == "a link":
        (theirs / "gradkern.json").write_text('{"root": "of another checkout"}')
        (tmp_path / ".venv").symlink_to(theirs)
    with pytest.raises(SystemExit, match=r"\.venv would be replaced, but was not made by this command"):
        environment.python("test", pack=False)
    assert (theirs / "kept").exists()
    assert not made
