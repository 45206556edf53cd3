"""What an aten backward call asks of gradkern, in the registry's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

Finish = Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]
"""aten's results from those of the plan and the call's arguments."""
Split = tuple[tuple[Any, ...], tuple[Any, ...]]
"""Of a call's arguments, the tensors that are read, and all else that decides what is computed, how many tensors there
are included.
"""
View = Callable[[torch.Tensor], torch.Tensor]
"""Another shape of the same memory, from the same first element."""


class Declined(Exception):  # noqa: N818  not an error: PyTorch's kernel answers
    """Why gradkern does not take a call."""


@dataclass(frozen=True)
class Constant:
    """An input that aten leaves out, such as the weight of a norm without one: this value everywhere."""

    value: float
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Derived:
    """An input that PyTorch computes before, from tensors of the call: as small as a parameter, or it would not pay.

    function  of a module: equal requests have the same
    """

    function: Callable[..., torch.Tensor]
    tensors: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class AtenRequest:
    """A call of a registry operator that answers an aten backward call.

    inputs      by contract name, in contract order: tensors of the call, what is derived from them, and constants
    outputs     what each of aten's results is in the contract; None where it is not wanted
    views       how contract names see the memory of the call's tensors, or of aten's results, where shapes differ
    finish      computes the results that the plan does not; None where there are none
    """

    op: str
    inputs: Mapping[str, torch.Tensor | Derived | Constant]
    outputs: tuple[str | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    views: Mapping[str, View] = field(default_factory=dict)
    finish: Finish | None = None


@dataclass(frozen=True)
class Translation:
    """How calls of an aten operator become calls of the registry's.

    name      aten's
    group     what users call it
    split     a function of a call's arguments. All else that is equal comes with equally many tensors
    request   a function of a call's arguments: gradkern's request; raises Declined
    searched  the last of all else are PyTorch's flags; a search depends on them
    gainless  a function of a call's signatures.Description, in microseconds: where PyTorch's kernels take no longer,
              such calls have never gained what they cost the host
    by_python  a function of a call's signatures.Description: why machine code cannot answer such calls; "" where it can
    measured  the place of the argument whose bytes the gate looks at
    result    a function of a call's arguments: what aten's one result looks like. With it gradkern answers where
              PyTorch's kernel raises, as deterministic algorithms are asked for, whatever the options say
    below     the place of the argument that the call's whole numbers are indices below; None where they are counts
    """

    name: str
    group: str
    split: Callable[..., Split]
    request: Callable[..., AtenRequest]
    searched: bool = False
    gainless: Callable[[Any], float] = lambda description: 0.0
    by_python: Callable[[Any], str] = lambda description: ""
    measured: int = 1  # of most operators either the input or a gradient of its shape
    below: int | None = None
    result: Callable[..., torch.Tensor] | None = None


def two_tensors(grad: Any, other: Any, *rest: Any) -> Split:
    """Translation.split: of two tensors, all else decides."""
    return (grad, other), rest


def of_each_axis(values: Sequence[int], rank: int) -> tuple[int, ...]:
    """One value for each dimension; aten takes one for all."""
    return (*values,) if len(values) == rank else (values[0],) * rank


def masked(names: tuple[str, ...], mask: Any) -> tuple[str | None, ...]:
    """The names that an output mask leaves."""
    return tuple(name if wanted else None for name, wanted in zip(names, mask, strict=True))


def in_order_of(tensor: torch.Tensor) -> View:
    """For operators on single elements: the axes from those whose elements are far apart in memory to those whose are
    next to one another, the last one. Axes that repeat the same elements come first.
    """
    if not tensor.dim():
        return lambda each: each.view(1)
    order = sorted(range(tensor.dim()), key=lambda axis: (tensor.stride(axis) > 0, -tensor.stride(axis), axis))
    return lambda each: each.permute(order)


def require_weight(weight: torch.Tensor | None, *wanted: bool) -> None:
    """Raise Declined where a gradient of a weight that is not there is wanted: PyTorch's kernel knows what it means."""
    if weight is None and True in wanted:
        raise Declined("the gradient of a weight is wanted, but there is no weight")
