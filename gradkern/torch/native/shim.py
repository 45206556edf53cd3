"""PyTorch's C functions: by address for machine code, and those that Python calls."""

from __future__ import annotations

import ctypes
import os
import platform
import threading
import warnings
from functools import cache
from typing import Any, cast

import torch  # pyright: ignore[reportMissingImports]

from gradkern.policy import watch_blocks
from gradkern.torch.native.words import POLICIES, SHIM

_RAISE = "_ZN2at4_ops4neg_4callERNS_6TensorE"
"""at::Tensor& at::_ops::neg_::call(at::Tensor&): enters the dispatcher with no handler between, as C functions have."""
_CONTEXT = "_ZN2at13globalContextEv"
_FLAGS = {  # methods of at::Context without arguments that return a bool
    "deterministic": "_ZNK2at7Context23deterministicAlgorithmsEv",
    "deterministic cuDNN": "_ZNK2at7Context18deterministicCuDNNEv",
    "cuDNN": "_ZNK2at7Context16userEnabledCuDNNEv",
}
_ON_GPU = ("aoti_torch_get_current_cuda_stream", "cuStreamIsCapturing", "cuLaunchKernelEx", "cuCtxGetDevice")


@cache
def unavailable(key: str) -> str:
    """Why no operator can be registered this way for a dispatch key; "" where they can."""
    if os.environ.get("GRADKERN_NATIVE") == "0":
        return "GRADKERN_NATIVE is 0"
    if platform.machine() != "x86_64" or os.name != "posix":
        return f"machine code is not tried on {platform.system()} for {platform.machine()}"
    missing = [name for name, address in _found(key).items() if not address and name != "policies"]
    return f"this PyTorch, {torch.__version__}, has no {missing[0]}" if missing else ""


@cache
def _library(name: str | None) -> Any:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def _torch_library(name: str) -> Any:
    return _library(os.path.join(os.path.dirname(torch.__file__), "lib", name))


def address_of(library: Any, name: str) -> int:
    """A function's; 0 where there is no such library or function."""
    function = None if library is None else getattr(library, name, None)
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0


@cache
def _found(key: str) -> dict[str, int]:
    core = _torch_library("libtorch_cpu.so")
    found = {name: address_of(core, name) for name in SHIM if name not in _ON_GPU}
    found |= {name: address_of(ctypes.pythonapi, name) for name in SHIM if name.startswith("Py")}
    found["raise"] = address_of(core, _RAISE)
    # a word that PyTorch has made with `new`
    found["free"] = address_of(core, "torch_delete_stable_ivalue") or address_of(_library("libstdc++.so.6"), "_ZdlPv")
    found |= {name: address_of(core, symbol) for name, symbol in _FLAGS.items()}
    found |= {name: address_of(_library(None), name) for name in ("getpid", "gettid")}
    found["raised"] = ctypes.addressof(_of_handler)
    if getattr(core, _CONTEXT, None) is not None:
        getattr(core, _CONTEXT).restype = ctypes.c_void_p
        found["context"] = getattr(core, _CONTEXT)()
    if key == "CUDA":
        driver = _library("libcuda.so.1")
        found |= {name: address_of(driver, name) for name in _ON_GPU[1:]}
        found[_ON_GPU[0]] = address_of(_torch_library("libtorch_cuda.so"), _ON_GPU[0])
    return found


@cache
def addresses(key: str) -> Any:
    """The functions' addresses, in the order of SHIM; never freed."""
    found = _found(key)
    made = (ctypes.c_int64 * len(SHIM))(*[found.get(name, 0) for name in SHIM])

    def note_policies(count: int) -> None:
        made[POLICIES] = count

    watch_blocks(note_policies)
    return made


@cache
def kernel_function(operator: str, key: str) -> int:
    """The C function that Inductor's C++ calls for aten::name at a dispatch key; 0 where there is none, or where the
    operator has got arguments since: what takes these is called _v2.
    """
    library = _torch_library("libtorch_cuda.so" if key == "CUDA" else "libtorch_cpu.so")
    name = f"aoti_torch_{key.lower()}_{operator.removeprefix('aten::')}"
    return 0 if address_of(library, f"{name}_v2") else address_of(library, name)


@cache
def version() -> int:
    """That of PyTorch's stable interface."""
    function = _torch_library("libtorch_cpu.so").aoti_torch_abi_version
    function.restype = ctypes.c_uint64
    return function()


@cache
def dtype_code(dtype: torch.dtype) -> int:
    """PyTorch's number of a type."""
    return getattr(_torch_library("libtorch_cpu.so"), f"aoti_torch_dtype_{str(dtype).removeprefix('torch.')}")()


class Registration:
    """A function registered for an operator, NAMESPACE::NAME, at a dispatch key, until it is undone. `file` is shown in
    PyTorch's table of kernels. Raises RuntimeError where PyTorch refuses.
    """

    def __init__(self, operator: str, key: str, function: int, file: str) -> None:
        namespace, _, name = operator.partition("::")
        core, self._library = _torch_library("libtorch_cpu.so"), ctypes.c_void_p()
        where = namespace.encode(), key.encode(), file.encode(), ctypes.c_uint32(1)
        if core.aoti_torch_library_init_impl(*where, ctypes.byref(self._library)):
            raise RuntimeError(f"PyTorch has not made a library of kernels for {key}")
        _take_warning()
        given = name.encode(), ctypes.c_void_p(function), ctypes.c_uint64(version())
        if core.torch_library_impl(self._library, *given):
            raise RuntimeError(f"PyTorch has not registered machine code for {name} at {key}")

    def undo(self) -> None:
        _torch_library("libtorch_cpu.so").aoti_torch_delete_library_object(self._library)


@cache
def _take_warning() -> None:
    """PyTorch warns on stderr when the first kernel in a process is replaced, as is wanted here."""
    library = torch.library.Library("gradkern_by_python", "FRAGMENT")
    library.define("replaced() -> ()")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            library.impl("replaced", lambda: None, "CPU", allow_override=True)


_raised = threading.local()
_of_handler = (ctypes.c_void_p * 3)()
"""What the handler of a signal has raised, in the main thread: its class, itself and its traceback."""


def stash(error: BaseException) -> None:
    """Keep what `raiser` raises next in this thread."""
    _raised.error = error


def _taken_of_handler() -> BaseException:
    kind, error, trace = [each and ctypes.cast(each, ctypes.py_object).value for each in _of_handler]
    for place, each in enumerate(_of_handler):
        _of_handler[place] = None
        ctypes.pythonapi.Py_DecRef(ctypes.c_void_p(each))
    return (error if isinstance(error, BaseException) else kind()).with_traceback(trace)


class _Raiser(torch.Tensor):
    """Raises what is stashed as soon as an operator is called with it: machine code lets exceptions pass this way, with
    their class and traceback.
    """

    @classmethod
    def __torch_dispatch__(cls, operator: Any, types: Any, args: Any = (), named: Any = None) -> Any:
        error, _raised.error = getattr(_raised, "error", None), None
        raise _taken_of_handler() if error is None else error


@cache
def raiser() -> int:
    """The handle of such a tensor, never deleted."""
    return _handle_of(torch.Tensor._make_wrapper_subclass(_Raiser, (1,)))  # pyright: ignore[reportAttributeAccessIssue]


@cache
def handle_in_object() -> int:
    """Where the object of a tensor in Python has its handle, in bytes from its beginning on. Raises RuntimeError where
    it is not found.
    """
    found = [_place_of_handle(torch.empty(n, dtype=torch.float32, device="cpu")) for n in range(3)]
    if None in found or len(set(found)) > 1:
        raise RuntimeError(f"the objects of tensors of PyTorch {torch.__version__} have no handle")
    return cast(int, found[0])


def _place_of_handle(tensor: torch.Tensor) -> int | None:
    """A handle is the address of a word that has the address of what PyTorch calls the implementation."""
    places = range(object.__basicsize__, torch.Tensor.__basicsize__ - 7, 8)
    words = {ctypes.c_uint64.from_address(id(tensor) + place).value: place for place in places}
    return words.get(tensor._cdata)


def _handle_of(tensor: torch.Tensor) -> int:
    handle: Any = torch._C._aoti.unsafe_alloc_void_ptr_from_tensor(tensor)  # pyright: ignore[reportAttributeAccessIssue]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return pointer(handle, None)
