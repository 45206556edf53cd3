"""torch.ops.gradkern: every operator of the registry as one of PyTorch's, for graphs that are traced or compiled.

Functional, and of as many results as the contract has outputs: one that is not wanted is an empty tensor. The policy is
part of the arguments; with search="in force" it is that of the block and PyTorch's flags when the call is made, as they
are in a graph that was traced before. They have no gradients: a backward pass through them raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from gradkern.arrays.kind import dtype_of
from gradkern.call import Tensor
from gradkern.contract.attributes import dimension, per_dimension
from gradkern.contract.axes import match, rank_of
from gradkern.contract.registry import operators
from gradkern.contract.schema import Attribute, Input, Operator, Output, axis_of, shape_of
from gradkern.dispatch.run import run
from gradkern.errors import DeviceError, GradkernError
from gradkern.policy import DEFAULT, Policy
from gradkern.strides import channels_last, dense_like
from gradkern.system.importing import load
from gradkern.torch.flags import flags, policy_of

IN_FORCE = "in force"
"""In the place of Policy.search, for the whole policy."""

_POLICY = f'str search="{DEFAULT.search}", bool allow_tf32=True, bool deterministic=False'


@cache
def define() -> torch.library.Library:
    """Define torch.ops.gradkern.* in this process, once."""
    library = torch.library.Library("gradkern", "DEF")
    for name, operator in operators().items():
        library.define(schema_of(name, operator))
        kernel = _kernel(name, operator)
        for key in ("CPU", "CUDA"):
            library.impl(name, kernel, key)
        library.impl(name, _without_gradient(name), "Autograd")
        torch.library.register_fake(f"gradkern::{name}", _fake(name, operator), lib=library)
    return library


def type_name(dtype: torch.dtype) -> str:
    """As the registry has it."""
    return str(dtype).removeprefix("torch.")


_SHORT = {"float": "f", "bfloat": "bf", "int": "i"}


def short_name(dtype: torch.dtype) -> str:
    """Such as bf16."""
    name = type_name(dtype)
    kind = name.rstrip("0123456789")
    return _SHORT.get(kind, kind) + name[len(kind) :]


def wide(x: torch.Tensor) -> torch.dtype:
    """The type that operators compute with."""
    return torch.promote_types(x.dtype, torch.float32)


@cache
def registered(name: str, device: str, **types: torch.dtype) -> bool:
    """Whether the operator has a provider for this kind of device, and these types, by their variables, are one of its
    combinations.
    """
    operator = operators()[name]
    names = {variable: type_name(dtype) for variable, dtype in types.items()}
    rows = (all(row[variable] == dtype for variable, dtype in names.items()) for row in operator.combinations)
    return device in operator.providers and any(rows)


def schema_of(name: str, operator: Operator) -> str:
    """The operator in PyTorch's language of schemas. Inputs on the host are numbers and lists, as attributes are."""
    inputs = [f"Tensor? {each.name}=None" if each.optional else f"Tensor {each.name}" for each in tensors_of(operator)]
    attributes = [_argument(key, each) for key, each in operator.attributes.items()]
    on_host = (each for each in operator.inputs if each.memory == "host" and each.name not in operator.attributes)
    attributes += [_host_argument(operator, each) for each in on_host]
    named = [*sorted(attributes, key=lambda text: "=" in text), "str? outputs=None", _POLICY]
    results = ", ".join(["Tensor"] * len(operator.outputs))
    return f"{name}({', '.join(inputs)}, *, {', '.join(named)}) -> ({results})"


def tensors_of(operator: Operator) -> list[Input]:
    """The inputs that are tensors: on a device, or where they may be there and have no attribute of their name."""
    may_be = [each for each in operator.inputs if each.memory != "host"]
    return [each for each in may_be if each.memory == "device" or each.name not in operator.attributes]


def _host_argument(operator: Operator, each: Input) -> str:
    types = {row[each.type] for row in operator.combinations}
    kind = "float" if any("float" in name for name in types) else "bool" if types == {"bool"} else "int"
    kind += "[]" if each.is_list else ""
    return f"{kind}? {each.name}=None" if each.optional else f"{kind} {each.name}"


def _argument(name: str, attribute: Attribute) -> str:
    kinds = {"int": "int", "float": "float", "string": "str", "ints": "int[]", "floats": "float[]", "type": "str"}
    kind = kinds[attribute.type]
    if attribute.required:
        return f"{kind} {name}"
    if attribute.type in ("ints", "floats", "type") or attribute.default is None:
        return f"{kind}? {name}=None"
    default = f'"{attribute.default}"' if attribute.type == "string" else attribute.default
    return f"{kind} {name}={default}"


def _wanted(operator: Operator, outputs: str | None) -> tuple[str, ...]:
    if outputs is None:
        return tuple(each.name for each in operator.outputs if each.default)
    return tuple(outputs.split(","))


def _kernel(name: str, operator: Operator) -> Callable[..., Any]:
    names = [each.name for each in tensors_of(operator)]
    aliased = {each.alias for each in operator.outputs if each.alias}

    def kernel(
        *inputs: Any,
        outputs: str | None = None,
        search: Any = DEFAULT.search,
        allow_tf32: bool = True,
        deterministic: bool = False,
        **attributes: Any,
    ) -> Any:
        if search == IN_FORCE:
            policy = policy_of(flags())
        else:
            policy = Policy(search=search, allow_tf32=allow_tf32, deterministic=deterministic)
        plain: dict[str, Any] = {
            key: each.detach() for key, each in zip(names, inputs, strict=False) if each is not None
        }
        plain |= {key: plain[key].clone() for key in aliased & plain.keys()}  # what is functional writes over no input
        given = {key: value for key, value in attributes.items() if value is not None}
        results: Any = run(name, outputs=_wanted(operator, outputs), policy=policy, **plain, **given)
        found = [getattr(results, each.name, None) for each in operator.outputs]
        every = [inputs[0].new_empty(0) if each is None else each for each in found]
        return tuple(every) if len(every) > 1 else every[0]

    return kernel


def _fake(name: str, operator: Operator) -> Callable[..., Any]:
    """Types and shapes of the results, by the contract's rules. Also called where only some inputs are on meta."""
    names = [each.name for each in tensors_of(operator)]
    on_device = {each.name for each in operator.inputs if each.memory == "device"}

    def fake(*inputs: Any, outputs: str | None = None, **attributes: Any) -> Any:
        given = dict.fromkeys(names) | dict(zip(names, inputs, strict=False))  # optional ones may be left out
        places = {key: each.device for key, each in given.items() if each is not None and key in on_device}
        if len({*places.values()}) > 1:
            text = ", ".join(f"input {key} on {device}" for key, device in places.items())
            raise DeviceError(f"{name}: the arrays are on different devices: {text}")
        wanted = _wanted(operator, outputs)
        chosen, tensors = operator.chosen(attributes), {key: each for key, each in given.items() if each is not None}
        try:
            axes = _axes(chosen, [each for each in chosen.outputs if each.name in wanted], tensors, attributes)
        except GradkernError as error:
            raise type(error)(f"{name}: {error}") from None
        every = [
            _empty(chosen, each, tensors, axes, attributes) if each.name in wanted else inputs[0].new_empty(0)
            for each in chosen.outputs
        ]
        return tuple(every) if len(every) > 1 else every[0]

    return fake


def _empty(
    operator: Operator, output: Output, given: dict[str, Any], axes: Mapping[str, Any], attributes: dict[str, Any]
) -> Any:
    dtype = _dtype(operator, output.type, given, attributes)
    if output.like is not None:
        return new_like(given[output.like], dtype)
    sizes = shape_of(output.shape or (), axes)
    made = next(iter(given.values())).new_empty(sizes, dtype=dtype)
    if output.order_of is None or not channels_last(described_as(given[output.order_of])):
        return made
    order = [0, *range(2, len(sizes)), 1]
    return made.new_empty([sizes[axis] for axis in order]).movedim(-1, 1)


def new_like(model: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A tensor as the registry makes one for an output that is like this input: its strides are those of
    `strides.dense_like`. For an input with gaps torch.empty_like would choose others.
    """
    described, dtype = described_as(model), dtype or model.dtype
    other = dtype_of(type_name(dtype))
    strides = [step // other.itemsize for step in dense_like(described, described.shape, other)]
    return model.new_empty_strided(described.shape, strides, dtype=dtype)


def described_as(tensor: torch.Tensor, alignment: int = 0) -> Tensor:
    """What a plan may know of a tensor; its alignment is by default that of its elements."""
    dtype = dtype_of(type_name(tensor.dtype))
    strides = tuple([step * dtype.itemsize for step in tensor.stride()])
    return Tensor(dtype, tuple(tensor.shape), strides, alignment or dtype.itemsize)


def has_rows(x: torch.Tensor) -> bool:
    """Whether kernels on a GPU take rows along axis 1 of x as they are in memory: rows at one distance, or a matrix of
    rows side by side for each of those before.
    """
    axes: list[tuple[int, int]] = []  # sizes and strides of all others, neighbours as one
    for n, (size, step) in enumerate(zip(x.shape, x.stride(), strict=True)):
        if n == 1 or size == 1:
            continue
        size *= axes.pop()[0] if axes and axes[-1][1] == size * step else 1
        axes.append((size, step))
    if x.shape[1] == 1 or x.stride(1) == 1:
        apart = x.shape[2:].numel() > 1  # the gradient is then in this order only if there are no gaps
        return not axes or (len(axes) == 1 and (not apart or axes[0][1] == x.shape[1]))
    steps = [step for _, step in axes]
    return len(axes) in (1, 2) and steps[-1] == 1 and steps == sorted({*steps}, reverse=True)


def _dtype(operator: Operator, variable: str, given: dict[str, Any], attributes: dict[str, Any]) -> torch.dtype:
    """The type of a type variable: from an attribute, from the first input that has it, or from the combinations."""
    for name, attribute in operator.attributes.items():
        if attribute.binds == variable:
            named = str(attributes.get(name) or attribute.default)
            return _dtype(operator, named, given, {}) if named in operator.types else getattr(torch, named)
    of_inputs = {each.type: given[each.name].dtype for each in tensors_of(operator) if each.name in given}
    if variable in of_inputs:
        return of_inputs[variable]
    names = {each: type_name(dtype) for each, dtype in of_inputs.items()}
    rows = (row for row in operator.combinations if all(row[each] == name for each, name in names.items()))
    return getattr(torch, next(rows)[variable])


def _axes(
    operator: Operator, outputs: list[Output], tensors: dict[str, Any], attributes: dict[str, Any]
) -> Mapping[str, Any]:
    """The sizes of axes, symbols among them, by the contract and, where it leaves one open, the operator's family."""
    unknown = {axis_of(token) for each in outputs if each.like is None for token in each.shape or ()}
    if not unknown:
        return {}
    values = {name: attributes.get(name, each.default) for name, each in operator.attributes.items()}
    values |= {each.name: attributes.get(each.name) for each in operator.inputs if each.is_list}
    values |= {name: tuple(each) for name, each in values.items() if isinstance(each, list)}
    for name, attribute in operator.attributes.items():
        if attribute.axis_of is not None:
            values[name] = dimension(name, values[name], attribute.axis_of, rank_of(attribute.axis_of, tensors, values))
    axes = match(operator, tensors, values)
    if any(axes.get(each) is None for each in unknown):
        per_dimension(operator, values, axes)
        given = {*tensors, *(each.name for each in outputs)}
        axes |= load(f"gradkern.ops.{operator.family}").resolve(axes, values, given)
    return axes


def _without_gradient(name: str) -> Callable[..., Any]:
    def autograd(*inputs: Any, **named: Any) -> Any:
        if torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in inputs):
            raise RuntimeError(
                f"torch.ops.gradkern.{name} has no gradient: the functions of gradkern.torch have, and second ones; or "
                "call it under torch.no_grad()"
            )
        with torch._C._AutoDispatchBelowAutograd():
            return getattr(torch.ops.gradkern, name)(*inputs, **named)

    return autograd
