#!/usr/bin/env python3
"""Run tests on a GPU under NVIDIA's compute-sanitizer, with each of its tools, and tell what they found.

    tools/sanitize.py tests/ops/layer_norm/test_layer_norm_gpu.py
    tools/sanitize.py --tools memcheck,racecheck tests/ops -k "odd or aligned"

Whatever is no option of this program goes to pytest. The tools run side by side; what each printed stands in --logs.
Exit code: 0 where all are clean and the tests passed, else 1.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
OPTIONS = {
    "memcheck": ["--report-api-errors", "no"],  # libraries ask the driver what it may refuse, and mean it
    "racecheck": ["--show-backtrace", "no"],  # a stack for every hazard takes minutes
}


def main() -> int:
    """Run the tools and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default=",".join(TOOLS), help="which, separated by commas; by default all four")
    parser.add_argument("--logs", type=Path, default=Path("sanitizer"), help="folder for the output (%(default)s)")
    parser.add_argument("--program", default="compute-sanitizer", help="the sanitizer (%(default)s)")
    options, tests = parser.parse_known_args()
    tools: list[str] = options.tools.split(",")
    unknown = [tool for tool in tools if tool not in TOOLS]
    if unknown:
        parser.error(f"unknown tool {unknown[0]!r}; known are {', '.join(TOOLS)}")
    program = shutil.which(str(options.program))
    if program is None:
        parser.error(f"{options.program} is not there; it comes with the CUDA toolkit")
    options.logs.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(len(tools)) as pool:
        logs = [options.logs / f"{tool}.log" for tool in tools]
        found = list(pool.map(partial(_run, program, tests), tools, logs))
    for tool, (clean, text) in zip(tools, found, strict=True):
        print(f"{tool}: {text}")
        if not clean:
            print(f"    see {options.logs / f'{tool}.log'}")
    return 0 if all(clean for clean, _ in found) else 1


def _run(program: str, tests: list[str], tool: str, log: Path) -> tuple[bool, str]:
    """Whether it is clean, and its summary with that of pytest."""
    sanitizer = [program, "--tool", tool, *OPTIONS.get(tool, [])]
    pytest = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-W", "default", *tests]
    with log.open("wb") as file:
        subprocess.run([*sanitizer, *pytest], stdout=file, stderr=subprocess.STDOUT, cwd=ROOT, check=False)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    summaries = [line.lstrip("= ") for line in lines if "SUMMARY:" in line]
    results = [line.strip("= ") for line in lines if re.search(r"\d+ (passed|failed|errors? in)", line)]
    text = "; ".join([*summaries[-1:], *results[-1:]]) or "no summary: it did not run to its end"
    clean = bool(summaries and results) and not re.search(r"[1-9]\d* (errors|hazards)", summaries[-1])
    return clean and not re.search(r"failed|error", results[-1]), text


if __name__ == "__main__":
    sys.exit(main())
