"""A libcuda.so.1 whose functions do nothing, for machines without a driver: cuDNN's engines are linked against one.

It is written byte by byte, so that no compiler is needed: an ELF shared library of two segments, one of tables and one
of code, in which every name is one of two functions: `return 0`, or `*first = 1; return 0`.
"""

from __future__ import annotations

import ctypes
import json
import platform
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from helpers.checkout import ROOT

__all__ = ["COMPILING", "NAMES", "load", "machine_is_known", "serve", "serving", "write"]

NAMES = (  # what cuDNN 9.28's libraries are linked against; what they look up later they may do without
    "cuGetErrorString",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuTensorMapEncodeIm2col",
    "cuTensorMapEncodeTiled",
)
COMPILING = (  # what its engines that compile code look up, and refuse to plan without
    "cuCtxGetCurrent",
    "cuCtxGetLimit",
    "cuCtxPopCurrent",
    "cuCtxPushCurrent",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuKernelGetAttribute",
    "cuKernelGetFunction",
    "cuKernelSetAttribute",
    "cuLaunchCooperativeKernel",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuLibraryGetKernel",
    "cuLibraryLoadData",
    "cuLibraryLoadFromFile",
    "cuLibraryUnload",
    "cuLinkAddData",
    "cuLinkComplete",
    "cuLinkCreate",
    "cuLinkDestroy",
    "cuOccupancyMaxPotentialClusterSize",
    "cuStreamGetCtx",
)
_GIVING = ("cuKernelGetFunction", "cuLibraryGetKernel", "cuLibraryLoadData")  # a handle, which must not be null
_SONAME = "libcuda.so.1"
_MACHINES = {  # e_machine, `return 0`, and `*first = 1; return 0`
    # xor eax, eax; ret, before it mov qword [rdi], 1
    "x86_64": (62, b"\x31\xc0\xc3", b"\x48\xc7\x07\x01\x00\x00\x00\x31\xc0\xc3"),
    # mov w0, 0; ret, before it mov x1, 1; str x1, [x0]
    "aarch64": (
        183,
        b"\x00\x00\x80\x52\xc0\x03\x5f\xd6",
        b"\x21\x00\x80\xd2\x01\x00\x00\xf9\x00\x00\x80\x52\xc0\x03\x5f\xd6",
    ),
}
_ROOM = 16  # bytes, for each of the two functions
_PAGE = 1 << 16  # the largest page of these machines
_DT = {"HASH": 4, "STRTAB": 5, "SYMTAB": 6, "STRSZ": 10, "SYMENT": 11, "SONAME": 14, "NULL": 0}


def machine_is_known() -> bool:
    """Whether a library can be written for this machine: Linux on one of two processors."""
    return platform.system() == "Linux" and platform.machine() in _MACHINES


@contextmanager
def serving(module: str, folder: Path) -> Iterator[Callable[[Any], Any]]:
    """What a module answers in a process of its own, which loads the driver that does nothing from the folder: it
    `serve`s there.
    """
    if not machine_is_known():
        pytest.skip("the driver that does nothing is written for Linux on x86-64 or ARM")
    if not any(_installed(f"nvidia-cudnn-{each}") for each in ("cu12", "cu13")):
        pytest.skip("cuDNN is not installed: pip install '.[cu12]'")
    pipe: Any = subprocess.PIPE
    command = [sys.executable, "-m", module, str(folder)]
    with subprocess.Popen(command, cwd=ROOT / "tests", stdin=pipe, stdout=pipe, text=True) as process:
        there: Any = process.stdin
        here: Any = process.stdout

        def ask(question: Any) -> Any:
            there.write(json.dumps(question) + "\n")
            there.flush()
            line = here.readline()
            assert line, f"the process of {module} ended with {process.wait()}"
            answer = json.loads(line)
            assert "error" not in answer, answer["error"]
            return answer

        yield ask


def serve(answer: Callable[[Any], Any]) -> None:
    """Answer questions from standard input to its end, one a line."""
    for line in sys.stdin:
        try:
            answered = answer(json.loads(line))
        except Exception:
            answered = {"error": traceback.format_exc()}
        print(json.dumps(answered), flush=True)


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def load(folder: Path, names: tuple[str, ...] = NAMES) -> ctypes.CDLL:
    """Write the library into a folder and load it: what asks for libcuda.so.1 in this process then gets it."""
    return ctypes.CDLL(str(write(folder / _SONAME, names)), mode=ctypes.RTLD_GLOBAL)


def write(path: Path, names: tuple[str, ...] = NAMES) -> Path:
    machine, *functions = _MACHINES[platform.machine()]
    code = b"".join(each.ljust(_ROOM, b"\0") for each in functions)
    texts = [name.encode() + b"\0" for name in (*names, _SONAME)]
    places = [1 + sum(map(len, texts[:index])) for index in range(len(texts))]  # a table of strings begins with \0
    strings = b"\0" + b"".join(texts)
    function = 0x12  # global, a function
    symbols = bytes(24) + b"".join(
        struct.pack("<IBBHQQ", place, function, 0, 1, _PAGE + _ROOM * (name in _GIVING), _ROOM)
        for place, name in zip(places, names, strict=False)
    )
    # a hash table of one bucket: the chain of all symbols
    count = len(names) + 1
    chain = [0, *range(2, count), 0]
    buckets = struct.pack(f"<{3 + count}I", 1, count, 1, *chain)

    headers = 64 + 3 * 56
    tables = {"SYMTAB": symbols, "STRTAB": strings, "HASH": buckets}
    body, where = b"", {"STRSZ": len(strings), "SYMENT": 24, "SONAME": places[-1], "NULL": 0}
    for name, table in tables.items():
        where[name] = headers + len(body)
        body += table + bytes(-len(table) % 8)
    dynamic = b"".join(struct.pack("<QQ", tag, where[name]) for name, tag in _DT.items())
    start, end = headers + len(body), headers + len(body) + len(dynamic)

    load, dynamic_segment, readable, writable, executable = 1, 2, 4, 2, 1
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)  # 64 bits, little-endian
    file = ident + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 3, 0, 0, 0)
    for kind, flags, offset, size, align in (
        (load, readable | writable, 0, end, _PAGE),  # the loader writes into the dynamic section
        (load, readable | executable, _PAGE, len(code), _PAGE),
        (dynamic_segment, readable | writable, start, len(dynamic), 8),
    ):
        file += struct.pack("<IIQQQQQQ", kind, flags, offset, offset, offset, size, size, align)
    path.write_bytes((file + body + dynamic).ljust(_PAGE, b"\0") + code)
    return path
