"""Compiled kernels on disk: one file per kernel and tuple of argument types. Read and written without Numba.

A file is: magic, SHA-256 of all that follows, the file's own name, a newline, Numba's pickled compilation.
The name is a digest of all that can change the machine code. Repeating it detects renamed files.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from gradkern.system import cache_files

_MAGIC = b"gradkern cpu 1\n"
_MOST = 2048  # files, including those of other versions


def read(path: Path) -> bytes:
    """Numba's pickled compilation. Raises OSError if a file cannot or must not be read, ValueError if its content does
    not match its name.
    """
    return cache_files.unseal(_MAGIC, cache_files.read(path), path.name)


def write(path: Path, pickled: bytes) -> None:
    """Cache a kernel. If nothing can be written, it is kept in this process only."""
    with contextlib.suppress(OSError):
        cache_files.write(path, cache_files.seal(_MAGIC, pickled, path.name))
        cache_files.keep_newest("cpu", _MOST)
