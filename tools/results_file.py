"""The file of a benchmark's results: what it says of the machine, how rows are added to it, how it is written."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench_rows import Row

__all__ = ["SCHEMA", "commit", "joined", "machine", "write"]

SCHEMA = 1
_HOST = ("processor", "cores", "system")


def joined(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The rows of two runs; a row measured again replaces the older. Refused where they ran on different machines: of a
    GPU, the host around it does not matter.
    """
    apart = {
        key: (before["machine"].get(key), value)
        for key, value in after["machine"].items()
        if key not in ("commands", "date", "commit", *(_HOST if "gpu" in after["machine"] else ()))
        and before["machine"].get(key) != value
    }
    if apart:
        sys.exit(f"--append: the file's results come from another machine or other versions: {apart}")

    def what(row: Row) -> str:
        return json.dumps([row[key] for key in ("operator", "types", "size", "outputs")])

    new = {what(row) for row in after["rows"]}
    machine = {**after["machine"], "commands": before["machine"]["commands"] + after["machine"]["commands"]}
    return {**after, "machine": machine, "rows": [r for r in before["rows"] if what(r) not in new] + after["rows"]}


def machine(gpu: bool) -> dict[str, Any]:
    """The machine, the versions, the commit, the command and the day: all that results depend on."""
    packages = {}
    for name in (
        "gradkern",
        "numpy",
        "numba",
        "llvmlite",
        "numba-cuda",
        "cuda-bindings",
        "torch",
        "triton",
        "liger-kernel",
        "torchvision",
        "timm",
        "transformers",
        "diffusers",
        "monai",
    ):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": packages,
        "commands": [shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])],
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
        **(_gpu() if gpu else {}),
    }


def commit() -> str:
    """What is measured: the environment variable COMMIT, else Git's HEAD."""
    if named := os.environ.get("COMMIT"):
        return named
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        found = ""
    return found or "unknown"


def _gpu() -> dict[str, Any]:
    import gpu_timing  # needs PyTorch

    return gpu_timing.machine()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(path)
