"""tools/sanitize.py, with a stand-in for the sanitizer."""

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.checkout import ROOT

TOOL = ROOT / "tools" / "sanitize.py"
CLEAN = {
    "memcheck": "========= ERROR SUMMARY: 0 errors",
    "racecheck": "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)",
}


def ran(folder: Path, passed: str, summary: str, tool: str = "memcheck") -> subprocess.CompletedProcess[str]:
    """The program's run where the sanitizer prints these two lines."""
    stand_in = folder / "sanitizer"
    stand_in.write_text(f"#!/bin/sh\necho \"$@\"\necho '{passed}'\necho '{summary}'\n")
    stand_in.chmod(0o755)
    command = [sys.executable, TOOL, "--program", stand_in, "--logs", folder / "logs", "--tools", tool, "tests/some.py"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("tool", CLEAN)
def test_a_clean_run_ends_with_0(tmp_path: Path, tool: str) -> None:
    run = ran(tmp_path, "3 passed in 1.0s", CLEAN[tool], tool)
    assert run.returncode == 0, run.stdout
    assert "3 passed" in run.stdout
    assert "SUMMARY: 0" in run.stdout
    arguments = (tmp_path / "logs" / f"{tool}.log").read_text().splitlines()[0]
    assert arguments.startswith(f"--tool {tool}")
    assert arguments.endswith("tests/some.py")


@pytest.mark.parametrize(
    ("tool", "passed", "summary"),
    [
        ("memcheck", "3 passed in 1.0s", "========= ERROR SUMMARY: 34 errors"),
        ("racecheck", "3 passed", "========= RACECHECK SUMMARY: 3 hazards displayed (2 errors, 1 warning)"),
        ("memcheck", "1 failed, 2 passed", CLEAN["memcheck"]),
        ("memcheck", "3 passed", ""),
        ("memcheck", "", CLEAN["memcheck"]),
    ],
)
def test_errors_hazards_failed_tests_and_no_end_are_told(tmp_path: Path, tool: str, passed: str, summary: str) -> None:
    run = ran(tmp_path, passed, summary, tool)
    assert run.returncode == 1
    assert str(tmp_path / "logs" / f"{tool}.log") in run.stdout


def test_a_missing_sanitizer_is_told(tmp_path: Path) -> None:
    command = [sys.executable, TOOL, "--program", tmp_path / "none"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "comes with the CUDA toolkit" in run.stderr
