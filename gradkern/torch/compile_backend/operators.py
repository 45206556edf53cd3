"""What the operators of rewritten graphs share: how they are defined, and how they call gradkern.

They are functional and differentiable, of PyTorch's conventions (momentum, approximate), each over one operator of the
registry in each direction. A call never waits for a search, unless the policy in force says so: `gradkern.torch.tune`
makes those that are put off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.torch.operators import registered

__all__ = ["define", "differentiable", "given", "leave_gradients", "unregistered"]

Tensor = torch.Tensor

_library = torch.library.Library("gradkern", "FRAGMENT")
_definitions: dict[Any, tuple[Any, ...]] = {}
"""Of every operator, what `define` was given."""
_twins: dict[Any, Any] = {}
"""Of operators that are differentiable, those that compute the same and are not."""


def define(schema: str, kernel: Callable[..., Any], fake: Callable[..., Any], rows: bool = False) -> Any:
    """Define torch.ops.gradkern.NAME. Returns its overload.

    rows: it is about what lies along the last axis, so its tensors have to lie in memory as they do in eager. Inductor
    would lay those with four axes out as images, with the second axis innermost, wherever a convolution is near. Else
    the tensors may lie in any order of their axes.
    """
    name = schema.partition("(")[0]
    tag = torch.Tag.needs_fixed_stride_order if rows else torch.Tag.flexible_layout
    _library.define(schema, tags=(tag,))
    for key in ("CPU", "CUDA"):
        _library.impl(name, kernel, key)
    torch.library.register_fake(f"gradkern::{name}", fake, lib=_library)
    made = getattr(torch.ops.gradkern, name).default
    _definitions[made] = schema, kernel, fake, rows
    return made


def differentiable(operator: Any, backward: Callable[..., Any], setup: Callable[..., Any]) -> None:
    """Let the operator have this backward pass, and a twin, NAME_forward, that has none."""
    torch.library.register_autograd(operator, backward, setup_context=setup, lib=_library)
    schema, *rest = _definitions[operator]
    name, bracket, arguments = schema.partition("(")
    _twins[operator] = define(f"{name}_forward{bracket}{arguments}", *rest)


def leave_gradients(graph: fx.Graph) -> None:
    """Stage 3: in a graph whose gradients are done with, twins stand for operators that have one. PyTorch would enter
    a backward pass that is registered in Python at every call, which costs the host about 10 us, to find no use for it.
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
    asked = [str(dtype).removeprefix("torch.") for dtype in types.values()]
    return f"gradkern has no {name} for {', '.join(asked)} on {device.type}"
