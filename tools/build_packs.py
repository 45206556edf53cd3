"""The build hook that puts packs into the wheel: kernels that come ready, for the architectures that are named.

    GRADKERN_WHEEL_PACKS=sm_90 pip wheel --no-deps .       also `python -m build --wheel`
    GRADKERN_WHEEL_PACKS=sm_80,sm_90,compute_90 ...        a pack for each; compute_90 is PTX for newer GPUs
    GRADKERN_WHEEL_CALLS=calls.jsonl ...                   kernels of these calls, in place of the popular ones

It needs no GPU. Every kernel is compiled anew, by all processors, and what it needs for that is fetched for the build.
Without GRADKERN_WHEEL_PACKS the wheel has no packs, and is built in a moment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKS, CALLS = "GRADKERN_WHEEL_PACKS", "GRADKERN_WHEEL_CALLS"
INSIDE = "gradkern/packs"
"""Where a wheel has its packs: `gradkern.cuda.packs.PACKAGED`."""


class PacksHook(BuildHookInterface):
    """Builds what the environment's variables ask for into a folder of its own, from which it enters the wheel."""

    _folder: tempfile.TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """What compiles kernels: all that gradkern needs, for CUDA too."""
        if not os.environ.get(PACKS):
            return []
        project = self.metadata.core
        return [*project.dependencies, *project.optional_dependencies["cuda-compilers"]]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the packs. Raises RuntimeError where that fails."""
        architectures = os.environ.get(PACKS)
        if not architectures or version == "editable":
            return
        start = time.perf_counter()
        self._folder = tempfile.TemporaryDirectory(prefix="gradkern-packs-")
        made, cache = (Path(self._folder.name) / each for each in ("packs", "cache"))
        made.mkdir()
        command = [sys.executable, "-m", "gradkern", "pack", "build", str(made), "--arch", architectures]
        command += ["--calls", os.environ[CALLS]] if os.environ.get(CALLS) else []
        path = os.pathsep.join([self.root, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, "GRADKERN_CACHE_DIR": str(cache)}
        if subprocess.run(command, env=environment, check=False).returncode:
            raise RuntimeError(f"{PACKS}={architectures}: the packs could not be built")
        for pack in sorted(made.iterdir()):
            build_data["force_include"][str(pack)] = f"{INSIDE}/{pack.name}"
            self.app.display_info(f"{pack.name}: {pack.stat().st_size / 1e6:.1f} MB")
        self.app.display_info(f"packs compiled in {time.perf_counter() - start:.0f} s")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the folder."""
        if self._folder is not None:
            self._folder.cleanup()
