"""Arrays on the host, seen as NumPy arrays: NumPy's own, PyTorch's, and those of whatever speaks DLPack."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any, cast

import numpy as np

from gradkern.arrays.kind import HOST, Kind, Maker, View, dtype_of, type_name
from gradkern.call import Tensor
from gradkern.errors import ArgumentError, GradkernError
from gradkern.strides import c_strides

_new = cast(Any, tuple).__new__  # of a named tuple: every array of every call makes two


def of_numpy(array: np.ndarray, kind: Kind) -> View:
    flags = array.flags
    dtype = array.dtype
    alignment = dtype.itemsize if flags.aligned else 1
    tensor = _new(Tensor, (dtype, array.shape, array.strides, alignment))
    return _new(View, (tensor, array, HOST, kind, flags.writeable))


class _OnHost:
    device = HOST
    finish: Any = None

    def stream(self) -> None:
        return None


class _Numpy(_OnHost):
    """NumPy arrays, and host arrays that name no library to go back to."""

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


NUMPY = _Numpy()


# --- PyTorch -------------------------------------------------------------------------------------------------------


def torch_as_numpy(value: Any) -> np.ndarray:
    """The memory of a dense tensor on the CPU as a NumPy array. The array keeps the tensor alive.

    Not by Tensor.numpy(): it does not support bfloat16, and makes the storage unresizable, but FSDP resizes the storage
    of parameters. Raises TypeError for types that NumPy does not have.
    """
    dtype = numpy_type(value.dtype)
    if value.is_contiguous():
        size, strides = value.nbytes, None
    else:
        size = value.untyped_storage().nbytes() - value.storage_offset() * dtype.itemsize
        strides = tuple([step * dtype.itemsize for step in value.stride()])
    memory = _memory_of(size)(value.data_ptr())
    memory.owner = value
    return np.ndarray(value.shape, dtype, memory, 0, strides)


@lru_cache(maxsize=1024)
def _memory_of(size: int) -> Any:
    """Makes a buffer of the bytes at an address."""
    return (ctypes.c_char * size).from_address


@cache
def numpy_type(dtype: Any) -> np.dtype:
    """Of a PyTorch type. Raises TypeError where NumPy has none."""
    return dtype_of(str(dtype).removeprefix("torch."))


class _Torch(_OnHost):
    """PyTorch tensors on the CPU."""

    def maker(self, tensor: Tensor) -> Maker:
        torch = sys.modules["torch"]
        strides = tuple(stride // tensor.dtype.itemsize for stride in tensor.strides)
        # the device by name: torch.device(...) as a context, and torch.set_default_device, choose another
        dtype = getattr(torch, tensor.dtype.name)
        make = partial(torch.empty_strided, tensor.shape, strides, dtype=dtype, device="cpu")

        def new(stream: int | None) -> tuple[Any, np.ndarray]:
            array = make()
            return array, torch_as_numpy(array)

        return new


TORCH = _Torch()


# --- libraries of the array API standard -----------------------------------------------------------------------------


class _Dlpack(_OnHost):
    """Arrays of a library that follows the array API standard: made as NumPy arrays, handed over by DLPack."""

    def __init__(self, namespace: Any) -> None:
        self._namespace = namespace

    def maker(self, tensor: Tensor) -> Maker:
        return NUMPY.maker(tensor)

    def finish(self, array: np.ndarray) -> Any:
        try:
            return self._namespace.from_dlpack(array)
        except MemoryError:
            raise
        except Exception:  # bfloat16 again, or whatever the library raises
            return handed_over(self._namespace, "asarray", array)


def namespace_of(value: Any, where: str) -> Any:
    """The library that an array is of, by the array API standard; None where it names none. Raises ArgumentError for
    one that could not be handed the outputs.
    """
    ask = getattr(value, "__array_namespace__", None)
    if ask is None:
        return None
    namespace = ask()
    if not callable(getattr(namespace, "from_dlpack", None)):
        raise ArgumentError(
            f"{where} is a {type_name(value)} whose __array_namespace__ has no from_dlpack, which it needs for outputs"
        )
    return namespace


def handed_over(namespace: Any, function: str, array: Any) -> Any:
    """An output as a library's own array. Raises GradkernError where the library refuses it."""
    try:
        return getattr(namespace, function)(array)
    except MemoryError:
        raise
    except Exception as error:
        name = getattr(namespace, "__name__", type_name(namespace))
        raise GradkernError(f"{name}.{function} does not take an output: {error!r}") from error


# Bounded: a library may make a namespace anew for every call.
dlpack_kind: Callable[[Any], Kind] = lru_cache(maxsize=64)(_Dlpack)
