"""Records of calls, which Python writes and machine code reads: what a call looks like, and how it is computed."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.system import locks
from gradkern.torch.native import shim
from gradkern.torch.native import words as w
from gradkern.torch.native.recording import Steps, words_of

MOST = 1 << 14
"""Records of an operator: of compiled code each place has its own."""


@dataclass(eq=False)
class Record:
    """Calls that are alike, as machine code computes them. Words: see words.py."""

    key: tuple[int, ...]
    words: Any
    held: list[Any]
    scratch: int  # bytes; -1 where no scratch memory of a stream is needed
    device: int

    def count(self) -> int:
        return self.calls

    @property
    def calls(self) -> int:
        """How many it has answered, or left to PyTorch's kernel."""
        return self.words[w.RECORD_COUNT]

    def withdraw(self) -> None:
        """Hand on the calls from now on, as if they were small ones."""
        self.words[w.RECORD_BYTES] = -1

    @property
    def is_withdrawn(self) -> bool:
        return self.words[w.RECORD_BYTES] < 0


class Records:
    """A block and its records: calls with arguments of these kinds, at a dispatch key.

    forgotten  called with a record that no call can be in any more
    flags      whether calls depend on PyTorch's flags and on gradkern's policy
    """

    def __init__(
        self,
        kinds: Sequence[int],
        key: str,
        forgotten: Callable[[Record], None] = lambda record: None,
        flags: bool = False,
    ) -> None:
        self._forgotten = forgotten
        self._block = words_of([0] * w.BLOCK_SIZE)
        self.address = ctypes.addressof(self._block)
        self._records: dict[tuple[int, ...], Record] = {}
        self._retired: list[tuple[Any, Record | None]] = []
        self._table: Any = None
        self._streams: dict[tuple[int, int], tuple[int, int, int]] = {}
        self._stream_table: Any = None
        self._lock = locks.reentrant_lock()
        self._kinds = tuple(kinds)
        self.put(
            {
                w.BLOCK_SHIM: ctypes.addressof(shim.addresses(key)),
                w.BLOCK_INPUTS: len(kinds),
                w.BLOCK_FLAGS: int(flags),
                **{w.BLOCK_ARGUMENTS + n: kind for n, kind in enumerate(kinds)},
            }
        )

    def put(self, words: Mapping[int, Any]) -> None:
        """Write words of the block."""
        for place, word in words.items():
            self._block[place] = word

    def add(self, values: Sequence[Any], steps: Steps | None, nbytes: int, device: torch.device) -> Record | None:
        """Let calls with arguments like these be computed by these steps, or without any by PyTorch's kernel. Returns
        None where they cannot be recognised.
        """
        left, steps = steps is None, steps or Steps([])
        key = self._key_of(values)
        if len(key) > w.MOST_KEY:
            return None
        outputs = words_of([word for each in steps.outputs for word in each.words(steps.held)])
        launches = words_of([word for each in steps.launches for word in each])
        fields = {
            w.RECORD_HASH: signed(w.hashed(key)),
            w.RECORD_KEY_SIZE: len(key),
            w.RECORD_BYTES: nbytes,
            w.RECORD_COUNT: 0,
            w.RECORD_LEFT: int(left),
            w.RECORD_OUTPUTS: ctypes.addressof(outputs),
            w.RECORD_OUTPUT_COUNT: len(steps.outputs),
            w.RECORD_LAUNCHES: ctypes.addressof(launches),
            w.RECORD_LAUNCH_COUNT: len(steps.launches),
            w.RECORD_SCRATCH: steps.scratch,
            w.RECORD_ON_GPU: int(device.type == "cuda"),
            w.RECORD_DEVICE: device.index or 0,
        }
        words = words_of([*[fields[place] for place in range(w.RECORD_KEY)], *map(signed, key)])
        record = Record(key, words, [*steps.held, outputs, launches], steps.scratch, device.index or 0)
        with self._lock:
            gone = [each for each in (self._records.pop(key, None),) if each is not None]
            count = len(self._records)
            if gone or count >= MOST or self._table is None or 2 * count + 4 > len(self._table):  # another table
                gone += [self._records.pop(each.key) for each in list(self._records.values()) if each.is_withdrawn]
                if len(self._records) >= MOST:  # several at once: that table takes a while
                    gone += [self._records.pop(each) for each in list(self._records)[: MOST // 8 + 1]]
                self._records[key] = record
                self._publish(gone)
            else:
                self._records[key] = record
                _insert(self._table, record)
        return record

    def add_stream(self, record: Record) -> bool:
        """Let records use the scratch memory of the current stream, never freed, where this one needs it.
        Returns whether there was something to add.
        """
        from gradkern.arrays.view import device_arrays
        from gradkern.cuda.device import get_device  # needs the packages for a GPU, as what comes here does
        from gradkern.cuda.scratch import scratch

        handle, device = device_arrays().torch_kind(record.device).stream(), record.device
        known = self._streams.get((handle, device))
        if known is not None and known[2] >= record.scratch:
            return False
        self.know_stream(handle, device, *scratch(get_device(device), handle, record.scratch), record.scratch)
        return True

    def know_stream(self, handle: int, device: int, counter: int, buffer: int, size: int) -> None:
        """Let records use this scratch memory on a stream."""
        with self._lock:
            self._streams[handle, device] = counter, buffer, size
            words = [len(self._streams), *[word for key, each in self._streams.items() for word in (*key, *each)]]
            self._retired.append((self._stream_table, None))
            self._stream_table = words_of(words)
            self._block[w.BLOCK_STREAMS] = ctypes.addressof(self._stream_table)

    def clear(self) -> None:
        """Forget all records."""
        with self._lock:
            gone = list(self._records.values())
            self._records.clear()
            self._publish(gone)

    def sweep(self) -> None:
        """Free what was taken out of the table, at a moment when no call can be in it."""
        with self._lock:
            if self._retired and not self._block[w.BLOCK_ACTIVE]:
                gone, self._retired = self._retired, []
                for _, record in gone:
                    if record is not None:
                        self._forgotten(record)

    def _publish(self, gone: list[Record]) -> None:
        """Replace the table of records, by one with room. A call may still be in the one before."""
        size = 4
        while size < 2 * len(self._records) + 1:
            size *= 2
        self._retired.append((self._table, None))
        self._table = words_of([size - 1, *[0] * size])
        for record in self._records.values():
            _insert(self._table, record)
        self._block[w.BLOCK_TABLE] = ctypes.addressof(self._table)
        self._retired += [(None, each) for each in gone]
        self.sweep()

    def _key_of(self, values: Sequence[Any]) -> tuple[int, ...]:
        """The key of a call, as machine code writes it."""
        words: list[int] = []
        for value, kind in zip(values, self._kinds, strict=True):
            if kind & 1:  # optional
                words.append(int(value is not None))
                if value is None:
                    continue
            words += _words(value)
        return (*words, _flags()) if self._block[w.BLOCK_FLAGS] else tuple(words)


def _insert(table: Any, record: Record) -> None:
    """Put a record into a table with room. Calls may be in it: what they read is one word, empty or the record's."""
    mask = table[0]
    at = record.words[w.RECORD_HASH] & mask
    while table[1 + at]:
        at = (at + 1) & mask
    table[1 + at] = ctypes.addressof(record.words)


def _flags() -> int:
    deterministic, cudnn = torch._C._get_deterministic_algorithms(), torch._C._get_cudnn_deterministic()
    return deterministic | cudnn << 8 | torch._C._get_cudnn_enabled() << 16


def _words(value: Any) -> list[int]:
    if isinstance(value, torch.Tensor):
        address = value.data_ptr()
        aligned = (address | 16) & -(address | 16)
        kind = 0 if value.device.type == "cpu" else 1
        index = -1 if value.device.index is None else value.device.index
        head = [shim.dtype_code(value.dtype) | kind << 32, index & 0xFFFFFFFF, value.dim() * 32 + aligned]
        return [_unsigned(word) for word in (*head, *value.shape, *value.stride())]
    if isinstance(value, torch.dtype):
        return [shim.dtype_code(value)]
    if isinstance(value, float):
        return [struct.unpack("Q", struct.pack("d", value))[0]]
    if isinstance(value, str):
        return [int.from_bytes(value.encode(), "little")]
    if isinstance(value, list | tuple):
        return [len(value), *[_unsigned(int(each)) for each in value]]
    return [_unsigned(int(value))]


def _unsigned(word: int) -> int:
    return word & ((1 << 64) - 1)


def signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word
