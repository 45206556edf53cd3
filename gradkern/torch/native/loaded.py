"""The machine code in this process: from the cache on disk, so that a warm process imports no Numba; else compiled."""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

from gradkern.cpu import cache as kernels
from gradkern.system import cache_files, sources
from gradkern.system.own_thread import in_own_thread

_CODE = "gradkern.torch.native.machine_code"
_numbers = count()
_engines: list[Any] = []  # code is never unloaded: PyTorch may call it as long as the process lives


def free_function(block: int) -> int | None:
    """The address of a function for PyTorch that answers by the block at this address; None where all are in use."""
    engine, most = _loaded()
    number = next(_numbers)
    if number >= most:
        return None
    ctypes.c_int64.from_address(engine.get_global_value_address("gradkern_blocks") + 8 * number).value = block
    return engine.get_function_address(f"gradkern_native_{number}")


def fill_function() -> int:
    """The address of the function that answers calls of places in compiled code."""
    return _loaded()[0].get_function_address("gradkern_fill")


@cache
def _loaded() -> tuple[Any, int]:
    llvm: Any = import_module("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    path = _path(llvm)
    code = None
    with suppress(OSError, ValueError):
        code = kernels.read(path)
    if code is None:
        code = in_own_thread(import_module(_CODE).compiled)
        kernels.write(path, code)
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    return engine, code.count(b"gradkern_native_")


def _path(llvm: Any) -> Path:
    """The name is a digest of all that can change the machine code."""
    host = llvm.get_default_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    parts = [sources.digest(_CODE), version("numba"), version("llvmlite"), sys.version, *host]
    return cache_files.path_of("cpu", f"native-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()}")
