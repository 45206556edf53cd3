"""Values of a graph: NumPy arrays on the host and, where the inputs are tensors of PyTorch, tensors on their device."""

from __future__ import annotations

import sys
from typing import Any, cast

import numpy as np
from array_api_compat import array_namespace

_NOT_NUMPYS = ("bfloat", "float8")  # types that ml_dtypes adds


def is_tensor(value: Any) -> bool:
    """Whether it is a tensor of PyTorch. PyTorch is not loaded for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def namespace(values: tuple[Any, ...]) -> Any:
    """The Array API namespace of the first array; NumPy's where there is none."""
    flat = (each for value in values for each in (value if isinstance(value, list) else [value]))
    first = next((each for each in flat if each is not None), _NUMPY)
    if type(first) not in _namespaces:
        _namespaces[type(first)] = array_namespace(first)
    return _namespaces[type(first)]


_NUMPY = np.empty(0)
_namespaces: dict[type, Any] = {}


def dtype_name(value: Any) -> str:
    """The registry's name of an array's type."""
    return str(value.dtype).removeprefix("torch.")


def to_host(value: Any) -> Any:
    """A NumPy array; of a tensor on a GPU after the work on its stream."""
    if isinstance(value, list):
        return [to_host(each) for each in cast(list[Any], value)]
    if not is_tensor(value):
        return value
    import torch

    tensor, kind = value.detach().cpu(), dtype_name(value)
    if not kind.startswith(_NOT_NUMPYS):
        return tensor.numpy()
    return tensor.view(getattr(torch, f"uint{8 * tensor.itemsize}")).numpy().view(kind)


def to_device(value: Any, device: Any) -> Any:
    """A tensor on the device; the array itself where there is no device, as then all are NumPy arrays."""
    if isinstance(value, list):
        return [to_device(each, device) for each in cast(list[Any], value)]
    if device is None or value is None:
        return value
    if is_tensor(value):
        return value if value.device == device else value.to(device)
    import torch

    kind = getattr(torch, dtype_name(value), None)
    if kind is None or not dtype_name(value).startswith(_NOT_NUMPYS):
        return torch.from_numpy(np.array(value, order="C")).to(device)
    return torch.from_numpy(np.array(value.view(f"u{value.itemsize}"), order="C")).to(device).view(kind)


def storage(value: Any) -> int:
    """What is equal for two arrays in the same memory."""
    if is_tensor(value):
        return value.untyped_storage().data_ptr()
    while isinstance(value.base, np.ndarray):
        value = value.base
    return id(value)
