"""The checks a reviewer would run by hand: lint, format, types, and the direction of imports."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CHECKS = {
    "ruff check": ["ruff", "check", "."],
    "ruff format": ["ruff", "format", "--check", "."],
    "pyright": ["pyright", "--pythonpath", sys.executable],
    "import-linter": ["lint-imports"],
}


@pytest.mark.parametrize("name", CHECKS)
def test_the_code_is_clean(name: str) -> None:
    command = CHECKS[name]
    beside = Path(sys.executable).with_name(command[0])
    program = str(beside) if beside.exists() else shutil.which(command[0])
    assert program is not None, f"{command[0]} is not installed: pip install gradkern[test]"
    done = subprocess.run([program, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_is_what_the_registry_and_the_results_make_of_it() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "tools" / "readme.py", "--check"], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stdout + made.stderr
