"""What passes between the dispatcher and a provider: a Call describes, a Plan executes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from gradkern.policy import Policy

if TYPE_CHECKING:
    import numpy as np

HOST = "cpu"
"""The device of arrays in the host's memory. Others have a kind and a number: "cuda:0"."""


class Tensor(NamedTuple):
    """All a plan may know of an array before it runs.

    strides are in bytes, as in NumPy. alignment is the largest power of two, at most 16, that divides the address
    of the first element; on the host, where nothing depends on it, it is the element size.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    alignment: int

    @property
    def size(self) -> int:
        return prod(self.shape)

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
    axes to its tuple of sizes; in_place holds the (input, output) pairs that share one buffer. scalars holds the types
    of the inputs that are numbers on the host, whose values each execution gets; lists on the host are attributes here.
    """

    operator: str
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    attributes: Mapping[str, Any]
    axes: Mapping[str, Any]
    in_place: frozenset[tuple[str, str]]
    device: str
    policy: Policy
    scalars: Mapping[str, str] = field(default_factory=dict[str, str])


class Plan(Protocol):
    """What a provider's `plan(call)` returns.

    Called with the buffers of the given inputs and of the wanted outputs, each in the order of `Call.inputs` and
    `Call.outputs`: NumPy arrays on the host, addresses (int) on a GPU. Behind the inputs are the numbers that
    `Call.scalars` names. It writes outputs and allocates only scratch.
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


@runtime_checkable
class Launching(Protocol):
    """A plan that lists the kernels of gradkern's own that it launches; `gradkern explain` shows them."""

    @property
    def launches(self) -> tuple[Any, ...]: ...


@runtime_checkable
class Repeatable(Protocol):
    """A plan, or a candidate of a search, that does nothing but launch kernels of gradkern's own and execute plans of
    cuDNN's, whose arguments depend on the addresses of a call and on its stream's scratch memory only: a caller may
    repeat its launches without it.
    """

    @property
    def REPEATABLE(self) -> bool: ...


@runtime_checkable
class Delegating(Protocol):
    """A plan that adds nothing to another one's execution."""

    @property
    def within(self) -> Plan:
        """That one; itself where there is none."""
        ...


def execution(plan: Plan) -> Callable[[tuple[Any, ...], tuple[Any, ...], Any], None]:
    """What executes a plan, with as little around it as can be: a bound method is called faster than the object."""
    return (plan.within if isinstance(plan, Delegating) else plan).__call__


@runtime_checkable
class Provisional(Protocol):
    """A plan that may have a kernel no search has chosen yet, under a policy that defers searches."""

    @property
    def provisional(self) -> bool:
        """Whether the same call, planned with an exhaustive search, may get another kernel."""
        ...


# --- what the modules of operators offer -----------------------------------------------------------------------------


class ProviderModule(Protocol):
    """What each module offers that registry.yaml names for a provider. Pinning and Searching are offered beside it."""

    def plan(self, call: Call, /) -> Plan:
        """The plan of a call. Raises Refusal, with the reason, for one that this module does not take."""
        ...


@runtime_checkable
class Pinning(Protocol):
    """A module of several kernels: its `plan` takes the one that Policy.kernel names, or refuses. The dispatcher takes
    the plan of any other module only if its kernel is the named one.
    """

    SELECTS_BY_NAME: bool


@runtime_checkable
class Searching(Protocol):
    """A module that chooses by a search. `gradkern explain` shows what it found."""

    def searches(self, call: Call, /) -> Mapping[str, tuple[Any, list[str]]]:
        """By result: what an earlier search found, or None; the names of the candidates that a search would try."""
        ...


@runtime_checkable
class Resolving(Protocol):
    """A family's package whose attributes, axes and optional tensors depend on one another."""

    def resolve(
        self, axes: Mapping[str, Any], attributes: Mapping[str, Any], names: Collection[str], /
    ) -> Mapping[str, Any]:
        """The attributes with nothing left open, and the sizes of axes that outputs alone have. Raises a GradkernError
        where they do not fit the axes, or the given inputs and wanted outputs, whose names are in `names`.
        """
        ...


class Wrapper(Protocol):
    """What a module offers that plans a call by another one: of host arrays on a device, of arrays with gaps."""

    def wrap(self, call: Call, make: Callable[[Call], Plan], names: tuple[str, ...] = (), /) -> Plan | None:
        """A plan that copies these arrays, or all that it is for, runs the plan that `make` makes for the copies, and
        copies outputs back; None where there is nothing to copy.
        """
        ...


@runtime_checkable
class Configurable(Protocol):
    """A module whose plans have configs: a search times them. `supports` may be left out, then they raise Refusal."""

    def configs(self, call: Call, /) -> Iterable[Mapping[str, Any]]:
        """The configs for a call, best first, as JSON values."""
        ...

    def build(self, call: Call, config: Mapping[str, Any], /) -> Plan:
        """The plan in a config."""
        ...


class Choosing(Protocol):
    """What a module offers that chooses among the modules of an operator by a search."""

    def plan(self, call: Call, modules: Mapping[str, str], /) -> Plan:
        """The plan of one of these modules, import paths by name. Raises Refusal if none takes the call."""
        ...


class CompilingAhead(Protocol):
    """What a module offers that compiles kernels before plans are made."""

    def for_plans(self, plans: Iterable[Callable[[], None]], device: str, show: Any = None, /) -> int:
        """Compile together what several plans need on a device. Each of `plans` makes one, without compiling. `show`
        goes through results as they come, given their number. Returns how many kernels were compiled.
        """
        ...


class Refusal(Exception):  # noqa: N818  not an error: the dispatcher or the search goes on to the next
    """The reason of a provider's module, or of a candidate of a search, not to take a call. Whoever asks several
    collects them; callers see them, in a ProviderError, if none is left.
    """
