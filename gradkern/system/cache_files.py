"""What is kept between processes: one folder for all, and how a file in it is written whole and checked when read."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

__all__ = ["KEPT", "folder", "locked", "opened", "replace", "root", "sealed", "why_not_writable"]

KEPT = ("cpu", "cuda", "search")
"""What has a folder: the providers that keep kernels, and what searches among candidates have found."""


def root() -> Path:
    """The folder of all that is kept; GRADKERN_CACHE_DIR names another."""
    named = os.environ.get("GRADKERN_CACHE_DIR")
    if named:
        return Path(named)
    import platformdirs

    return platformdirs.user_cache_path("gradkern", appauthor=False)


def folder(name: str) -> Path:
    """The folder of one of `KEPT`."""
    return root() / name


def why_not_writable() -> str | None:
    """Why no kernel can be kept, in the system's words; None where they can. Makes the folder."""
    try:
        root().mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=root()).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def sealed(magic: bytes, body: bytes) -> bytes:
    """A file's content: magic, the SHA-256 of the body, the body."""
    return magic + hashlib.sha256(body).digest() + body


def opened(magic: bytes, data: bytes) -> bytes:
    """The body of a sealed file. Raises ValueError, with the reason, where it is not as it was written."""
    start = len(magic) + 32
    if data[: len(magic)] != magic:
        raise ValueError("it is no file of this format")
    body = data[start:]
    if hashlib.sha256(body).digest() != data[len(magic) : start]:
        raise ValueError("its digest does not fit its content")
    return body


def replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, whoever else writes it at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def locked(path: Path, seconds: float) -> Generator[None]:
    """Alone among the processes of this machine that ask for the same path; after `seconds`, or where files cannot be
    locked, not alone. The system lets go of the lock of a process that dies.
    """
    try:
        import fcntl

        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    except (ImportError, OSError):
        yield
        return
    with file:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:  # a file system without locks
                break
        yield
