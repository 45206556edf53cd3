"""Plain PyTorch tensors on a GPU, looked at as lightly as a call can.

Reading a tensor attribute by attribute takes almost a microsecond. Tensors like earlier ones are recognised by the
guard that tells torch.compile whether compiled code fits: one call compares class, dispatch keys (function
transforms), type, device, gradient, sizes and strides of all of them. Within an operator that compiled code calls, the
guard does not see lazy signs (conjugate, negative), so these are read. The interface is private: it is used only with
versions of PyTorch it was tried with, after a check that it distinguishes what matters. Elsewhere the attributes are
read.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np

_TRIED = "2.11", "2.13"  # of PyTorch, the first and the last: called in a way it does not know, the guard may crash


class Guard:
    """Recognises tensors that are like those it was made from. It keeps none of them alive."""

    __slots__ = ("_address", "_check", "_grad_mode", "_is_neg")

    def __init__(self, check: Callable[..., bool], grad_mode: Callable[[], bool] | None) -> None:
        tensor: Any = sys.modules["torch"].Tensor
        self._check, self._address, self._is_neg = check, tensor.data_ptr, tensor.is_neg
        self._grad_mode = grad_mode  # says whether PyTorch records operations; None where no tensor requires grad

    def addresses(self, values: tuple[Any, ...]) -> tuple[int, ...] | None:
        """The addresses of tensors that are like those, and aligned to 16 bytes; None for others."""
        if not self._check(*values) or (self._grad_mode is not None and self._grad_mode()):
            return None
        addresses: tuple[int, ...] = tuple(map(self._address, values))
        for address in addresses:
            if address & 15 or not address:
                return None
        return None if any(map(self._is_neg, values)) else addresses


def guard_of(values: tuple[Any, ...], keys: tuple[Any, ...] | None = None) -> Guard | None:
    """A guard that recognises tensors like these; None for other arrays, and where it would not recognise them.

    keys   what `of_tensors` has read of them: tensors that another thread has changed since have no guard
    """
    guards = tensor_guards() if "torch" in sys.modules else None
    if guards is None or len(set(map(id, values))) < len(values):  # one tensor given twice fits no guard
        return None
    torch = sys.modules["torch"]
    if any(type(each) not in _plain(torch) for each in values) or of_tensors(values) is None:
        return None
    made = guards(*values, dynamic_dims_sizes=None, dynamic_dims_strides=None)  # None: all sizes and strides count
    guard = Guard(made.check, torch.is_grad_enabled if any(each.requires_grad for each in values) else None)
    found = None if guard.addresses(values) is None else of_tensors(values)
    return None if found is None or keys not in (None, found[0]) else guard


def note_written(arrays: Iterable[Any]) -> None:
    """Tell autograd that memory of these arrays was written: it counts the versions of the tensors among them."""
    for each in arrays:
        if type(each) is not np.ndarray and "torch" in sys.modules:
            torch: Any = sys.modules["torch"]
            if isinstance(each, torch.Tensor):
                torch.autograd.graph.increment_version(each)


def alignment(address: int) -> int:
    """The largest power of two, at most 16, that divides an address."""
    return (address | 16) & -(address | 16)


def of_tensors(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[int, ...], int] | None:
    """Of plain tensors on one device, keys that say what View.tensor does, the addresses, and the number of the device.

    The first of them is known to be a plain tensor. None where another needs a closer look: a subclass, one that
    requires grad while operations are recorded, one with a lazy sign, on another device, without (all of) its memory,
    or of a layout without strides.
    """
    torch = sys.modules["torch"]
    plain, recording = _plain(torch), torch.is_grad_enabled()
    index = values[0].get_device()
    keys: list[tuple[Any, ...]] = []
    addresses: list[int] = []
    try:
        for each in values:
            if type(each) not in plain or (recording and each.requires_grad):
                return None
            if each.is_neg() or each.get_device() != index:
                return None
            address = each.data_ptr()
            if not address or is_cut_off(each):
                return None
            order = None if each.is_contiguous() else each.stride()
            keys.append((each.dtype, each.shape, order, alignment(address)))
            addresses.append(address)
    except RuntimeError:  # the tensor has no memory or no strides
        return None
    return tuple(keys), tuple(addresses), index


def is_cut_off(tensor: Any) -> bool:
    """Whether elements of a strided tensor are beyond the end of its storage, after that was resized: PyTorch would
    read on there. An empty tensor has none.
    """
    if tensor.is_contiguous():
        used = tensor.numel()
    else:
        used = 1 + sum([(size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True)])
    end = (tensor.storage_offset() + used) * tensor.element_size()
    return used > 0 and end > tensor.untyped_storage().nbytes()


@cache
def _plain(torch: Any) -> tuple[type, ...]:
    """The classes of tensors without behaviour of their own."""
    return torch.Tensor, torch.nn.Parameter


@cache
def tensor_guards() -> Any:
    """PyTorch's TensorGuards; None where it does not exist, or does not behave as in the versions it was tried with."""
    torch = sys.modules["torch"]
    version, first, last = ([int(n) for n in re.findall(r"\d+", each)[:2]] for each in (torch.__version__, *_TRIED))
    if not first <= version <= last:
        return None
    try:
        guards = torch._C._dynamo.guards.TensorGuards
        kind = {"dtype": torch.float32, "device": "cpu"}  # whatever the defaults are
        model = torch.empty(2, 3, **kind)
        guard = guards(model, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        others = [
            torch.empty(3, 3, **kind),
            torch.empty(3, 2, **kind).t(),
            torch.empty(2, 3, dtype=torch.float64, device="cpu"),
            torch.empty(2, 3, dtype=torch.float32, device="meta"),
            torch.empty(2, 3, **kind, requires_grad=True),
            torch.nn.Parameter(model, requires_grad=False),
        ]
        with torch.no_grad():
            right = guard.check(torch.empty(2, 3, **kind)) and not any(map(guard.check, others))
    except Exception:
        return None
    return guards if right else None
