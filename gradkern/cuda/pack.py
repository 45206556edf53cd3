"""A pack: one file with the compiled kernels of many calls for one architecture, each readable by itself.

A file is: magic, SHA-256 of the head, lengths of the head's two parts, head, kernels. The head is what the pack says of
itself (JSON), then a record of 80 bytes for each kernel, sorted: its spec's digest, the SHA-256 of what is stored,
where that begins and how long it is. A kernel is stored as in the cache (`Compiled.packed`), compressed by itself: the
first call of a process reads the head and one kernel.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gradkern.cuda.compile import Compiled
from gradkern.system import cache_files
from gradkern.system.json_text import loads

_MAGIC = b"gradkern pack 1\n"
_START = struct.Struct("<16s32sII")  # magic, digest, bytes that say what the pack is, kernels
_RECORD = struct.Struct("<32s32sQII")  # spec's digest, stored's digest, offset, bytes stored, bytes of the kernel
_MOST = 1 << 26  # bytes of a head, or of a kernel (the largest have 1 << 18): a larger value means damage
_LEVEL = 9


@dataclass(frozen=True, slots=True)
class About:
    """The description of a pack.

    capability  the compute capability that it was compiled for
    sources     the digest of the sources of all its kernels; `modules`: the builders' modules
    compilers   the versions of the compilers
    kernels     their number
    ptx         they are PTX, compiled by drivers of newer GPUs, not machine code
    calls       a digest of the calls
    """

    gradkern: str
    capability: tuple[int, int]
    sources: str
    modules: tuple[str, ...]
    compilers: tuple[str, ...]
    kernels: int = 0
    ptx: bool = False
    calls: str = ""


def build(about: About, kernels: Mapping[str, Compiled]) -> bytes:
    """The content of a pack of these kernels, by the digests of their specs."""
    stored = {key: zlib.compress(each.packed(), _LEVEL) for key, each in sorted(kernels.items())}
    said = json.dumps({**asdict(about), "kernels": len(kernels)}).encode()
    offset = _START.size + len(said) + _RECORD.size * len(stored)
    records: list[bytes] = []
    for key, data in stored.items():
        digest = hashlib.sha256(data).digest()
        records.append(_RECORD.pack(bytes.fromhex(key), digest, offset, len(data), len(kernels[key].packed())))
        offset += len(data)
    head = said + b"".join(records)
    start = _START.pack(_MAGIC, hashlib.sha256(head).digest(), len(said), len(stored))
    return b"".join([start, head, *stored.values()])


def about_of(data: bytes) -> About:
    """The description from JSON. Raises ValueError for other content."""
    try:
        said = loads(data)
        modules, compilers = (tuple(map(str, said.pop(name))) for name in ("modules", "compilers"))
        about = About(capability=tuple(said.pop("capability")), modules=modules, compilers=compilers, **said)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"what it says of itself lacks or has too much: {error}") from error
    for name, kind in (("gradkern", str), ("sources", str), ("kernels", int), ("ptx", bool), ("calls", str)):
        if type(getattr(about, name)) is not kind:
            raise ValueError(f"what it says of itself: {name} is {getattr(about, name)!r}")
    capability: Any = about.capability
    if [type(each) for each in capability] != [int, int] or capability[0] < 1 or not 0 <= capability[1] < 10:
        raise ValueError(f"what it says of itself: capability is {capability!r}")
    return about


def _decompressed(data: bytes, length: int, key: str) -> bytes:
    """What was stored, if that is so many bytes. Raises ValueError."""
    if not 0 < length <= _MOST:
        raise ValueError(f"kernel {key[:16]} is said to have {length} bytes")
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(data, length)
        whole = len(found) == length and (stream.eof or not stream.decompress(stream.unconsumed_tail, 1))
    except zlib.error as error:
        raise ValueError(f"kernel {key[:16]} cannot be decompressed: {error}") from None
    if not (whole and stream.eof):
        raise ValueError(f"kernel {key[:16]} has not the {length} bytes that it is said to have")
    return found


class Pack:
    """An open pack. Reads are from the file that was opened, even if its path is replaced."""

    _handle = -1

    def __init__(self, path: Path, handle: int | None = None) -> None:
        """handle: of the file if it is open already; closed with the pack.

        Raises OSError if it cannot be read, ValueError, with the reason, if its head is damaged. The file's owner is
        not checked.
        """
        self.path = path
        self._handle = cache_files.open_regular(path) if handle is None else handle
        try:
            self.size = os.fstat(self._handle).st_size
            self._read_head()
        except BaseException:
            self.close()
            raise

    def _read_head(self) -> None:
        start = os.pread(self._handle, _START.size, 0)
        if start[: len(_MAGIC)] != _MAGIC:
            raise ValueError("it is no pack of this format")
        if len(start) < _START.size:
            raise ValueError("it is cut off")
        _, digest, said, kernels = _START.unpack(start)
        length = said + kernels * _RECORD.size
        if length > min(self.size, _MOST):
            raise ValueError("it is cut off")
        head = os.pread(self._handle, length, _START.size)
        if hashlib.sha256(head).digest() != digest:
            raise ValueError("its digest does not fit its content")
        self.about = about_of(head[:said])
        self._records = memoryview(head)[said:]
        if any(offset + stored > self.size for _, _, offset, stored, _ in self._all()):
            raise ValueError("it is cut off")

    def __len__(self) -> int:
        return len(self._records) // _RECORD.size

    def _all(self) -> Iterator[tuple[bytes, bytes, int, int, int]]:
        return _RECORD.iter_unpack(self._records)

    def keys(self) -> Iterator[str]:
        """The digests of the specs of all kernels."""
        return (each[0].hex() for each in self._all())

    def read(self, key: str) -> Compiled | None:
        """The kernel with this spec's digest; None if there is none.

        Raises OSError if it cannot be read, ValueError if it is damaged.
        """
        wanted = bytes.fromhex(key)
        place = bisect_left(range(len(self)), wanted, key=lambda index: self._record(index)[0])
        if place == len(self):
            return None
        found, digest, offset, stored, length = self._record(place)
        if found != wanted:
            return None
        data = os.pread(self._handle, stored, offset)
        if hashlib.sha256(data).digest() != digest:
            raise ValueError(f"the digest of kernel {key[:16]} does not fit its content")
        return Compiled.unpacked(_decompressed(data, length, key))

    def verify(self) -> None:
        """Read every kernel. Raises as `read` does."""
        for key in self.keys():
            self.read(key)

    def _record(self, index: int) -> tuple[bytes, bytes, int, int, int]:
        return _RECORD.unpack_from(self._records, index * _RECORD.size)

    def close(self) -> None:
        """Close the file. Nothing can be read afterwards."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def __del__(self) -> None:
        self.close()
