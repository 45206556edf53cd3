"""What the operators of rewritten graphs share: how they are defined, and how they call gradkern.

They are functional and differentiable, of PyTorch's conventions (momentum, approximate), each over one operator of the
registry in each direction. A call never waits for a search, unless the policy in force says so: `gradkern.torch.tune`
makes those that are put off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.dispatch.run import run
from gradkern.torch.flags import flags, policy_of
from gradkern.torch.operators import registered

__all__ = ["define", "differentiable", "empty", "results", "unregistered"]

Tensor = torch.Tensor

_library = torch.library.Library("gradkern", "FRAGMENT")


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
    return getattr(torch.ops.gradkern, name).default


def differentiable(name: str, backward: Callable[..., Any], setup: Callable[..., Any]) -> None:
    """Let the operator have this backward pass."""
    torch.library.register_autograd(f"gradkern::{name}", backward, setup_context=setup, lib=_library)


def results(
    name: str, *inputs: Tensor | None, outputs: tuple[str, ...], out: Mapping[str, Tensor] | None = None, **named: Any
) -> Any:
    """The outputs of the registry's operator, a named tuple."""
    return run(name, *inputs, outputs=outputs, out=out, policy=policy_of(flags()), **named)


def empty(like: Tensor) -> Tensor:
    """In the place of a result that is not wanted."""
    return like.new_empty(0)


def unregistered(name: str, device: torch.device, **types: torch.dtype) -> str:
    """Why the operator has no kernel for these types on that device, by the registry; "" where it has."""
    if registered(name, device.type, **types):
        return ""
    asked = [str(dtype).removeprefix("torch.") for dtype in types.values()]
    return f"gradkern has no {name} for {', '.join(asked)} on {device.type}"
