"""Files that outlive the process: compiled kernels and what searches found, in one folder with a subfolder for each.

A file is written in one step, with a digest that is checked when it is read. Machine code is run, so nothing is read
that another user owns or may write: files and folders are made for their owner alone, root's are taken as well (a cache
that was built into an image). A subfolder is gradkern's where it has gradkern's CACHEDIR.TAG (bford.info/cachedir), or
nothing but names that gradkern gives; in any other nothing is written, and nothing but such names is ever removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import tempfile
import time
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any

from gradkern.errors import GradkernError

__all__ = [
    "FOLDERS",
    "clear",
    "entries",
    "folder",
    "keep_newest",
    "locked",
    "read",
    "read_own",
    "replace",
    "root",
    "seal",
    "size",
    "unseal",
    "why_not_trusted",
    "why_not_used",
    "why_not_writable",
    "write",
]

FOLDERS = {"cpu": ".kernel", "cuda": ".cubin", "packs": ".pack", "search": ".json"}
"""The subfolders and the suffix of the files in each: kernels by provider, packs of kernels that came ready, and what
searches among candidates found.
"""

_TAG = "CACHEDIR.TAG"
_SIGNATURE = b"Signature: 8a477f597d28d172789f06886806bc55\n# Made by gradkern: `gradkern cache clear` empties it.\n"
_ENTRY = re.compile(r"(\w+-)?[0-9a-f]{64}\.(kernel|cubin|json)|(sm|compute)_\d+\.pack")
_NEW, _LOCKS = ".new-", ".locks"
_ABANDONED = 3600  # seconds after which no process is still writing a file
_NAMES = re.compile(
    rf"{_ENTRY.pattern}|\{_NEW}\w+|\{_LOCKS}|[0-9a-f]{{16}}"
)  # the last: kernels before they were files

_warned: set[Path] = set()


def root() -> Path:
    """The folder of all; GRADKERN_CACHE_DIR names another."""
    named = os.environ.get("GRADKERN_CACHE_DIR")
    if named:
        try:
            return Path(named).expanduser()
        except RuntimeError as error:
            raise GradkernError(f"GRADKERN_CACHE_DIR is {named!r}: {error}") from error
    import platformdirs

    return platformdirs.user_cache_path("gradkern", appauthor=False)


def folder(name: str) -> Path:
    """One of `FOLDERS`."""
    return root() / name


def entries(name: str) -> list[Path]:
    """The files in one of `FOLDERS` that have a name gradkern gives."""
    with contextlib.suppress(OSError):
        found = sorted(folder(name).iterdir())
        return [path for path in found if path.suffix == FOLDERS[name] and _ENTRY.fullmatch(path.name)]
    return []


def newest(name: str) -> list[Path]:
    """As `entries`, those that were written last first."""
    times: dict[Path, float] = {}
    for path in entries(name):
        with contextlib.suppress(OSError):  # what another process removes at the same time
            times[path] = path.stat().st_mtime
    return sorted(times, key=times.__getitem__, reverse=True)


def keep_newest(name: str, most: int) -> None:
    """Remove the files written longest ago until at most so many are left, and what a killed process has left half."""
    with contextlib.suppress(OSError):  # what another process removes at the same time, or none may remove
        for path in newest(name)[most:]:
            path.unlink(missing_ok=True)
        for path in folder(name).glob(f"{_NEW}*"):
            if time.time() - path.stat().st_mtime > _ABANDONED:
                path.unlink(missing_ok=True)


def size(name: str) -> int:
    """Bytes in these files."""
    total = 0
    for path in entries(name):
        with contextlib.suppress(OSError):  # another process has removed it
            total += path.stat().st_size
    return total


def why_not_writable() -> str | None:
    """Why no file can be written, in the system's words; None where it can. Makes the folder."""
    try:
        _make(root())
        tempfile.TemporaryFile(dir=root()).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def why_not_used(name: str) -> str | None:
    """Why one of `FOLDERS` is neither read nor written; None where it is, or is not there."""
    return why_not_trusted(folder(name)) or _not_ours(folder(name))


def why_not_trusted(path: Path) -> str | None:
    """Whether another user owns this, or may write it."""
    try:
        return _another_users(path.stat())
    except OSError:
        return None


def _another_users(status: os.stat_result) -> str | None:
    if not hasattr(os, "geteuid"):
        return None
    if status.st_uid not in (0, os.geteuid()):
        return f"it belongs to another user (uid {status.st_uid})"
    return "other users may write it" if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else None


def _not_ours(path: Path) -> str | None:
    """Whether a folder holds what gradkern did not put there."""
    try:
        names = os.listdir(path)  # before the tag is looked for: what is there then was put there after it
        if (path / _TAG).is_file() and (path / _TAG).read_bytes().startswith(_SIGNATURE[:43]):
            return None
    except OSError:
        return None
    foreign = next((each for each in names if not _NAMES.fullmatch(each)), None)
    return None if foreign is None else f"it is not gradkern's: it has {foreign!r} and no {_TAG} of gradkern"


def seal(magic: bytes, body: bytes) -> bytes:
    """A file's content: magic, the SHA-256 of the body, the body."""
    return magic + hashlib.sha256(body).digest() + body


def unseal(magic: bytes, data: bytes) -> bytes:
    """The body of a sealed file. Raises ValueError, with the reason, where it is not as it was written."""
    start = len(magic) + 32
    if data[: len(magic)] != magic:
        raise ValueError("it is no file of this format")
    body = data[start:]
    if hashlib.sha256(body).digest() != data[len(magic) : start]:
        raise ValueError("its digest does not fit its content")
    return body


def read(path: Path) -> bytes:
    """A file's content. Raises OSError where it cannot be read, or must not be: then with one warning."""
    with path.open("rb") as file:
        reason, at = why_not_trusted(path.parent), path.parent
        if reason is None:
            reason, at = _another_users(os.fstat(file.fileno())), path
        if reason is not None:
            raise _refusal(at, reason)
        return file.read()


def read_own(path: Path) -> bytes:
    """The content of a file that a user has named. Raises OSError where it cannot be read, ValueError, with the reason,
    where another user owns it or may write it.
    """
    with path.open("rb") as file:
        reason = _another_users(os.fstat(file.fileno()))
        if reason is not None:
            raise ValueError(reason)
        return file.read()


def write(path: Path, data: bytes) -> None:
    """Write a file in one step or not at all, whoever else writes it at the same time.

    Raises OSError where it cannot be written, or must not be: then with one warning.
    """
    _claim(path.parent)
    replace(path, data)


def replace(path: Path, data: bytes) -> None:
    """Write a file of the user's own in one step or not at all. Raises OSError where it cannot be written."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=_NEW)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _make(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def _claim(path: Path) -> None:
    """Make a folder, for its owner alone, and put the tag there. Raises OSError where that must not be."""
    _make(path.parent)
    _make(path)
    reason = why_not_trusted(path) or _not_ours(path)
    if reason is not None:
        raise _refusal(path, reason)
    if not (path / _TAG).exists():
        replace(path / _TAG, _SIGNATURE)  # in one step: who sees it empty takes the folder for another's


def _refusal(path: Path, reason: str) -> PermissionError:
    if path not in _warned:
        _warned.add(path)
        text = f"gradkern: {path} is not used: {reason}; `gradkern doctor` says how to mend it"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    return PermissionError(f"{path}: {reason}")


def clear(name: str) -> str | None:
    """Remove what gradkern has put into one of `FOLDERS`; why something is left, or None."""
    path = folder(name)
    if not path.is_dir():
        return None
    reason = _not_ours(path)
    if reason is not None:
        return reason
    try:
        for each in path.iterdir():
            if each.name.startswith(_NEW) or _ENTRY.fullmatch(each.name):
                each.unlink(missing_ok=True)
            elif each.name == _LOCKS:
                for lock in each.iterdir():
                    lock.unlink(missing_ok=True)
                each.rmdir()
        if [each.name for each in path.iterdir()] in ([], [_TAG]):
            (path / _TAG).unlink(missing_ok=True)
            path.rmdir()
    except OSError as error:
        return f"{error.strerror or error}: {error.filename}"
    return None


@contextlib.contextmanager
def locked(name: str, key: str, seconds: float) -> Generator[bool]:
    """Alone among the processes of this machine that ask for the same key in one of `FOLDERS`; after `seconds`, or
    where files cannot be locked, not alone. Says which: True, False of another process that has it, and True where
    nobody can lock. The system lets go of the lock of a process that dies.
    """
    try:
        import fcntl

        _claim(folder(name))
        _make(folder(name) / _LOCKS)
        file = (folder(name) / _LOCKS / key).open("ab")
    except (ImportError, OSError):
        yield True
        return
    with file:
        yield _lock(fcntl, file, time.monotonic() + seconds)


def _lock(fcntl: Any, file: Any, end: float) -> bool:
    """Whether nobody else has it; tried once, and again until that time."""
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.02)
        except OSError:  # a file system without locks
            return True
