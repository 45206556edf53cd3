"""Tensors as cuDNN's functions outside the graph API know them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from gradkern.cudnn.api import DATA_TYPES
from gradkern.cudnn.library import check, library


class TensorDescriptor:
    """The type, sizes and strides (in elements) of a tensor. Raises CudnnError with cuDNN's reason where it refuses."""

    __slots__ = ("_destroy", "pointer")

    def __init__(self, dtype: str, sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
        lib = library()
        self.pointer = 0
        self._destroy: Callable[[int], int] = lib.cudnnDestroyTensorDescriptor  # also while Python shuts down
        made = ctypes.c_void_p()
        check(lib.cudnnCreateTensorDescriptor(ctypes.byref(made)), "creating a tensor's descriptor")
        self.pointer = made.value or 0
        numbers = ctypes.c_int * len(sizes)
        status = lib.cudnnSetTensorNdDescriptor(
            self.pointer, DATA_TYPES[dtype], len(sizes), numbers(*sizes), numbers(*strides)
        )
        check(status, "describing a tensor")

    def __del__(self) -> None:
        if self.pointer:
            self._destroy(self.pointer)
