"""What passes between the dispatcher and a provider: a Call describes, a Plan executes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gradkern.policy import Policy

__all__ = ["Call", "Plan", "Refusal", "Tensor"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """All a plan may know of an array before it runs.

    strides are in bytes, as in NumPy. alignment is the largest power of two, at most 16, that divides the address
    of the first element; on the host, where nothing depends on it, it is the element size.
    """

    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    alignment: int

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=object)) if self.shape else 1

    @property
    def extent(self) -> tuple[int, int]:
        """The first byte and the one after the last, counted from the address of the first element."""
        if 0 in self.shape:
            return 0, 0
        reach = [(size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)]
        return sum(min(each, 0) for each in reach), sum(max(each, 0) for each in reach) + self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Call:
    """One checked call: it fits the contract, so a provider checks nothing again.

    inputs holds the given inputs and outputs the wanted outputs, by contract name and in contract order; attributes
    is complete, defaults filled in and resolved; axes maps each axis name of the contract to its size, each group of
    axes to its tuple of sizes; in_place holds the (input, output) pairs that share one buffer.
    """

    operator: str
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    attributes: Mapping[str, Any]
    axes: Mapping[str, Any]
    in_place: frozenset[tuple[str, str]]
    device: str
    policy: Policy


class Plan(Protocol):
    """What a provider's `plan(call)` returns.

    Called with the buffers of the given inputs and of the wanted outputs, each in the order of `Call.inputs` and
    `Call.outputs`: NumPy arrays on the host, addresses (int) on a GPU. It writes outputs and allocates only scratch.
    """

    @property
    def kernel(self) -> str:
        """The name of the kernel that was chosen."""
        ...

    @property
    def scratch(self) -> int:
        """Bytes of scratch memory one execution needs."""
        ...

    def __call__(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...], stream: Any) -> None: ...


class Refusal(Exception):  # noqa: N818  not an error: the dispatcher asks the next module
    """A provider module's reason not to take a call. The dispatcher collects it; callers see it in a ProviderError."""
