"""Kernels: Numba functions, compiled once for each tuple of argument types and cached on disk.

Numba's pickled compilation goes into a file with a digest, see cache. Numba's own cache is not used: it unpickles any
file, it does not notice changes of other modules that a kernel calls, and two processes that compile at the same time
may combine one's index with the other's code.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numba
import numpy as np
from llvmlite import ir as _ir  # pyright: ignore[reportMissingTypeStubs]
from llvmlite.binding import ffi  # pyright: ignore[reportMissingTypeStubs]
from numba import types
from numba.core import config
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.ir import Loc
from numba.core.registry import cpu_target
from numba.core.serialize import dumps  # pyright: ignore[reportUnknownVariableType]
from numba.extending import intrinsic, overload
from numba.np.arrayobj import make_array as _make_array  # pyright: ignore[reportUnknownVariableType]

from gradkern.cpu import cache
from gradkern.errors import ProviderError
from gradkern.system import cache_files, locks, sources, working_folder
from gradkern.system.notice import warn
from gradkern.system.own_thread import in_own_thread, without_collection

# Sums may be reordered (vector code needs it), and a zero's sign is free. Nothing lets LLVM forget NaN or Inf. Not
# "contract": a - b must be 0 where a and b are the same product, and is not when only one of them is rounded.
FASTMATH = {"reassoc", "nsz"}
# Numba's own wrappers: kernels are called from Python, by the one, and nothing by the other, a C callback. A function
# that only kernels call needs neither.
_WITHOUT_CALLBACK = {"no_cfunc_wrapper": True}
_WITHOUT_WRAPPERS = {**_WITHOUT_CALLBACK, "no_cpython_wrapper": True}
# For functions that kernels call: inlined, so that the loop around them is vectorised, and not reordered.
INLINE: Any = {"error_model": "numpy", "fastmath": {"nsz", "contract"}, "forceinline": True, **_WITHOUT_WRAPPERS}
# For stored elements: neither reordered nor contracted. LLVM runs the vector code of a loop only if the arrays do not
# overlap, and its scalar code must give the same bits.
AS_WRITTEN: Any = {**INLINE, "fastmath": {"nsz"}}

# For shared parts of kernels: like kernels.
REORDERED: Any = {**INLINE, "fastmath": FASTMATH}
# For parts with sums only: products may be added without rounding.
SUMMING: Any = {**REORDERED, "fastmath": FASTMATH | {"contract"}}

_OTHERS_COMPILE = 60.0  # seconds to wait for a kernel that another process compiles

settings: Any = config  # Numba creates its names at import
working_folder.do_without(Loc)
ir: Any = _ir  # LLVM's builder has no types, nor have the parts of Numba's arrays
make_array = cast(Any, _make_array)

locks.renew_in_child(cast(Any, global_compiler_lock)._lock)  # Numba's own
locks.renew_in_child(cast(Any, ffi).lib._lock._lock)  # llvmlite's
cast(Any, numba).typeof(np.empty(0))  # imports numpy.ma, as else the first kernel would where no fork waits for it


class Kernel:
    """A kernel's Python function, and its compiled form for each tuple of argument types asked for.

    `kernel(*types)` compiles on first use and returns the compiled function, for arrays of exactly those types.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function
        self.name = f"{function.__module__}.{function.__qualname__}"
        self._compiled: dict[tuple[Any, ...], Callable[..., None]] = {}

    def __call__(self, *arguments: Any) -> Callable[..., None]:
        compiled = self._compiled.get(arguments)
        return in_own_thread(functools.partial(self._made, arguments)) if compiled is None else compiled

    def _made(self, arguments: tuple[Any, ...]) -> Callable[..., None]:
        compiled = self._compiled.get(arguments)  # another thread may have asked for it, too
        if compiled is None:
            compiled = self._compiled[arguments] = self._load_or_compile(arguments)
        return compiled

    def path(self, *arguments: Any) -> Path | None:
        """The path of the cached kernel. Its name is a digest of all that can change the machine code. None if the
        sources cannot be read: a package in a zip file, or of bytecode only.
        """
        try:
            text = _sources(self.function)
        except OSError as error:
            warn(
                f"gradkern: CPU kernels are compiled anew in every process: sources cannot be read: {error}",
                stacklevel=6,
            )
            return None
        parts = [self.name, str(arguments), text, _versions(), _settings(), *target()]
        readable = re.sub(r"\W+", "_", self.function.__qualname__).strip("_")
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        return cache_files.path_of("cpu", f"{readable}-{digest}")

    def _load_or_compile(self, arguments: tuple[Any, ...]) -> Callable[..., None]:
        if settings.DISABLE_JIT:
            raise ProviderError("NUMBA_DISABLE_JIT is set, and the CPU provider is compiled by Numba: unset it")
        locks.require_whole()
        options: Any = {"nogil": True, "error_model": "numpy", "fastmath": FASTMATH, **_WITHOUT_CALLBACK}
        compiled = cast(Any, numba.njit(**options)(self.function))
        path = self.path(*arguments)
        compiled._cache = _Cache(path)
        with _alone(path), without_collection():
            compiled.compile(types.void(*arguments))
        compiled.disable_compile()
        return compiled


def kernel(function: Callable[..., None]) -> Kernel:
    """Make a kernel of a function that returns nothing. Its loops run without the GIL; division follows IEEE."""
    return Kernel(function)


def instruction(function: Callable[..., Any]) -> Any:
    """A function for kernels that writes LLVM itself. Kernels call it without the first parameter."""
    return intrinsic(function)


def emitted(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """An instruction of one signature: the function gets LLVM's builder and the arguments' values, and returns a value,
    or None.
    """

    def declared(emit: Callable[..., Any]) -> Any:
        def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            value = emit(builder, *arguments)
            return context.get_dummy_value() if value is None else value

        @functools.wraps(emit)
        def typed(*_: Any) -> Any:
            return signature, generate

        return instruction(typed)

    return declared


def by_types(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A function for kernels with a body for each kind of arguments: given their Numba types, it returns that body.

    options: of the bodies, as of numba.njit.
    """

    def declared(choose: Callable[..., Any]) -> Any:
        @functools.wraps(choose)
        def function(*arguments: Any) -> Any:
            raise NotImplementedError("for kernels only")

        overload(function, jit_options=cast(Any, options))(choose)
        return function

    return declared


@emitted(types.void())
def widest_vectors(builder: Any) -> None:
    """The first statement of kernels with much arithmetic for each element: vectors of 512 bits on CPUs where these are
    fast.

    LLVM's default is 256, because some of Intel's CPUs lower their clock for 512; those with avx512fp16 do not. Loops
    of few elements are faster with 256, too: fewer elements are left for scalar code.
    """
    if "+avx512fp16" in target()[2].split(","):
        # llvmlite's own `add` only supports attributes without a value
        cast(Any, set).add(builder.function.attributes, '"prefer-vector-width"="512"')


def _alone(path: Path | None) -> contextlib.AbstractContextManager[object]:
    """If a kernel is not cached, one process compiles it, and others that need it at the same time (as with torchrun)
    wait and load it.
    """
    if path is None or os.path.exists(path):  # Path.exists raises without permission
        return contextlib.nullcontext()
    return cache_files.locked("cpu", path.stem[-16:], _OTHERS_COMPILE)


class _Cache:
    """One file, with the methods that Numba's compiler calls to load and to store a function; None: no file."""

    def __init__(self, path: Path | None) -> None:
        self.cache_path = path

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The compiled function, or None if it must be compiled."""
        if self.cache_path is None:
            return None
        try:
            pickled = cache.read(self.cache_path)
            context.refresh()
            return cast(Any, CompileResult)._rebuild(context, *pickle.loads(pickled))
        except OSError:
            return None
        except Exception as error:  # a damaged file; even with a valid digest, loading can fail in any way
            text = str(error) if isinstance(error, ValueError) else repr(error)
            warn(f"gradkern: {self.cache_path} is compiled anew: {text}", stacklevel=2)
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Write the compiled function to disk, if possible."""
        if (
            self.cache_path is not None and not result.library.has_dynamic_globals
        ):  # these contain addresses of this process
            cache.write(self.cache_path, dumps(result._reduce()))


@functools.cache
def target() -> tuple[str, str, str]:
    """The target machine: triple, name of the CPU, and features in LLVM's format."""
    context: Any = cpu_target.target_context
    return context.codegen().magic_tuple()


@functools.cache
def _versions() -> str:
    return f"{sys.version} {numba.__version__} {np.__version__}"


# Settings that may differ between processes with the same code: of threads, caches, messages and the GPU's compiler.
_NOT_IN_CODE = re.compile(
    r".*CUDA.*|.*NUM_THREADS|THREADING_LAYER.*|CACHE_.*|COLOR_SCHEME|GDB_BINARY|RUNNING_UNDER_PROFILER|.*WARNINGS"
)


def _settings() -> dict[str, str]:
    """Numba's settings that the machine code may depend on: all except those known to be irrelevant."""
    names = (name for name in dir(settings) if name.isupper() and name[0] != "_" and not _NOT_IN_CODE.fullmatch(name))
    return {name: repr(getattr(settings, name)) for name in names}


@functools.cache
def _sources(function: Callable[..., None]) -> str:
    """A digest of the text of a kernel and of all that it calls."""
    if function.__module__.startswith("gradkern."):
        return sources.digest(function.__module__, __name__)
    own = Path(function.__code__.co_filename).read_bytes()
    return sources.digest("gradkern.cpu.gelu", "gradkern.cpu.sums", __name__) + hashlib.sha256(own).hexdigest()
