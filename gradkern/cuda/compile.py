"""From a kernel, its constants and a compute capability to a cubin, without a GPU."""

from __future__ import annotations

import inspect
import json
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from types import ModuleType
from typing import Any

from gradkern.system.json_text import loads
from gradkern.system.working_folder import do_without

_ENVIRONMENT = re.compile(r"^\.common \.global .*NumbaEnv.*\n", re.MULTILINE)
"""An unused variable of every function. Order and names of these depend on the process."""
TESTED = "0.30."  # releases of numba-cuda that the front end was tested with


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel's machine code and the assembler's report.

    cubin: the machine code, or PTX for GPUs that the assembler does not know
    """

    cubin: bytes
    registers: int
    spilled: int  # bytes of registers kept in local memory
    name: str = "gradkern"
    ptx: str = ""

    def packed(self) -> bytes:
        """The format on disk, without the PTX: length of the header, header (JSON), cubin."""
        header = json.dumps({"name": self.name, "registers": self.registers, "spilled": self.spilled}).encode()
        return len(header).to_bytes(4, "little") + header + self.cubin

    @classmethod
    def unpacked(cls, data: bytes) -> Compiled:
        """The inverse of `packed`. Raises ValueError for other data."""
        length = 4 + int.from_bytes(data[:4], "little")
        try:
            return cls(data[length:], **loads(data[4:length]))
        except (TypeError, ValueError) as error:
            raise ValueError(f"it holds no kernel: {error}") from error


def compile_kernel(
    kernel: Callable[..., None],
    arguments: int,
    capability: tuple[int, int],
    threads: int,
    blocks_per_processor: int = 1,
    name: str = "gradkern",
) -> Compiled:
    """Compile a kernel of `arguments` int64 arguments for blocks of `threads` threads.

    The launch bounds let the assembler use as many registers as `blocks_per_processor` resident blocks allow. The
    kernel is called `name` in the cubin: Numba's own name for it contains a counter of the process.
    """
    core: Any = import_module("cuda.core")  # it has no types
    ptx = _ptx(kernel, arguments, capability, (threads, blocks_per_processor))
    entry = re.search(r"\.visible \.entry (\w+)", ptx)
    if entry is None:
        raise RuntimeError("Numba compiled no kernel")
    ptx = _ENVIRONMENT.sub("", ptx).replace(entry.group(1), name)
    options = core.LinkerOptions(
        arch=f"sm_{capability[0]}{capability[1]}", verbose=True, no_cache=True, ptxas_options=["-v"]
    )
    linker = core.Linker(core.ObjectCode.from_ptx(ptx.encode()), options=options)
    cubin = bytes(linker.link("cubin").code)
    registers, spilled = _report(linker.get_info_log())
    return Compiled(cubin, registers, spilled, name, ptx)


@cache
def front_end() -> ModuleType | None:
    """The compiler of gradkern.cuda.front_end if Numba is of a release that it was tested with. Else None: Numba's own
    front end compiles the same kernels, more slowly.
    """
    if not metadata.version("numba-cuda").startswith(TESTED):
        return None
    try:
        from gradkern.cuda.front_end import compiler as tested
    except (ImportError, AttributeError):
        return None
    return tested


@cache
def _numba() -> Any:
    numba: Any = import_module("numba.cuda")  # it has no types
    do_without(import_module("numba.cuda.core.ir").Loc)
    return numba


def _ptx(kernel: Callable[..., None], arguments: int, capability: tuple[int, int], bounds: tuple[int, int]) -> str:
    from gradkern.cuda.front_end.folding import folded

    numba = _numba()
    own, types, code = front_end(), numba.types, kernel.__code__
    kinds = [types.int64] * arguments
    if code.co_flags & inspect.CO_VARARGS:  # to Numba one argument, a tuple; the launch gives them one by one
        kinds[code.co_argcount :] = [types.UniTuple(types.int64, arguments - code.co_argcount)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Numba's warnings about its own options
        if own is not None:
            return own.ptx_of(kernel, kinds, capability, bounds)
        signature = types.void(*kinds)
        kind = {"device": False, "abi": "numba", "output": "ptx"}
        return numba.compile(folded(kernel), signature, cc=capability, launch_bounds=bounds, **kind)[0]


def _report(log: str) -> tuple[int, int]:
    registers = re.search(r"Used (\d+) registers", log)
    spilled = re.search(r"(\d+) bytes spill stores", log)
    return (int(registers.group(1)) if registers else -1, int(spilled.group(1)) if spilled else -1)
