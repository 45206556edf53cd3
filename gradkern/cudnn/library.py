"""cuDNN in this process: found and loaded once, and the one check of what its functions return."""

from __future__ import annotations

import ctypes
import re
from functools import lru_cache
from typing import Any

from gradkern.cudnn.api import FUNCTIONS
from gradkern.errors import ProviderError
from gradkern.system import libraries, locks

OLDEST = (9, 10)
"""The first version that makes plans for a described device, and the oldest that gradkern is tested with."""

_lock = locks.reentrant_lock()


class CudnnMissingError(ProviderError):
    """cuDNN cannot be used in this process; the message says why and what mends it."""


class CudnnError(ProviderError):
    """cuDNN refuses or fails; the message is its own. `status` is its cudnnStatus_t, 0 where it is not known."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@lru_cache(maxsize=1)
def _load() -> Any:
    path = _find()
    try:
        loaded = ctypes.CDLL(path)
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise CudnnMissingError(f"cuDNN: {path} cannot be loaded: {error}; mend it: {_install()}") from error
    number = loaded.cudnnGetVersion()
    if number < OLDEST[0] * 10000 + OLDEST[1] * 100:
        found, oldest = ".".join(map(str, _parts(number))), ".".join(map(str, OLDEST))
        raise CudnnMissingError(f"cuDNN: {path} is {found}; gradkern needs {oldest}; mend it: {_install()}")
    return loaded


def library() -> Any:
    """The library, with prototypes. Raises CudnnMissingError where there is none, or two, or one that is damaged."""
    with _lock:
        return _load()


def version() -> tuple[int, int, int]:
    """The version of the library that is loaded."""
    return _parts(library().cudnnGetVersion())


def _parts(number: int) -> tuple[int, int, int]:
    return number // 10000, number % 10000 // 100, number % 100


def _find() -> str:
    """The copy that this process already has, as torch loads its own; else the installed one.

    Two copies in one process share nothing but their names: handles and plans of one crash in the other.
    """
    copies = libraries.loaded("cudnn")
    if len(copies) > 1:
        raise CudnnMissingError(
            f"cuDNN: this process has {len(copies)} copies of it, {' and '.join(copies)}; "
            "mend it: uninstall all but one, or import first what brings the one that shall be used"
        )
    if copies:
        return copies[0]
    major = libraries.cuda_major(12)
    fault = libraries.cudnn_fault(major)
    if fault is not None:
        raise CudnnMissingError(f"cuDNN: {fault.text}; mend it: {fault.remedy}")
    path = libraries.find("cudnn", libraries.cudnn_wheels())
    if path is None:
        raise CudnnMissingError(f"cuDNN: not found; mend it: {_install()}")
    return path


def _install() -> str:
    return libraries.install_cudnn(libraries.cuda_major(12))


def check(status: int, doing: str) -> None:
    """Raise CudnnError, with cuDNN's own words, unless a status is success."""
    if status:
        lib = library()
        words = ctypes.create_string_buffer(1024)
        lib.cudnnGetLastErrorString(words, len(words))
        name = lib.cudnnGetErrorString(status).decode()
        said = re.sub(r"\s+", " ", words.value.decode(errors="replace")).strip()
        raise CudnnError(f"cuDNN: {doing} failed: {said + ' ' if said else ''}({name})", status)
