"""What the operators of rewritten graphs share: how they are defined, and how they call gradkern.

They are functional and differentiable, of PyTorch's conventions (momentum, approximate), each over one operator of the
registry in each direction. A call never waits for a search, unless the policy in force says so: `gradkern.torch.tune`
makes those that are deferred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.dispatch.plan_cache import Shortcut
from gradkern.torch.direct import Attributes, Direct, Tensors
from gradkern.torch.operators import registered

__all__ = ["OpCall", "define", "definition", "differentiable", "given", "leave_gradients", "names", "unregistered"]

Tensor = torch.Tensor


class OpCall(NamedTuple):
    """A call of a Direct operator, with its arguments.

    results  the places of the outputs that the operator returns; by default all
    """

    operator: Direct
    needs: tuple[bool, ...]
    tensors: Tensors
    attributes: Attributes = ()
    out: dict[str, Tensor] | None = None
    results: tuple[int, ...] | None = None

    def answer(self) -> Any:
        """What the operator returns, an empty tensor in the place of one that is not wanted."""
        found = self.operator(self.needs, self.tensors, self.attributes, self.out)
        if self.results is not None:
            found = tuple([found[place] for place in self.results])
        first: Any = self.tensors[0]
        every = given(found, first)
        return every[0] if len(every) == 1 else every

    def shortcut(self) -> Shortcut | None:
        """This call's plan, if only its tensors need to be recognised to find it."""
        return self.operator.shortcut(self.needs, self.tensors, self.attributes, self.out)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the outputs that the operator returns."""
        outputs = self.operator.outputs
        return outputs if self.results is None else tuple([outputs[place] for place in self.results])


class Answering(Protocol):
    """A call of an operator: an OpCall, or several calls of gradkern."""

    def answer(self) -> Any: ...


class Definition(NamedTuple):
    """What `define` was given."""

    schema: str
    ask: Callable[..., Answering]
    fake: Callable[..., Any]
    rows: bool


_library = torch.library.Library("gradkern", "FRAGMENT")
_definitions: dict[str, Definition] = {}
"""By the operators' names."""
_twins: dict[Any, Any] = {}
"""Of operators that are differentiable, those that compute the same and are not."""


def define(schema: str, ask: Callable[..., Answering], fake: Callable[..., Any], rows: bool = False) -> Any:
    """Define torch.ops.gradkern.NAME. Returns its overload.

    ask:  what a call asks for; it looks at no element of a tensor
    rows: it works along the last axis, so its tensors must have the strides that they have in eager. Near a convolution
    Inductor would lay out those with four axes as images, with the second axis innermost. Otherwise the tensors may
    have their axes in any order in memory.
    """
    name = schema.partition("(")[0]
    tag = torch.Tag.needs_fixed_stride_order if rows else torch.Tag.flexible_layout
    _library.define(schema, tags=(tag,))
    for key in ("CPU", "CUDA"):
        _library.impl(name, lambda *arguments: ask(*arguments).answer(), key)
    torch.library.register_fake(f"gradkern::{name}", fake, lib=_library)
    _definitions[name] = Definition(schema, ask, fake, rows)
    return getattr(torch.ops.gradkern, name).default


def definition(name: str) -> Definition:
    """Of torch.ops.gradkern.NAME."""
    return _definitions[name]


def names() -> Iterable[str]:
    """Of all that are defined."""
    return _definitions


def differentiable(operator: Any, backward: Callable[..., Any], setup: Callable[..., Any], twin: Any = None) -> None:
    """Let the operator have this backward pass, and a twin, by default NAME_forward, that has none."""
    torch.library.register_autograd(operator, backward, setup_context=setup, lib=_library)
    if twin is not None:
        _twins[operator] = twin
        return
    schema, ask, fake, rows = _definitions[operator._schema.name.removeprefix("gradkern::")]
    name, bracket, arguments = schema.partition("(")
    _twins[operator] = define(f"{name}_forward{bracket}{arguments}", ask, fake, rows)


def leave_gradients(graph: fx.Graph) -> None:
    """Stage 3: in a graph that needs no more gradients, replace operators by their twins without a backward pass. At
    every call PyTorch would enter the backward pass registered in Python, about 10 us of the host's time, for nothing.
    """
    for operator, twin in _twins.items():
        for node in graph.find_nodes(op="call_function", target=operator):
            node.target = twin


def given(results: tuple[Tensor | None, ...], like: Tensor) -> tuple[Tensor, ...]:
    """The results, an empty tensor in the place of one that is not wanted."""
    return tuple([like.new_empty(0) if each is None else each for each in results])


def unregistered(name: str, device: torch.device, **types: torch.dtype) -> str:
    """Why the operator has no kernel for these types on that device, by the registry; "" where it has."""
    if registered(name, device.type, **types):
        return ""
    kinds = [str(dtype).removeprefix("torch.") for dtype in types.values()]
    return f"gradkern has no {name} for {', '.join(kinds)} on {device.type}"
