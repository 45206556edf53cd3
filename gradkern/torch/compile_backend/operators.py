"""What the operators of rewritten graphs share: how they are defined, and how they call gradkern.

They are functional and differentiable, of PyTorch's conventions (momentum, approximate), each over one operator of the
registry in each direction. A call never waits for a search, unless the policy in force says so: `gradkern.torch.tune`
makes those that are deferred.

An operator is a function from its arguments to the call of the registry's operator that answers it. Its schema is that
function's signature, its results without data are those of the registry's contract, and the arguments of its backward
pass are found by their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from types import MappingProxyType
from typing import Any, NamedTuple

import torch  # pyright: ignore[reportMissingImports]
from torch import fx  # pyright: ignore[reportMissingImports]

from gradkern.torch.direct import OpCall
from gradkern.torch.operators import registered, type_name

Tensor = torch.Tensor
Size = int | torch.SymInt
_TYPES = {
    **{each: each for each in ("Tensor", "int", "float", "str")},
    "Tensor | None": "Tensor?",
    "list[Tensor]": "Tensor[]",
    "list[bool]": "bool[]",
    "list[int]": "int[]",
    "Size": "SymInt",
    "list[Size]": "SymInt[]",
}
"""PyTorch's words for the types of arguments."""


def answer(asked: Any) -> Any:
    """The results of an operator whose function has returned this: a call that answers, or the results themselves."""
    return asked.answer() if isinstance(asked, OpCall) else asked


class Definition(NamedTuple):
    """What `define` was given, with the names of the operator's arguments."""

    ask: Callable[..., Any]
    results: Sequence[str]
    fake: Callable[..., Any] | None
    rows: bool
    lower: Callable[[Any], Callable[..., Any]] | None
    arguments: tuple[str, ...]


_library = torch.library.Library("gradkern", "FRAGMENT")
DEFINITIONS: dict[str, Definition] = {}
"""By the operators' names."""
_twins: dict[Any, Any] = {}
"""Of operators that are differentiable, those that compute the same and are not."""


def define(
    name: str,
    ask: Callable[..., Any],
    results: Sequence[str],
    fake: Callable[..., Any] | None = None,
    *,
    rows: bool = False,
    writes: Sequence[str] = (),
    lower: Callable[[Any], Callable[..., Any]] | None = None,
) -> Any:
    """Define torch.ops.gradkern.NAME. Returns its overload.

    ask      what a call asks for, an OpCall; or the results. It looks at no element of a tensor to find the former
    results  their names, or the word of PyTorch's for their type
    fake     the results without data; by default those of the OpCall
    rows: it works along the last axis, so its tensors must have the strides that they have in eager. Near a convolution
    Inductor would lay out those with four axes as images, with the second axis innermost. Otherwise the tensors may
    have their axes in any order in memory.
    writes   the arguments that it writes
    lower    returns its lowering, given torch._inductor.lowering; by default Inductor calls the operator
    """
    parameters = signature(ask).parameters
    words = {each.name: _TYPES[each.annotation] for each in parameters.values()}
    words |= {each: f"Tensor(a{place}!)" for place, each in enumerate(writes)}
    many = ", ".join(["Tensor"] * len(results))
    returned = results if isinstance(results, str) else many if len(results) == 1 else f"({many})"
    given = ", ".join([f"{words[each]} {each}" for each in words])
    _library.define(f"{name}({given}) -> {returned}", tags=(_tag(rows),))
    for key in ("CPU", "CUDA"):
        _library.impl(name, lambda *arguments: answer(ask(*arguments)), key)
    torch.library.register_fake(
        f"gradkern::{name}", fake or (lambda *arguments: ask(*arguments).without_data()), lib=_library
    )
    DEFINITIONS[name] = Definition(ask, results, fake, rows, lower, tuple(parameters))
    return getattr(torch.ops.gradkern, name).default


def register_lowerings() -> None:
    """Let Inductor know how it computes these operators, most of them by calls. By itself it finds that out where it
    first meets one, and before PyTorch 2.13 it then writes down all that the arguments are computed from, for a log
    that nobody reads: twelve layers with residuals are 2^24 lines.
    """
    from torch._inductor import lowering  # pyright: ignore[reportMissingImports]

    for name, definition in DEFINITIONS.items():
        operator = getattr(torch.ops.gradkern, name).default
        if operator in lowering.lowerings:
            continue
        if definition.lower is not None:
            lowering.lowerings[operator] = definition.lower(lowering)
        else:
            lowering.make_fallback(operator, lowering.tag_to_layout_constraint(_tag(definition.rows)))


def _tag(rows: bool) -> Any:
    return torch.Tag.needs_fixed_stride_order if rows else torch.Tag.flexible_layout


def _name_of(operator: Any) -> str:
    return operator._schema.name.removeprefix("gradkern::")


def differentiable(operator: Any, backward: Callable[..., Any], setup: Callable[..., Any], twin: Any = None) -> None:
    """Let the operator have this backward pass, and a twin, by default NAME_forward, that has none."""
    torch.library.register_autograd(operator, backward, setup_context=setup, lib=_library)
    if twin is None:
        name = _name_of(operator)
        ask, results, fake, rows, lower, _ = DEFINITIONS[name]
        twin = define(f"{name}_forward", ask, results, fake, rows=rows, lower=lower)
    _twins[operator] = twin


def gradient(
    operator: Any,
    ask: Callable[..., Any],
    of: Sequence[str],
    fake: Callable[..., Any] | None = None,
    *,
    computed: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
    constant: str = "",
    twin: Any = None,
) -> Any:
    """Define torch.ops.gradkern.NAME_backward, and let the operator have it as its backward pass. Returns its overload.

    ask       takes the gradient of the operator's first result, the only one that has a gradient; arguments and results
              of the operator by their names; and, where it has an argument `mask`, the gradients that are wanted, last
    of        the operator's arguments whose gradients it returns
    computed  further arguments of `ask`, or others than the operator's: functions of those of the operator
    constant  an argument, a tensor or None, that changes nothing: its gradient is zero
    """
    name = _name_of(operator)
    known = DEFINITIONS[name]
    backward = define(f"{name}_backward", ask, of, fake, rows=known.rows)
    _, *taken = signature(ask).parameters.values()
    masked = taken[-1].name == "mask"
    taken = taken[:-1] if masked else taken
    are_tensors = [_TYPES[each.annotation].startswith("Tensor") for each in taken]
    places = {each: place for place, each in enumerate((*known.arguments, *known.results))}

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        results = output if isinstance(output, tuple) else (output,)
        every = *inputs, *results
        values = [computed[each.name](*inputs) if each.name in computed else every[places[each.name]] for each in taken]
        ctx.others = [None if is_tensor else each for each, is_tensor in zip(values, are_tensors, strict=True)]
        ctx.save_for_backward(*[each for each, is_tensor in zip(values, are_tensors, strict=True) if is_tensor])
        unused = inputs[places[constant]] if constant else None
        ctx.zeros = None if unused is None else (unused.shape, {"dtype": unused.dtype, "device": unused.device})
        ctx.mark_non_differentiable(*results[1:])
        ctx.set_materialize_grads(False)

    def differentiate(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
        made: list[Any] = [None] * len(known.arguments)
        if grad is None:
            return tuple(made)
        saved, mask = iter(ctx.saved_tensors), [ctx.needs_input_grad[places[each]] for each in of]
        values = [next(saved) if is_tensor else other for other, is_tensor in zip(ctx.others, are_tensors, strict=True)]
        found = backward(grad, *values, mask) if masked else backward(grad, *values)
        for each, argument, wanted in zip((found,) if len(of) == 1 else found, of, mask, strict=True):
            made[places[argument]] = each if wanted else None
        if ctx.zeros is not None and ctx.needs_input_grad[places[constant]]:
            made[places[constant]] = torch.zeros(ctx.zeros[0], **ctx.zeros[1])
        return tuple(made)

    differentiable(operator, differentiate, setup, twin)
    return backward


def leave_gradients(graph: fx.Graph) -> None:
    """Stage 3: in a graph that needs no more gradients, replace operators by their twins without a backward pass. At
    every call PyTorch would enter the backward pass registered in Python, about 10 us of the host's time, for nothing.
    """
    for operator, twin in _twins.items():
        for node in graph.find_nodes(op="call_function", target=operator):
            node.target = twin


def unregistered(name: str, device: torch.device, **types: torch.dtype) -> str:
    """Why the operator has no kernel for these types on that device, by the registry; "" where it has."""
    if registered(name, device.type, **types):
        return ""
    kinds = map(type_name, types.values())
    return f"gradkern has no {name} for {', '.join(kinds)} on {device.type}"
