"""An aten operator registered from machine code: its block, its records, and the way to Python for all other calls.

PyTorch calls a function that looks the call up among records and launches what they say, without Python. Any other
call it hands to an operator with the same arguments that Python implements, through PyTorch's dispatcher: arguments,
results and exceptions pass as they do where Python is registered for the operator itself. What it knows to be PyTorch's
it hands to another, one that only calls PyTorch's kernel. These operators have one result more: a tensor where
they have failed, and none otherwise. The exception is kept, and raised above PyTorch's C functions, as those lose its
class.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.system import locks
from gradkern.torch.native import shim
from gradkern.torch.native import words as w
from gradkern.torch.native.recording import Steps, words_of

MOST = 1 << 14
"""Records of an operator: of compiled code each place has its own."""
_KINDS = {"Tensor": "tensor", "int": "word", "bool": "word", "float": "word", "List[int]": "list", "List[bool]": "list",
          "str": "string"}  # fmt: skip
_NAMESPACE = "gradkern_by_python"
_libraries: list[Any] = []
_FAILURE = b"gradkern: a call could be neither computed nor handed on to PyTorch's kernel"
_message = ctypes.create_string_buffer(_FAILURE)


def unsupported(name: str, key: str) -> str:
    """Why an aten operator cannot be registered from machine code; "" where it can."""
    reason = shim.unavailable(key)
    if reason:
        return reason
    schema = getattr(torch.ops.aten, name).default._schema
    kinds = [_kind(each.type) for each in schema.arguments]
    if None in kinds or len(kinds) > w.MOST_ARGUMENTS:
        return f"{name} has arguments that PyTorch's C functions do not pass"
    if any(str(each.type) != "Tensor" for each in schema.returns):
        return f"{name} has results that are no tensors"
    return ""


def _kind(type_: Any) -> int | None:
    text = str(type_)
    inner = text.removeprefix("Optional[").removesuffix("]") if text.startswith("Optional[") else text
    kind = _KINDS.get(inner)
    if kind is None or (kind == "string" and inner != text):
        return None
    return w.ARGUMENTS[kind if inner == text else f"{kind}?"]


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


class NativeKernel:
    """An overload at a dispatch key: `by_python(keys, *args, **named)` answers every call that no record does.

    forgotten   called with a record that no call can be in any more
    original    calls PyTorch's kernel; None where calls are never left to it
    may_raise   whether Python has to answer calls that are left to it while only deterministic algorithms are allowed
    flags       whether calls depend on PyTorch's flags and on gradkern's policy
    measured    the place of the tensor whose bytes `least` is about
    """

    def __init__(
        self,
        operator: Any,
        key: str,
        by_python: Callable[..., Any],
        forgotten: Callable[[Record], None] = lambda record: None,
        flags: bool = False,
        measured: int = 1,
        original: Callable[..., Any] | None = None,
        may_raise: bool = False,
    ) -> None:
        from gradkern.torch.native.loaded import free_function

        self._schema = operator._schema
        self._key, self._forgotten = key, forgotten
        name = self._schema.name.partition("::")[2]
        self._block = words_of([0] * w.BLOCK_SIZE)
        self._address = ctypes.addressof(self._block)
        self._records: dict[tuple[int, ...], Record] = {}
        self._retired: list[tuple[Any, Record | None]] = []
        self._table: Any = None
        self._streams: dict[tuple[int, int], tuple[int, int, int]] = {}
        self._stream_table: Any = None
        self._lock = locks.reentrant_lock()
        self._define(name, by_python)
        self._define(f"{name}_original", original or by_python)
        names = f"{_NAMESPACE}::{name}", f"{_NAMESPACE}::{name}_original", ""
        self._text = text = [ctypes.create_string_buffer(each.encode()) for each in names]
        fields = {
            w.BLOCK_SHIM: ctypes.addressof(shim.addresses(key)),
            w.BLOCK_NAME: ctypes.addressof(text[0]),
            w.BLOCK_ORIGINAL: ctypes.addressof(text[1]),
            w.BLOCK_OVERLOAD: ctypes.addressof(text[2]),
            w.BLOCK_VERSION: _signed(shim.version()),
            w.BLOCK_RAISER: shim.raiser(),
            w.BLOCK_MESSAGE: ctypes.addressof(_message),
            w.BLOCK_INPUTS: len(self._schema.arguments),
            w.BLOCK_RESULTS: len(self._schema.returns),
            w.BLOCK_FLAGS: int(flags),
            w.BLOCK_MEASURED: measured,
            w.BLOCK_MAY_RAISE: int(may_raise),
        }
        fields |= {w.BLOCK_ARGUMENTS + n: _kind(each.type) for n, each in enumerate(self._schema.arguments)}
        for place, word in fields.items():
            self._block[place] = word
        self._function = free_function(self._address)

    def register(self, file: str) -> shim.Registration:
        """Let PyTorch call it. Raises RuntimeError where that cannot be."""
        if self._function is None:
            raise RuntimeError("all functions of machine code are in use")
        return shim.Registration(self._schema.name, self._key, self._function, file)

    def answer(self, way: int) -> None:
        """Who answers: BY_PYTHON, BY_RECORDS or BY_PYTORCH of words.py."""
        self._block[w.BLOCK_WAY] = way

    def least(self, nbytes: int) -> None:
        """Calls on fewer bytes are PyTorch's."""
        self._block[w.BLOCK_LEAST] = min(nbytes, (1 << 63) - 1)

    def small(self) -> int:
        """How many were, while records answered."""
        return self._block[w.BLOCK_SMALL]

    def place_of(self, tensor: torch.Tensor, args: tuple[Any, ...], named: Any) -> int:
        """The place of the address of one of a call's tensors."""
        return next(place for place, each in enumerate(self._given(args, named)) if each is tensor)

    def add(
        self, args: tuple[Any, ...], named: Any, steps: Steps | None, nbytes: int, device: torch.device
    ) -> Record | None:
        """Let calls like this one be computed by these steps, or without any by PyTorch's kernel. Returns None where
        they cannot be recognised.
        """
        left, steps = steps is None, steps or Steps([])
        key = self._key_of(args, named)
        if len(key) > w.MOST_KEY:
            return None
        outputs = words_of([word for each in steps.outputs for word in each.words(steps.held)])
        launches = words_of([word for each in steps.launches for word in each])
        fields = {
            w.RECORD_HASH: _signed(w.hashed(key)),
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
        words = words_of([*[fields[place] for place in range(w.RECORD_KEY)], *map(_signed, key)])
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

    def _given(self, args: tuple[Any, ...], named: Any) -> list[Any]:
        """All arguments in the schema's order: PyTorch leaves out those with their default."""
        found = []
        for place, each in enumerate(self._schema.arguments):
            found.append(args[place] if place < len(args) else named.get(each.name, each.default_value))
        return found

    def _key_of(self, args: tuple[Any, ...], named: Any) -> tuple[int, ...]:
        """The key of a call, as machine code writes it."""
        words: list[int] = []
        for value, argument in zip(self._given(args, named), self._schema.arguments, strict=True):
            if str(argument.type).startswith("Optional["):
                words.append(int(value is not None))
                if value is None:
                    continue
            words += _words(value)
        return (*words, _flags()) if self._block[w.BLOCK_FLAGS] else tuple(words)

    def _define(self, name: str, function: Callable[..., Any]) -> None:
        """An operator that a function in Python implements. It is one for all dispatch keys."""
        text = str(self._schema).replace("SymInt", "int")
        arguments = text[text.index("(") : text.rindex(" -> ")]
        count = len(self._schema.returns)
        library = torch.library.Library(_NAMESPACE, "FRAGMENT")
        _libraries.append(library)
        if not hasattr(getattr(torch.ops, _NAMESPACE), name):
            library.define(f"{name}{arguments} -> ({', '.join(['Tensor'] * (count + 1))})")
            library.impl(name, torch.library.fallthrough_kernel, "Autograd")
        failed = torch.empty(0, dtype=torch.float32, device="cpu")

        def answer(keys: Any, *args: Any, **named: Any) -> tuple[Any, ...]:
            try:
                found = function(keys, *args, **named)
            except BaseException as error:
                shim.stash(error)
                return (*[None] * count, failed)
            return (*found, None) if count > 1 else (found, None)

        library.impl(name, answer, self._key, with_keyset=True)


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


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word
