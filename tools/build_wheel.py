#!/usr/bin/env python3
"""Build gradkern's wheel with packs in it: kernels that come ready, for the GPUs that are named.

    tools/build_wheel.py                                   for sm_90, with all processors
    tools/build_wheel.py --arch sm_80,sm_90 --jobs 2       for two architectures, two kernels at a time
    tools/build_wheel.py --calls calls.jsonl               kernels of these calls, in place of the popular ones

It needs no GPU. Every kernel is compiled anew. The wheel is written to dist/, and its size and that of each pack are
told, with the time that they took.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKS = Path("gradkern") / "packs"  # what pyproject.toml puts into the wheel though git ignores it


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what the command line asks for. Returns the exit code of what failed, or 0."""
    options = _options(arguments)
    start = time.perf_counter()
    packs = options.root / PACKS
    shutil.rmtree(packs, ignore_errors=True)
    packs.mkdir()
    try:
        with tempfile.TemporaryDirectory(prefix="gradkern-wheel-") as cache:
            command = ["-m", "gradkern", "pack", "build", str(packs), "--arch", options.arch]
            command += ["--jobs", str(options.jobs)] * bool(options.jobs) + ["--calls", options.calls] * bool(
                options.calls
            )
            code = _run(command, options.root, cache)
        compiled = time.perf_counter() - start
        code = code or _run(["-m", "hatchling", "build", "-t", "wheel", "-d", str(options.out)], options.root)
        if code:
            return code
        for pack in sorted(packs.iterdir()):
            print(f"{pack.name}: {pack.stat().st_size / 1e6:.1f} MB")
    finally:
        shutil.rmtree(packs)  # in a checkout they would soon be of other sources
    wheel = max(options.out.glob("*.whl"), key=lambda path: path.stat().st_mtime)
    seconds = time.perf_counter() - start
    print(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB, in {seconds:.0f} s, {compiled:.0f} of them for the packs")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="sm_90", help="architectures, with commas between (%(default)s)")
    parser.add_argument("--jobs", type=int, help="kernels compiled at once; by default one a processor")
    parser.add_argument("--calls", metavar="FILE", help="calls as of `gradkern warmup --calls`")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the wheel goes (%(default)s)")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _run(command: Sequence[str], root: Path, cache: str | None = None) -> int:
    """The exit code of this Python on the checkout."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    if cache is not None:
        environment["GRADKERN_CACHE_DIR"] = cache
    return subprocess.run([sys.executable, *command], cwd=root, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
