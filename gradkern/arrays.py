"""A caller's array as gradkern sees it, and new outputs of the caller's own kind. No element is copied here.

A kind is a Kind object: how to look into arrays of one framework, and how to make new ones. No framework is imported
that the caller has not imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, lru_cache, partial
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import numpy as np

from gradkern.call import Tensor
from gradkern.errors import ArgumentError
from gradkern.memory import c_strides

__all__ = [
    "HOST",
    "NUMPY",
    "Kind",
    "Maker",
    "View",
    "device_arrays",
    "dtype_of",
    "overlap",
    "same_memory",
    "span",
    "view",
]

HOST = "cpu"
_DLPACK_CPU, _DLPACK_CUDA = 1, 2


Maker = Callable[[int | None], tuple[Any, Any]]
"""Makes an array, for use on a stream (None: the framework's current one), and the buffer a plan writes it through."""


class Kind(Protocol):
    """One framework's arrays on one device."""

    @property
    def device(self) -> str:
        """HOST, or "cuda:0"."""
        ...

    def stream(self) -> int | None:
        """The framework's current stream on the device; None on the host."""
        ...

    def maker(self, tensor: Tensor) -> Maker:
        """What makes new uninitialised arrays of this type, shape and memory order."""
        ...

    @property
    def finish(self) -> Callable[[Any], Any] | None:
        """What makes of a written array the one the caller gets; None where it is that one."""
        ...


class View(NamedTuple):
    """One array: what a plan may know of it (its key), what it runs on (buffer), and whose it is."""

    key: tuple[Any, ...]  # dtype, shape, byte strides, alignment
    buffer: Any  # NumPy array on the host, address on a GPU
    device: str
    kind: Kind
    writable: bool = True

    @property
    def tensor(self) -> Tensor:
        return Tensor(*self.key)


def view(value: Any, where: str) -> View:
    """The view of a caller's array; `where` names the argument in errors ("ConvGrad: input W").

    Raises ArgumentError for what is no array, or an array that cannot be read as it is.
    """
    if type(value) is np.ndarray:
        return _of_numpy(value, NUMPY)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _of_torch(value, where, torch)
    if isinstance(value, np.ma.MaskedArray):
        raise ArgumentError(f"{where} is a masked array, whose mask would be lost; pass .filled(...) or .data")
    if isinstance(value, np.ndarray):
        return _of_numpy(value.view(np.ndarray), NUMPY)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _of_dlpack(value, where)
    if hasattr(value, "__cuda_array_interface__"):
        return device_arrays().of_cuda_interface(value, where)
    if hasattr(value, "__array_interface__"):
        try:
            return _of_numpy(np.asarray(value), NUMPY)
        except (TypeError, ValueError, AttributeError) as error:
            raise ArgumentError(f"{where} has an __array_interface__ that NumPy refuses: {error}") from error
    raise ArgumentError(
        f"{where} is of type {_type_name(value)}; expected an array (NumPy, PyTorch, __dlpack__ or __array_interface__)"
    )


def _of_numpy(array: np.ndarray, kind: Kind) -> View:
    flags = array.flags
    dtype = array.dtype
    alignment = dtype.itemsize if flags.aligned else 1
    return View((dtype, array.shape, array.strides, alignment), array, HOST, kind, flags.writeable)


class _Numpy:
    """NumPy arrays, and host arrays that name no library to go back to."""

    device = HOST

    def maker(self, tensor: Tensor) -> Maker:
        shape, dtype, strides = tensor.shape, tensor.dtype, tensor.strides
        make = (
            partial(np.empty, shape, dtype)
            if strides == c_strides(shape, dtype.itemsize)
            else partial(np.ndarray, shape, dtype, strides=strides)
        )

        def new(stream: int | None) -> tuple[np.ndarray, np.ndarray]:
            array = make()
            return array, array

        return new

    finish = None

    def stream(self) -> None:
        return None


NUMPY = _Numpy()


# --- PyTorch -------------------------------------------------------------------------------------------------------


def _of_torch(value: Any, where: str, torch: Any) -> View:
    if value.requires_grad:
        name = where.rsplit(" ", 1)[-1]
        raise ArgumentError(f"{where} requires grad, and autograd cannot follow gradkern; detach it: {name}.detach()")
    if value.layout != torch.strided:
        raise ArgumentError(f"{where} is a tensor of layout {value.layout}; expected a dense one (torch.strided)")
    if value.is_neg() or value.is_conj():
        raise ArgumentError(f"{where} is a tensor with a lazy sign; pass .resolve_neg().resolve_conj()")
    if value.device.type not in ("cpu", "cuda"):
        raise ArgumentError(f"{where} is a tensor on device {value.device}; expected cpu or cuda")
    try:
        address = value.data_ptr()
    except RuntimeError:
        address = 0
    if not address and value.numel():
        raise ArgumentError(f"{where} is a tensor without memory: of a function transform, fake, or zero by definition")
    if value.is_cuda:
        return device_arrays().of_torch(value, where)
    try:
        return _of_numpy(_torch_as_numpy(value, torch), TORCH)
    except TypeError as error:
        raise ArgumentError(f"{where} is a tensor of type {value.dtype}, which NumPy does not have") from error


def _torch_as_numpy(value: Any, torch: Any) -> np.ndarray:
    """The tensor's memory as a NumPy array; bfloat16, which torch will not export, by way of int16."""
    if value.dtype is torch.bfloat16:
        return value.view(torch.int16).numpy().view(_bfloat16())
    return value.numpy()


class _Torch:
    """PyTorch tensors on the CPU."""

    device = HOST

    def maker(self, tensor: Tensor) -> Maker:
        torch = sys.modules["torch"]
        strides = tuple(stride // tensor.dtype.itemsize for stride in tensor.strides)
        make = partial(torch.empty_strided, tensor.shape, strides, dtype=getattr(torch, tensor.dtype.name))

        def new(stream: int | None) -> tuple[Any, np.ndarray]:
            array = make()
            return array, _torch_as_numpy(array, torch)

        return new

    finish = None

    def stream(self) -> None:
        return None


TORCH = _Torch()


# --- whatever speaks DLPack ----------------------------------------------------------------------------------------


def _of_dlpack(value: Any, where: str) -> View:
    try:
        device, index = value.__dlpack_device__()
    except Exception as error:
        raise ArgumentError(f"{where} is a {_type_name(value)} whose __dlpack_device__ fails: {error}") from error
    if device == _DLPACK_CUDA:
        return device_arrays().of_dlpack(value, where, index)
    if device != _DLPACK_CPU:
        raise ArgumentError(
            f"{where} is a {_type_name(value)} on DLPack device {int(device)}; expected the CPU or CUDA"
        )
    namespace = getattr(value, "__array_namespace__", None)
    kind: Kind = NUMPY if namespace is None else _dlpack_kind(namespace())
    try:
        return _of_numpy(np.from_dlpack(value), kind)
    except Exception as refused:
        # NumPy's DLPack has no bfloat16; __array__ has. It may be a copy (not in JAX), so nothing is written to it.
        if not hasattr(value, "__array__"):
            raise ArgumentError(
                f"{where} is a {_type_name(value)} that DLPack cannot hand to NumPy: {refused}"
            ) from refused
        return _of_numpy(np.asarray(value), kind)._replace(writable=False)


class _Dlpack:
    """Arrays of a library that follows the array API standard: made as NumPy arrays, handed over by DLPack."""

    device = HOST

    def __init__(self, namespace: Any) -> None:
        self._namespace = namespace

    def maker(self, tensor: Tensor) -> Maker:
        return NUMPY.maker(tensor)

    def finish(self, array: np.ndarray) -> Any:
        try:
            return self._namespace.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError, ValueError):  # bfloat16 again
            return self._namespace.asarray(array)

    def stream(self) -> None:
        return None


@cache
def _dlpack_kind(namespace: Any) -> Kind:
    return _Dlpack(namespace)


# --- arrays that are not on the host -------------------------------------------------------------------------------


@cache
def device_arrays() -> Any:
    """The module for arrays on a GPU, loaded with the first of them."""
    return import_module("gradkern.device_arrays")


# --- memory --------------------------------------------------------------------------------------------------------


def overlap(one: View, other: View) -> bool:
    """Whether two arrays on one device have a byte in common. Where that is too hard to decide, the answer is yes.

    On a GPU only the outermost bytes are compared, so that arrays interleaved in one buffer count as overlapping.
    """
    start, end = span(one.key, one.buffer)
    other_start, other_end = span(other.key, other.buffer)
    if start >= other_end or other_start >= end:
        return False
    if one.device != HOST:
        return True
    try:
        return bool(np.shares_memory(one.buffer, other.buffer, max_work=100_000))  # pyright: ignore[reportArgumentType]
    except np.exceptions.TooHardError:
        return True


def span(key: tuple[Any, ...], buffer: Any) -> tuple[int, int]:
    """The addresses of an array's first byte and of the one after its last."""
    low, high = _extent(key)
    address = buffer if isinstance(buffer, int) else buffer.__array_interface__["data"][0]
    return address + low, address + high


@lru_cache(maxsize=4096)
def _extent(key: tuple[Any, ...]) -> tuple[int, int]:
    return Tensor(*key).extent


def same_memory(one: View, other: View) -> bool:
    """Whether two views are the same elements in the same order."""
    same = one.key[:3] == other.key[:3] and one.device == other.device
    return same and span(one.key, one.buffer) == span(other.key, other.buffer)


# --- types ---------------------------------------------------------------------------------------------------------


@cache
def _bfloat16() -> np.dtype:
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


def dtype_of(name: str) -> np.dtype:
    """The NumPy dtype of a registry type name; bfloat16 is ml_dtypes'."""
    return _bfloat16() if name == "bfloat16" else np.dtype(name)


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
