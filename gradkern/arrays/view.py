"""A caller's array as gradkern sees it. No element is copied here, and no framework imported that the caller has not.

Arrays on a GPU are read in `device`. The first of them loads it.
"""

from __future__ import annotations

import sys
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from gradkern.arrays.host import NUMPY, TORCH, dlpack_kind, namespace_of, of_numpy, torch_as_numpy
from gradkern.arrays.kind import Kind, View, type_name
from gradkern.arrays.torch_compile import mark_opaque
from gradkern.arrays.torch_guards import is_cut_off
from gradkern.errors import ArgumentError, GradkernError
from gradkern.system.importing import load

_DLPACK_CPU, _DLPACK_CUDA = 1, 2


def view(value: Any, where: str) -> View:
    """The view of a caller's array; `where` names the argument in errors ("ConvGrad: input W").

    Raises ArgumentError for what is no array, or an array that cannot be read as it is.
    """
    if type(value) is np.ndarray:
        return of_numpy(value.view(), NUMPY)  # a view keeps its shape when somebody sets the array's
    try:
        return _view(value, where)
    except (GradkernError, MemoryError):
        raise
    except Exception as error:  # whatever an object of the caller's raises when it is looked at
        raise ArgumentError(f"{where} is a {type_name(value)} that cannot be read: {error!r}") from error


def _view(value: Any, where: str) -> View:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _of_torch(value, where, torch)
    if isinstance(value, np.ma.MaskedArray):
        raise ArgumentError(f"{where} is a masked array, whose mask would be lost; pass .filled(...) or .data")
    if isinstance(value, np.ndarray):
        return of_numpy(value.view(np.ndarray), NUMPY)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _of_dlpack(value, where)
    if hasattr(value, "__cuda_array_interface__"):
        return device_arrays().of_cuda_interface(value, where)
    if hasattr(value, "__array_interface__"):
        try:
            return of_numpy(np.asarray(value).view(np.ndarray), NUMPY)
        except (TypeError, ValueError, AttributeError) as error:
            raise ArgumentError(f"{where} has an __array_interface__ that NumPy refuses: {error}") from error
    raise ArgumentError(
        f"{where} is of type {type_name(value)}; expected an array (NumPy, PyTorch, __dlpack__ or __array_interface__)"
    )


# --- PyTorch -------------------------------------------------------------------------------------------------------


def _of_torch(value: Any, where: str, torch: Any) -> View:
    mark_opaque()
    if value.requires_grad and torch.is_grad_enabled():
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
    if is_cut_off(value):
        raise ArgumentError(
            f"{where} is a tensor of shape {tuple(value.shape)} whose storage was resized to "
            f"{value.untyped_storage().nbytes()} bytes; expected all of its elements there"
        )
    try:
        return device_arrays().of_torch(value) if value.is_cuda else of_numpy(torch_as_numpy(value), TORCH)
    except TypeError as error:
        raise ArgumentError(f"{where} is a tensor of type {value.dtype}, which NumPy does not have") from error


# --- whatever speaks DLPack ----------------------------------------------------------------------------------------


def _of_dlpack(value: Any, where: str) -> View:
    try:
        device, index = value.__dlpack_device__()
    except Exception as error:
        raise ArgumentError(f"{where} is a {type_name(value)} whose __dlpack_device__ fails: {error}") from error
    if device == _DLPACK_CUDA:
        return device_arrays().of_dlpack(value, where, index)
    if device != _DLPACK_CPU:
        raise ArgumentError(f"{where} is a {type_name(value)} on DLPack device {int(device)}; expected the CPU or CUDA")
    namespace = namespace_of(value, where)
    kind: Kind = NUMPY if namespace is None else dlpack_kind(namespace)
    try:
        return of_numpy(np.from_dlpack(value), kind)
    except Exception as refused:
        # NumPy's DLPack has no bfloat16; __array__ has. It may be a copy (not in JAX), so nothing is written to it.
        if not hasattr(value, "__array__"):
            raise ArgumentError(
                f"{where} is a {type_name(value)} that DLPack cannot hand to NumPy: {refused}"
            ) from refused
        return of_numpy(np.asarray(value).view(np.ndarray), kind)._replace(writable=False)


@cache
def device_arrays() -> ModuleType:
    """The module for arrays on a GPU."""
    return load("gradkern.arrays.device")
