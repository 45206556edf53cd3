"""From a kernel, its constants and a compute capability to a cubin, without a GPU."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

__all__ = ["Compiled", "compile_kernel"]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel's machine code and what the assembler said about it."""

    cubin: bytes
    registers: int
    spilled: int  # bytes of registers kept in local memory
    name: str = "gradkern"
    ptx: str = ""


def compile_kernel(
    kernel: Callable[..., None],
    arguments: int,
    capability: tuple[int, int],
    threads: int,
    blocks_per_processor: int = 1,
    name: str = "gradkern",
) -> Compiled:
    """Compile a kernel of `arguments` int64 arguments for blocks of `threads` threads.

    The launch bounds let the assembler use as many registers as `blocks_per_processor` such blocks have. The kernel is
    called `name` in the cubin: Numba's own name for it holds a counter of the process.
    """
    from cuda.core import Linker, LinkerOptions, ObjectCode  # pyright: ignore[reportAttributeAccessIssue]
    from numba import cuda

    numba_compile, types = cast(Any, cuda).compile, cast(Any, cuda).types

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Numba's remarks about its own options
        ptx, _ = numba_compile(
            kernel,
            types.void(*[types.int64] * arguments),
            device=False,
            abi="numba",
            cc=capability,
            output="ptx",
            launch_bounds=(threads, blocks_per_processor),
        )
    entry = re.search(r"\.visible \.entry (\w+)", ptx)
    if entry is None:
        raise RuntimeError("Numba compiled no kernel")
    ptx = ptx.replace(entry.group(1), name)
    options = LinkerOptions(
        arch=f"sm_{capability[0]}{capability[1]}", verbose=True, no_cache=True, ptxas_options=["-v"]
    )
    linker = Linker(ObjectCode.from_ptx(ptx.encode()), options=options)
    cubin = bytes(linker.link("cubin").code)
    registers, spilled = _report(linker.get_info_log())
    return Compiled(cubin, registers, spilled, name, ptx)


def _report(log: str) -> tuple[int, int]:
    registers = re.search(r"Used (\d+) registers", log)
    spilled = re.search(r"(\d+) bytes spill stores", log)
    return (int(registers.group(1)) if registers else -1, int(spilled.group(1)) if spilled else -1)
