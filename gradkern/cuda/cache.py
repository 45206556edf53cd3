"""Compiled kernels on disk: one file per kernel, checked by a digest, replaced atomically.

A file is: magic, SHA-256 of all that follows, length of the header, header (JSON), cubin. The name is a digest of all
that can change the machine code; the header repeats it, so that a file put under another's name is noticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import warnings
from collections.abc import Callable
from functools import cache
from importlib import metadata
from pathlib import Path

from gradkern.cuda.compile import Compiled
from gradkern.system import cache_files, sources
from gradkern.system.interrupts import deferred

__all__ = ["fetch", "folder", "key_of", "read"]

_MAGIC = b"gradkern cubin 2"
_PACKAGES = ("numba", "numba-cuda", "llvmlite", "cuda-core", "cuda-bindings")
_COMPILERS = ("nvidia-nvjitlink", "nvidia-nvvm", "nvidia-cuda-nvcc")  # each with the suffix of its CUDA major or none


def folder() -> Path:
    """Where kernels are kept."""
    return cache_files.folder("cuda")


def read(path: Path) -> Compiled:
    """The kernel in a file. Raises OSError where it cannot be read, ValueError where it is not what its name says."""
    return _decode(cache_files.read(path), path.stem)


def key_of(module: str, description: str, capability: tuple[int, int]) -> str:
    """The name of one kernel: its module's sources and the compiler's, constants, device, and all that compiles it."""
    parts = [sources.digest(module, "gradkern.cuda.compile"), _versions(), description, capability]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def fetch(key: str, build: Callable[[], Compiled]) -> Compiled:
    """The kernel of this key, from disk; else built and kept. A bad file is rebuilt, with one warning."""
    path = folder() / f"{key}.cubin"
    try:
        return read(path)
    except OSError:
        pass  # not there, or not readable: build it
    except ValueError as error:
        warnings.warn(f"gradkern: {path} is rebuilt: {error}", RuntimeWarning, stacklevel=2)
    with deferred():  # an interrupt within would be lost in a function that LLVM calls
        compiled = build()
    with contextlib.suppress(OSError):  # an unwritable cache: the kernel lives in this process only
        cache_files.write(path, _encode(compiled, key))
    return compiled


@cache
def _versions() -> tuple[str, ...]:
    names = [*_PACKAGES, *(name + suffix for name in _COMPILERS for suffix in ("", "-cu12", "-cu13"))]
    return tuple(f"{name} {version}" for name in names if (version := _version(name)))


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _encode(compiled: Compiled, key: str) -> bytes:
    about = {"name": compiled.name, "registers": compiled.registers, "spilled": compiled.spilled}
    header = json.dumps({"key": key, **about}).encode()
    body = len(header).to_bytes(4, "little") + header + compiled.cubin
    return cache_files.seal(_MAGIC, body)


def _decode(data: bytes, key: str) -> Compiled:
    body = cache_files.unseal(_MAGIC, data)
    length = int.from_bytes(body[:4], "little")
    header = json.loads(body[4 : 4 + length])
    if header["key"] != key:
        raise ValueError("it holds another kernel")
    return Compiled(body[4 + length :], header["registers"], header["spilled"], header["name"])
