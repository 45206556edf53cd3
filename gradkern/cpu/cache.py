"""Compiled kernels on disk: one file per kernel and tuple of argument types. Read and written without Numba.

A file is: magic, SHA-256 of all that follows, the file's own name, a newline, what Numba pickled of the compilation.
The name is a digest of all that can change the machine code; that it is repeated shows a file under another's name.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from gradkern.system import cache_files

__all__ = ["folder", "read", "write"]

_MAGIC = b"gradkern cpu 1\n"
_MOST = 2048  # files; those of other versions among them


def folder() -> Path:
    """Where kernels are cached."""
    return cache_files.folder("cpu")


def read(path: Path) -> bytes:
    """What Numba pickled. Raises OSError where a file cannot be read, or must not be; ValueError where it is not what
    its name says.
    """
    body = cache_files.unseal(_MAGIC, cache_files.read(path))
    name, _, pickled = body.partition(b"\n")
    if name != path.name.encode():
        raise ValueError("it holds another kernel")
    return pickled


def write(path: Path, pickled: bytes) -> None:
    """Cache a kernel. Where nothing can be written, it lives in this process only."""
    with contextlib.suppress(OSError):
        cache_files.write(path, cache_files.seal(_MAGIC, path.name.encode() + b"\n" + pickled))
        cache_files.keep_newest("cpu", _MOST)
