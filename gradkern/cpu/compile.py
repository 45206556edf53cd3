"""Kernels: Numba functions, compiled once for each tuple of argument types and kept on disk.

Numba's own cache does the keeping, with its faults fenced off. It does not see a change in another module that a
kernel calls: every kernel source of gradkern is in the folder's name. Two processes that compile several signatures of
one function at once may pair one's index with the other's data: every signature has a folder of its own, so whichever
data the index names is right. It raises on a damaged file: the folder is removed and the kernel compiled anew. It falls
back to the folder of the source when its own is not writable: then nothing is kept.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core import config
from numba.core.errors import NumbaError
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from gradkern.system import cache_files

__all__ = [
    "AS_WRITTEN",
    "FASTMATH",
    "INLINE",
    "Kernel",
    "cache_folder",
    "clear_cache",
    "instruction",
    "kernel",
    "settings",
    "target",
]

# Sums may be reordered, which vector code needs, and a zero's sign is free. Nothing lets LLVM forget NaN or Inf. Not
# "contract": a - b must be 0 where a and b are the same product, and is not when only one of them is rounded.
FASTMATH = {"reassoc", "nsz"}
# For functions that kernels call: inlined, so that the loop around them becomes vector code, and not reordered.
INLINE: Any = {"error_model": "numpy", "fastmath": {"nsz", "contract"}, "forceinline": True}
# For what is stored, element by element: neither reordered nor contracted. LLVM takes the vector code of a loop only
# where the arrays lie far enough apart, and elsewhere its scalar code must give the same bits.
AS_WRITTEN: Any = {**INLINE, "fastmath": {"nsz"}}
KEPT_VERSIONS = 8

settings: Any = config  # whose names Numba makes at import
_lock = threading.RLock()


class Kernel:
    """A kernel's Python function, and its compiled form for each tuple of argument types asked for.

    `kernel(*types)` compiles on first use and returns the compiled function, which takes arrays of exactly those types.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function
        self.name = f"{function.__module__}.{function.__qualname__}"
        self._compiled: dict[tuple[Any, ...], Callable[..., None]] = {}

    def __call__(self, *arguments: Any) -> Callable[..., None]:
        compiled = self._compiled.get(arguments)
        if compiled is None:
            with _lock:
                compiled = self._compiled.get(arguments)
                if compiled is None:
                    compiled = self._compiled[arguments] = self._load_or_compile(arguments)
        return compiled

    def _load_or_compile(self, arguments: tuple[Any, ...]) -> Callable[..., None]:
        folder = _writable(cache_folder() / self._folder_name(arguments))
        if folder is not None:
            try:
                return self._compile(arguments, folder)
            except NumbaError:
                raise
            except Exception as error:  # a damaged file raises anything
                shutil.rmtree(folder, ignore_errors=True)
                reason = f"gradkern: {folder} is unusable ({error!r}); compiling anew"
                warnings.warn(reason, RuntimeWarning, stacklevel=5)
        return self._compile(arguments, None)

    def _compile(self, arguments: tuple[Any, ...], folder: Path | None) -> Callable[..., None]:
        compiled = numba.njit(nogil=True, error_model="numpy", fastmath=FASTMATH)(self.function)
        if folder is not None:
            _keep(compiled, folder)
        compiled.compile(types.void(*arguments))
        compiled.disable_compile()
        return compiled

    def _folder_name(self, arguments: tuple[Any, ...]) -> str:
        readable = re.sub(r"\W+", "_", self.function.__qualname__).strip("_")
        return f"{readable}-{hashlib.sha256(f'{self.name}{arguments}'.encode()).hexdigest()[:16]}"


def kernel(function: Callable[..., None]) -> Kernel:
    """Make a kernel of a function that returns nothing. Its loops run without the GIL; division is IEEE's."""
    return Kernel(function)


def instruction(function: Callable[..., Any]) -> Any:
    """A function for kernels that writes LLVM itself. Kernels call it without the first parameter."""
    return intrinsic(function)


def cache_folder() -> Path:
    """Where this version's compiled kernels are kept, for this CPU."""
    return cache_files.folder("cpu") / _version()


def clear_cache() -> None:
    """Remove every compiled kernel from the disk. Kernels already loaded stay."""
    shutil.rmtree(cache_files.folder("cpu"), ignore_errors=True)


@cache
def target() -> tuple[str, str, str]:
    """The machine compiled for: triple, name of the CPU, features as LLVM writes them."""
    context: Any = cpu_target.target_context
    return context.codegen().magic_tuple()


@cache
def _version() -> str:
    """A digest of all that compiled code depends on beside its own signature."""
    package = Path(__file__).parents[1]
    sources = sorted([*package.glob("cpu/*.py"), *package.glob("ops/*/cpu.py"), *package.glob("ops/*/cpu/*.py")])
    digest = hashlib.sha256()
    for part in (sys.version, numba.__version__, np.__version__, *target()):
        digest.update(f"{part}\n".encode())
    for source in sources:
        digest.update(source.relative_to(package).as_posix().encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _writable(folder: Path) -> Path | None:
    """The folder, made if need be; None if nothing can be written there."""
    try:
        if not folder.parent.exists():
            _forget_old_versions(folder.parents[1])
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return None
    return folder


def _forget_old_versions(root: Path) -> None:
    """Bound the cache: keep the folders of the versions that were written to last."""
    if root.is_dir():
        versions = sorted(root.iterdir(), key=lambda version: version.stat().st_mtime, reverse=True)
        for version in versions[KEPT_VERSIONS - 1 :]:
            shutil.rmtree(version, ignore_errors=True)


def _keep(compiled: Any, folder: Path) -> None:
    """Let Numba keep a function in this folder. It reads config.CACHE_DIR only while caching is switched on."""
    before = settings.CACHE_DIR
    settings.CACHE_DIR = str(folder)
    try:
        compiled.enable_caching()
    finally:
        settings.CACHE_DIR = before
    if not Path(compiled.stats.cache_path).is_relative_to(folder):
        raise OSError("Numba chose another folder")
