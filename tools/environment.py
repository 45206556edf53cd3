"""The environment that tools/demo and tools/test run in: made from pyproject.toml, once, in .venv beside it.

Needs Python 3.11 or newer with pip and venv, and nothing else. What is there already is not fetched again, so that the
second run works without a network.

Where there is a GPU whose packages are installed, the kernels of popular calls are compiled for it, into a pack in the
checkout: some 40 minutes of one core, shared by all, with a bar. That is done again when sources of kernels have
changed, and then for those alone. GRADKERN_PACK=FILE takes the pack from a file; GRADKERN_PACK=0 leaves it out, as
Ctrl-C does: kernels are then compiled when they are first needed.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".venv"
STAMP = HOME / "gradkern.json"
"""Which extras of which pyproject.toml are installed, by which Python. An environment without it is somebody else's."""


PACKS = ROOT / "gradkern" / "packs"


def python(*extras: str, pack: bool = True) -> Path:
    """The interpreter of an environment with gradkern and these extras of pyproject.toml, and a pack for its GPU."""
    interpreter = _installed(*extras)
    if pack and has_gpu():
        _take_pack(interpreter, os.environ.get("GRADKERN_PACK", ""))
    return interpreter


def _installed(*extras: str) -> Path:
    interpreter = HOME / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    source = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    made = _stamp()
    same = made.get("pyproject") == source and made.get("python") == sys.version and made.get("root") == str(ROOT)
    if same and set(extras) <= set(made.get("extras", ())) and interpreter.exists():
        return interpreter
    if HOME.is_symlink() or (HOME.exists() and not made):
        sys.exit(f"{HOME} would be replaced, but was not made by this command: move it away, or remove it")
    wanted = sorted({*extras, *made.get("extras", ())}) if same else sorted(extras)
    print(f"making {HOME} with gradkern[{','.join(wanted)}]", file=sys.stderr, flush=True)
    venv.create(HOME, clear=not same)
    made = {"pyproject": source, "python": sys.version, "root": str(ROOT)}
    STAMP.write_text(json.dumps(made))  # where this does not end, it is taken up again
    venv.create(HOME, with_pip=True)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-e", f"{ROOT}[{','.join(wanted)}]"]
    subprocess.run([interpreter, *install], check=True)
    STAMP.write_text(json.dumps({**made, "extras": wanted}))
    return interpreter


def has_gpu() -> bool:
    """Whether the NVIDIA driver of Linux shows one."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def _take_pack(interpreter: Path, wanted: str) -> None:
    """Have the kernels of popular calls ready. What fails is told, and no obstacle."""
    installed = "import importlib.util as util, sys; sys.exit(util.find_spec('numba_cuda') is None)"
    if wanted == "0" or subprocess.run([interpreter, "-c", installed], check=False).returncode:
        return
    PACKS.mkdir(exist_ok=True)
    command = ["install", wanted] if wanted else ["build", "--refresh", str(PACKS)]
    try:
        quiet = subprocess.DEVNULL  # the bar, and what fails, is on standard error
        subprocess.run([interpreter, "-m", "gradkern", "pack", *command], cwd=ROOT, stdout=quiet, check=False)
    except KeyboardInterrupt:
        print("no pack: kernels are compiled when they are first needed", file=sys.stderr)


def become(interpreter: Path, *arguments: str | Path) -> None:
    """Run a command of the environment and end with its exit code."""
    sys.exit(subprocess.run([interpreter, *arguments], check=False).returncode)


def _stamp() -> dict:
    try:
        return json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}


if sys.version_info < (3, 11):  # noqa: UP036  it is run by whatever Python is there
    sys.exit(f"gradkern needs Python 3.11 or newer; this is {sys.version.split()[0]}")
