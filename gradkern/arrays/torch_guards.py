"""Plain PyTorch tensors on a GPU, looked at as lightly as a call can.

Attribute by attribute a tensor costs almost a microsecond. Tensors like ones that were read before are recognised by
PyTorch's own guard, with which torch.compile decides whether compiled code fits: one call compares class, dispatch keys
(lazy signs, function transforms), type, device, gradient, sizes and strides of all of them. No promise covers that
interface, so it is used with the versions of PyTorch it was tried with, once it has shown that it tells apart what
matters; elsewhere the attributes are read.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

__all__ = ["Known", "alignment", "of_tensors", "recognised", "tensor_guards"]

_MOST, _MOST_ALIKE = 1024, 16
_TRIED = "2.11", "2.13"  # of PyTorch, the first and the last: called in a way it does not know, the guard may crash


class Known:
    """Tensors that were read before, as their guard recognises others like them: keys, and number of the device."""

    __slots__ = ("_guard", "index", "keys")

    def __init__(self, guard: Callable[..., bool], keys: str, index: int) -> None:
        self._guard, self.keys, self.index = guard, keys, index

    def addresses(self, values: tuple[Any, ...]) -> tuple[int, ...] | None:
        """The addresses of tensors that are like these; None for others."""
        if not self._guard(*values):
            return None
        addresses = []
        for each in values:
            address = each.data_ptr()
            if address & 15 or not address:
                return None
            addresses.append(address)
        return tuple(addresses)


_known: dict[Any, list[Known]] = {}


def alignment(address: int) -> int:
    """The largest power of two, at most 16, that divides an address."""
    return (address | 16) & -(address | 16)


def of_tensors(values: tuple[Any, ...]) -> tuple[str, tuple[int, ...], int] | None:
    """Of plain tensors on one device, keys that say what View.key does, the addresses, and the number of the device.

    The keys are a string: it keeps its hash, which tuples work out at every look-up.

    The first of them is known to be a plain tensor. None where another needs a closer look: a subclass, one with a
    gradient or a lazy sign, on another device, without memory, or of a layout without strides.
    """
    for known in _known.get((len(values), values[0].shape), ()):
        addresses = known.addresses(values)
        if addresses is not None:
            return known.keys, addresses, known.index
    return _read(values)


def recognised(values: tuple[Any, ...]) -> Known | None:
    """What is known of tensors like these; None for tensors not read before, and other arrays."""
    alike = _known.get((len(values), getattr(values[0], "shape", None)), ())
    return next((known for known in alike if known.addresses(values) is not None), None)


def _read(values: tuple[Any, ...]) -> tuple[str, tuple[int, ...], int] | None:
    plain = sys.modules["torch"].Tensor
    index = values[0].get_device()
    keys, addresses = [], []
    try:
        for each in values:
            if type(each) is not plain or each.requires_grad or each.is_neg() or each.get_device() != index:
                return None
            address = each.data_ptr()
            if not address:
                return None
            order = None if each.is_contiguous() else each.stride()
            keys.append((each.dtype, each.shape, order, alignment(address)))
            addresses.append(address)
    except RuntimeError:  # what has no memory or no strides raises when asked for them
        return None
    text = _text(tuple(keys))
    if all(aligned == 16 for *_, aligned in keys):
        _remember(values, text, index)
    return text, tuple(addresses), index


_text = lru_cache(maxsize=4096)(repr)


def _remember(values: tuple[Any, ...], keys: str, index: int) -> None:
    guards = _guards()
    if guards is None or len(set(map(id, values))) < len(values):  # one tensor given twice fits no guard
        return
    guard = guards(*values, dynamic_dims_sizes=None, dynamic_dims_strides=None)  # None: all sizes and strides count
    if len(_known) >= _MOST:
        _known.clear()
    alike = _known.setdefault((len(values), values[0].shape), [])
    alike.append(Known(guard.check, keys, index))
    del alike[:-_MOST_ALIKE]


@cache
def _guards() -> Any:
    """PyTorch's TensorGuards, if it is there and does what is expected of it."""
    torch = sys.modules["torch"]
    version, first, last = ([int(n) for n in re.findall(r"\d+", each)[:2]] for each in (torch.__version__, *_TRIED))
    if not first <= version <= last:
        return None
    try:
        guards = torch._C._dynamo.guards.TensorGuards
        model = torch.empty(2, 3, device="cpu")
        guard = guards(model, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        others = [
            torch.empty(3, 3, device="cpu"),
            torch.empty(3, 2, device="cpu").t(),
            torch.empty(2, 3, device="cpu", dtype=torch.float64),
            torch.empty(2, 3, device="meta"),
            torch.empty(2, 3, device="cpu", requires_grad=True),
            torch._neg_view(model),
            torch.nn.Parameter(model, requires_grad=False),
        ]
        with torch.no_grad():
            right = guard.check(torch.empty(2, 3, device="cpu")) and not any(map(guard.check, others))
    except Exception:
        return None
    return guards if right else None


def tensor_guards() -> Any:
    """PyTorch's TensorGuards; None where it is not there, or not what it was when it was tried."""
    return _guards()
