"""Files that outlive the process: compiled kernels and what searches found, in one folder with a subfolder for each.

A file is written in one step, with a digest that is checked when it is read. Machine code is run, so nothing is read
that another user owns or may write: files and folders are made for their owner alone, root's are taken as well (a cache
that was built into an image). A subfolder is gradkern's where it has gradkern's CACHEDIR.TAG (bford.info/cachedir), or
nothing but names that gradkern gives; in any other nothing is written or removed, and nothing but such names is ever
removed. The folders may be symbolic links that their user has made; in them no link is followed, and what is no regular
file is not opened, as a FIFO would hang who reads it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from gradkern.system.notice import warn

FOLDERS = {"cpu": ".kernel", "cuda": ".cubin", "packs": ".pack", "search": ".json"}
"""The subfolders and the suffix of the files in each: kernels by provider, packs of kernels that came ready, and what
searches among candidates found.
"""

_TAG = "CACHEDIR.TAG"
_SIGNATURE = b"Signature: 8a477f597d28d172789f06886806bc55\n# Made by gradkern: `gradkern cache clear` empties it.\n"
_ENTRY = re.compile(r"(\w+-)?[0-9a-f]{64}\.(kernel|cubin|json)|(sm|compute)_\d+\.pack")
_NEW, _LOCKS = ".new-", ".locks"
_ABANDONED = 3600  # seconds; no process writes a file for longer
_NAMES = re.compile(
    rf"{_ENTRY.pattern}|\{_NEW}\w+|\{_LOCKS}|[0-9a-f]{{16}}"
)  # the last: kernels before they were files

_WITHOUT_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NO_HOME = "the home folder is not known"

_warned: set[Path] = set()


def root() -> Path:
    """The folder of all; GRADKERN_CACHE_DIR names another. It begins with ~ where the home folder is not known, as of
    a user without an account and HOME: then it is neither read nor made.
    """
    named = os.environ.get("GRADKERN_CACHE_DIR")
    try:
        if named:
            return Path(named).expanduser()
        import platformdirs

        return platformdirs.user_cache_path("gradkern", appauthor=False)
    except RuntimeError:
        return Path(named or "~/.cache/gradkern")


def folder(name: str) -> Path:
    """One of `FOLDERS`."""
    return root() / name


def path_of(name: str, key: str) -> Path:
    """The file of one of `FOLDERS` with this key."""
    return folder(name) / f"{key}{FOLDERS[name]}"


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
            times[path] = path.lstat().st_mtime
    return sorted(times, key=times.__getitem__, reverse=True)


def keep_newest(name: str, most: int) -> None:
    """Remove the files written longest ago until at most so many are left, and what a killed process has left half."""
    if why_not_used(name) is not None:
        return
    with contextlib.suppress(OSError):  # what another process removes at the same time, or none may remove
        for path in newest(name)[most:]:
            path.unlink(missing_ok=True)
        for path in folder(name).glob(f"{_NEW}*"):
            if time.time() - path.lstat().st_mtime > _ABANDONED:
                path.unlink(missing_ok=True)


def size(name: str) -> int:
    """Bytes in these files."""
    total = 0
    for path in entries(name):
        with contextlib.suppress(OSError):  # another process has removed it
            total += path.lstat().st_size
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
    """Whether another user owns this, or may write it, or has made the link that leads to it."""
    if _is_homeless(path):
        return _NO_HOME
    try:
        status = path.lstat()
        reason = _another_users(status)
        if reason is None and stat.S_ISLNK(status.st_mode):
            reason = _another_users(path.stat())
        return reason
    except OSError:
        return None


def _another_users(status: os.stat_result) -> str | None:
    if not hasattr(os, "geteuid"):
        return None
    if status.st_uid not in (0, os.geteuid()):
        return f"it belongs to another user (uid {status.st_uid})"
    if stat.S_ISLNK(status.st_mode):  # its mode says nothing
        return None
    return "other users may write it" if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else None


def _is_homeless(path: Path) -> bool:
    return str(path).startswith("~")


def _not_ours(path: Path) -> str | None:
    """Whether a folder holds what gradkern did not put there."""
    try:
        names = os.listdir(path)  # before the tag is looked for: what is there then was put there after it
        with contextlib.suppress(OSError), os.fdopen(open_regular(path / _TAG, follow=False), "rb") as file:
            if file.read(43) == _SIGNATURE[:43]:
                return None
    except OSError:
        return None
    foreign = next((each for each in names if not _NAMES.fullmatch(each)), None)
    return None if foreign is None else f"it is not gradkern's: it has {foreign!r} and no {_TAG} of gradkern"


def seal(magic: bytes, body: bytes, name: str | None = None) -> bytes:
    """A file's content: magic, the SHA-256 of all behind it, the name and a newline if there is a name, the body."""
    if name is not None:
        body = f"{name}\n".encode() + body
    return magic + hashlib.sha256(body).digest() + body


def unseal(magic: bytes, data: bytes, name: str | None = None) -> bytes:
    """The body of a sealed file. Raises ValueError, with the reason, where it is not as it was written, or under
    another name.
    """
    start = len(magic) + 32
    if data[: len(magic)] != magic:
        raise ValueError("it is no file of this format")
    body = data[start:]
    if hashlib.sha256(body).digest() != data[len(magic) : start]:
        raise ValueError("its digest does not fit its content")
    if name is not None:
        found, _, body = body.partition(b"\n")
        if found != name.encode():
            raise ValueError("it holds another kernel")
    return body


def read(path: Path) -> bytes:
    """A cached file's content. Raises OSError where it cannot be read, or must not be: then with one warning."""
    reason, at = why_not_trusted(path.parent), path.parent
    if reason is None:
        try:
            with os.fdopen(open_own(path, follow=False), "rb") as file:
                return file.read()
        except ValueError as error:
            reason, at = str(error), path
    raise _refusal(at, reason)


def read_own(path: Path) -> bytes:
    """The content of a file that a user has named. Raises as `open_own` does."""
    with os.fdopen(open_own(path), "rb") as file:
        return file.read()


def open_own(path: Path, *, follow: bool = True) -> int:
    """A regular file of the user's own, open to be read. Raises OSError where it cannot be; ValueError, with the
    reason, where another user owns it or may write it.
    """
    handle = open_regular(path, follow=follow)
    reason = _another_users(os.fstat(handle))
    if reason is not None:
        os.close(handle)
        raise ValueError(reason)
    return handle


def open_regular(path: Path, *, follow: bool = True) -> int:
    """A regular file, open for reading. Raises OSError for all else, and for a symbolic link unless it is followed.
    Never waits, as opening a FIFO would.
    """
    try:
        handle = os.open(path, os.O_RDONLY | _WITHOUT_WAITING | (0 if follow else _NO_LINK))
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise OSError(errno.ELOOP, "it is a symbolic link", str(path)) from None
        raise
    return _regular(handle, path)


def _regular(handle: int, path: Path) -> int:
    """The handle of a regular file. Closes it and raises OSError where it is of anything else."""
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is no regular file", str(path))


def write(path: Path, data: bytes) -> None:
    """Write a file in one step or not at all, whoever else writes it at the same time.

    Raises OSError where it cannot be written, or must not be, in either case with one warning.
    """
    _claim(path.parent)
    try:
        replace(path, data)
    except OSError as error:
        _warn_unwritable(path, error)
        raise


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


def write_named(path: Path, data: bytes) -> None:
    """Write a file that a user has named, in one step or not at all; the file that a link leads to. What is no regular
    file, as /dev/null and a pipe, is written into, and not replaced. Raises OSError where it cannot be written.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        path.write_bytes(data)
    else:
        replace(path, data)


def _make(path: Path) -> None:
    if _is_homeless(path):
        raise OSError(errno.ENOENT, _NO_HOME, str(path))
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def _claim(path: Path) -> None:
    """Make a folder, for its owner alone, and put the tag there. Raises OSError where that must not be, or cannot."""
    try:
        _make(path.parent)
        _make(path)
        reason = why_not_trusted(path) or _not_ours(path)
        if reason is None and not os.path.lexists(path / _TAG):
            replace(path / _TAG, _SIGNATURE)  # in one step: who sees it empty takes the folder for another's
    except OSError as error:
        _warn_unwritable(path, error)
        raise
    if reason is not None:
        raise _refusal(path, reason)


def _warn_unwritable(path: Path, error: OSError) -> None:
    """Once, whatever it is that cannot be written."""
    reason = error.strerror or error
    _warn(root(), f"{path} cannot be written: {reason}; what is compiled or found is kept in this process alone")


def _refusal(path: Path, reason: str) -> PermissionError:
    _warn(root() if reason == _NO_HOME else path, f"{path} is not used: {reason}")
    return PermissionError(f"{path}: {reason}")


def _warn(cause: Path, text: str) -> None:
    """Once for each cause."""
    if cause not in _warned:
        _warned.add(cause)
        warn(f"gradkern: {text}; `gradkern doctor` says how to mend it", stacklevel=3)


def remove(name: str, path: Path) -> bool:
    """Remove a file of one of `FOLDERS`, if that is gradkern's and nobody else's; whether it is gone."""
    if why_not_used(name) is not None:
        return False
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def clear(name: str) -> str | None:
    """Remove gradkern's files from one of `FOLDERS`. Returns why something is left, or None. Nothing is removed through
    a link in it, or where other users may write.
    """
    path = folder(name)
    if _is_homeless(path):
        return None
    try:
        path.stat()
        reason = why_not_used(name)
        if reason is not None:
            return reason
        for each in path.iterdir():
            if each.is_symlink():
                if _NAMES.fullmatch(each.name):
                    each.unlink(missing_ok=True)
            elif each.name == _LOCKS:
                reason = _clear_locks(each)
            elif not each.is_dir() and (each.name.startswith(_NEW) or _ENTRY.fullmatch(each.name)):
                each.unlink(missing_ok=True)
        if not path.is_symlink() and [each.name for each in path.iterdir()] in ([], [_TAG]):
            (path / _TAG).unlink(missing_ok=True)
            path.rmdir()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return f"{error.strerror or error}: {error.filename}"
    return reason


def _clear_locks(locks: Path) -> str | None:
    reason = why_not_trusted(locks)
    if reason is not None:
        return f"{locks.name}: {reason}"
    for lock in locks.iterdir():
        lock.unlink(missing_ok=True)
    locks.rmdir()
    return None


@contextlib.contextmanager
def locked(name: str, key: str, seconds: float) -> Generator[bool]:
    """Alone among the processes of this machine that ask for the same key in one of `FOLDERS`; after `seconds`, or
    where files cannot be locked, not alone. Yields True with the lock, False where another process has it, and True
    where nobody can lock. The system releases the lock of a process that dies.

    filelock would leave marker files of killed processes where flock is missing; a lock that is missed here costs no
    more than a second compilation.
    """
    try:
        import fcntl

        _claim(folder(name))
        file = os.fdopen(_lock_file(folder(name) / _LOCKS, key), "rb")
    except (ImportError, OSError):
        yield True
        return
    with file:
        yield _lock(fcntl, file, time.monotonic() + seconds)


def _lock_file(locks: Path, key: str) -> int:
    """The handle of an empty file, made if need be. Raises OSError where the folder, or the file, is something else."""
    _make(locks)
    if locks.is_symlink() or why_not_trusted(locks) is not None:
        raise OSError(errno.EINVAL, "it is no folder of the user's own", str(locks))
    flags = os.O_RDWR | os.O_CREAT | _WITHOUT_WAITING | _NO_LINK
    return _regular(os.open(locks / key, flags, 0o600), locks / key)


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
