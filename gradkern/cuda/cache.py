"""Compiled kernels on disk: one file per kernel, checked by a digest, replaced atomically.

A file is: magic, SHA-256 of all that follows, the file's own name, a newline, the kernel (`Compiled.packed`). The name
is a digest of all that can change the machine code; that it is repeated shows a file under another's name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path

from gradkern.cuda.compile import Compiled
from gradkern.cuda.spec import source_digest
from gradkern.system import cache_files
from gradkern.system.notice import warn
from gradkern.system.own_thread import in_own_thread
from gradkern.system.packages import installed

_MAGIC = b"gradkern cubin 3"
_OTHERS_BUILD = 60.0  # seconds to wait for another process that builds the same
_PACKAGES = ("numba", "numba-cuda", "llvmlite", "cuda-core", "cuda-bindings")
_COMPILERS = ("nvidia-nvjitlink", "nvidia-nvvm", "nvidia-cuda-nvcc")  # each with the suffix of its CUDA major or none


_held: dict[str, Compiled] = {}
"""Kernels compiled ahead that could not be written to disk."""


def read(path: Path) -> Compiled:
    """The kernel in a file. Raises OSError if it cannot be read, ValueError if its content does not match its name."""
    return Compiled.unpacked(cache_files.unseal(_MAGIC, cache_files.read(path), path.stem))


def key_of(module: str, description: str, capability: tuple[int, int]) -> str:
    """The key of one kernel: a digest of its module's sources and the compiler's, constants, device, and compiler
    versions.
    """
    parts = [source_digest(module), versions(), description, capability]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def has(key: str) -> bool:
    """Whether there is a kernel of this key."""
    return key in _held or os.path.exists(cache_files.path_of("cuda", key))  # never raises for a missing folder


def load(key: str) -> Compiled | None:
    """The kernel of this key, if it is cached; None, with one warning, for a damaged file."""
    if key in _held:
        return _held[key]
    path = cache_files.path_of("cuda", key)
    try:
        return read(path)
    except OSError:
        return None  # not there, or not readable
    except ValueError as error:
        warn(f"gradkern: {path} is rebuilt: {error}", stacklevel=3)
        return None


def keep(key: str, compiled: Compiled) -> None:
    """Keep a kernel on disk. If nothing can be written, it is only in memory."""
    with contextlib.suppress(OSError):
        cache_files.write(cache_files.path_of("cuda", key), cache_files.seal(_MAGIC, compiled.packed(), key))


def hold(key: str, compiled: Compiled) -> None:
    """Keep a kernel for later: on disk, or in this process if nothing can be written."""
    keep(key, compiled)
    if not os.path.exists(cache_files.path_of("cuda", key)):
        _held[key] = compiled


def fetch(key: str, build: Callable[[], Compiled]) -> Compiled:
    """The kernel of this key, from disk, or built and kept. If several processes need it, one builds it."""
    compiled = load(key)
    if compiled is not None:
        return compiled
    with alone_with(key):
        with contextlib.suppress(OSError, ValueError):  # another process may have built it meanwhile
            return read(cache_files.path_of("cuda", key))
        compiled = in_own_thread(build)
        keep(key, compiled)
    return compiled


def alone_with(key: str, seconds: float = _OTHERS_BUILD) -> AbstractContextManager[bool]:
    """A lock among the processes of this machine that build the kernel of this key. It gives whether it was acquired
    within `seconds`.
    """
    return cache_files.locked("cuda", key, seconds)


@cache
def versions() -> tuple[str, ...]:
    """Of the packages that compile kernels."""
    names = [*_PACKAGES, *(name + suffix for name in _COMPILERS for suffix in ("", "-cu12", "-cu13"))]
    return tuple(f"{name} {version}" for name in names if (version := installed(name)))
