"""Whether the parts of a registry entry agree with one another."""

# A default's type is compared with the type that the attribute names.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import keyword
from collections.abc import Iterator, Mapping, Set
from typing import get_args

from gradkern.contract.examples import example_mistakes
from gradkern.contract.schema import RESERVED, Operator, Path, TypeName, axis_of
from gradkern.contract.shape_consistency import listed, shape_mistakes


def mistakes(operator: Operator) -> Iterator[tuple[Path, str]]:
    """Every disagreement between parts of an entry, as (path inside the entry, reason)."""
    yield from _names(operator)
    yield from _types(operator)
    yield from _outputs(operator)
    yield from shape_mistakes(operator)
    yield from _host(operator)
    yield from _aliases(operator)
    yield from _in_place(operator)
    yield from _variadic(operator)
    yield from _attributes(operator)
    if operator.until_version is not None and operator.until_version < operator.since_version:
        yield ("until_version",), f"is before since_version {operator.since_version}"
    for key in ("examples", "benchmarks"):
        for index, example in enumerate(getattr(operator, key)):
            for path, reason in example_mistakes(operator, example):
                yield (key, index, *path), reason


def _names(operator: Operator) -> Iterator[tuple[Path, str]]:
    seen: set[str] = set()
    for key in ("inputs", "outputs"):
        for index, each in enumerate(getattr(operator, key)):
            if each.name in seen:
                yield (key, index, "name"), f"{each.name!r} is used twice"
            if each.name in RESERVED:
                yield (key, index, "name"), f"{each.name!r} is a parameter of gradkern.run"
            if keyword.iskeyword(each.name):
                yield (key, index, "name"), f"{each.name!r} is a word of the Python language"
            seen.add(each.name)
    overriding = {each.name for each in operator.inputs if each.is_scalar and each.optional}
    for name in operator.attributes:
        if keyword.iskeyword(name):
            yield ("attributes", name), "is a word of the Python language"
        if name in seen - overriding or name in RESERVED:
            owner = "an input or output" if name in seen else "a parameter of gradkern.run"
            yield ("attributes", name), f"is also the name of {owner}"


def _types(operator: Operator) -> Iterator[tuple[Path, str]]:
    bound = {each.type for each in operator.inputs if not each.optional}
    bound |= {each.binds for each in operator.attributes.values() if each.binds is not None}
    for key in ("inputs", "outputs"):
        for index, each in enumerate(getattr(operator, key)):
            if each.type not in operator.types:
                yield (key, index, "type"), f"no type variable {each.type!r}; types has {listed(operator.types)}"
    of_inputs = {each.type for each in operator.inputs}
    for variable in operator.types:
        if variable in bound:
            continue
        if variable in of_inputs:
            if not (_goes_along(operator, variable) or _follows(operator, variable, bound)):
                yield ("types", variable), "is never bound: no required input has this type and no attribute binds it"
        elif not _follows(operator, variable, bound):
            yield ("types", variable), "is never bound: no input has this type, and the combinations leave it open"
    rows: dict[tuple[tuple[str, str], ...], int] = {}
    for index, row in enumerate(operator.combinations):
        missing, surplus = operator.types.keys() - row.keys(), row.keys() - operator.types.keys()
        if missing:
            yield ("combinations", index), f"gives no type to {listed(sorted(missing))}"
        for name in sorted(surplus):
            yield ("combinations", index, name), f"no type variable {name!r}; types has {listed(operator.types)}"
        first = rows.setdefault(tuple(sorted(row.items())), index)
        if first != index:
            yield ("combinations", index), f"is the same combination as number {first + 1}"


def _goes_along(operator: Operator, variable: str) -> bool:
    """Whether every output of this type is like an input of it, and so exists only where its type is known."""
    of_inputs = {each.name for each in operator.inputs if each.type == variable}
    return all(each.like in of_inputs for each in operator.outputs if each.type == variable)


def _follows(operator: Operator, variable: str, bound: Set[str]) -> bool:
    """Whether the types of the bound variables leave one for this one."""
    found: dict[tuple[str | None, ...], str | None] = {}
    names = sorted(bound)
    rows = [(tuple(row.get(name) for name in names), row.get(variable)) for row in operator.combinations]
    return all(found.setdefault(others, own) == own for others, own in rows)


def _outputs(operator: Operator) -> Iterator[tuple[Path, str]]:
    appended = [each.appended for each in operator.outputs]
    for index, each in enumerate(operator.outputs):
        if each.appended and (each.default or not all(appended[index:])):
            yield ("outputs", index, "appended"), "is for the last outputs, with default: false"


def _host(operator: Operator) -> Iterator[tuple[Path, str]]:
    """Inputs in the host's memory, and what is said of elements."""
    if all(each.optional or each.memory != "device" for each in operator.inputs):
        yield ("inputs",), "needs one that is not optional and in the memory of the device"
    for index, each in enumerate(operator.inputs):
        path = ("inputs", index)
        types = {row[each.type] for row in operator.combinations if each.type in row}
        if each.gives is not None and (each.memory != "host" or each.shape or each.optional):
            yield (*path, "gives"), "is for an input with memory: host, without a shape and not optional"
        elif each.memory != "device" and len(each.shape) > (each.memory == "host"):
            yield (*path, "memory"), f"{each.memory} is for a number{' or a list' * (each.memory == 'host')}"
        elif each.memory == "host" and any(
            not isinstance(part, str) or _is_group(operator, part) for part in each.shape
        ):
            yield (*path, "memory"), "host is for a number or a list, whose shape is one axis"
        if (each.index_of or each.gives is not None) and not types <= _INTS:
            yield (*path, "type"), f"{each.type!r} may be {listed(sorted(types - _INTS))}; expected whole numbers"
        if (each.negative or each.along) and not each.index_of:
            yield path, "with negative or along needs index_of"
        if each.values == "mask" and not types <= {"bool", "uint32"}:
            yield (*path, "values"), "mask is for bool, or for bits in uint32"
        if each.values not in ("any", "mask", "window") and types & {*_INTS, "bool"}:
            yield (*path, "values"), f"{each.values} is for floating-point types"


def _is_group(operator: Operator, name: str) -> bool:
    return name in operator.axes and operator.axes[name].group


_TYPES = frozenset(get_args(TypeName))
_INTS = frozenset({"int32", "int64", "uint8", "uint32"})


def _aliases(operator: Operator) -> Iterator[tuple[Path, str]]:
    inputs = {each.name: each for each in operator.inputs}
    for index, output in enumerate(operator.outputs):
        if output.alias is None:
            continue
        source = inputs.get(output.alias)
        if source is None or source.memory != "device":
            yield ("outputs", index, "alias"), f"{output.alias!r} is no input in the memory of the device"
        elif any(row.get(source.type) != row.get(output.type) for row in operator.combinations):
            yield ("outputs", index, "alias"), f"{output.alias!r} and {output.name!r} are not always of one type"
        if output.where or (output.shape is None and output.like != output.alias):
            yield ("outputs", index, "alias"), f"needs a shape, or like: {output.alias}"


def _in_place(operator: Operator) -> Iterator[tuple[Path, str]]:
    inputs = {each.name: each for each in operator.inputs}
    outputs = {each.name: each for each in operator.outputs}
    for index, each in enumerate(operator.in_place):
        for source, target in each.items():
            if source not in inputs:
                yield ("in_place", index, source), f"no input {source!r}; inputs has {listed(inputs)}"
            elif target not in outputs:
                yield ("in_place", index, source), f"no output {target!r}; outputs has {listed(outputs)}"
            elif not any(
                row.get(inputs[source].type) == row.get(outputs[target].type) for row in operator.combinations
            ):
                yield ("in_place", index, source), f"{source!r} and {target!r} never have the same type"


def _variadic(operator: Operator) -> Iterator[tuple[Path, str]]:
    """Inputs and outputs that stand for any number of arrays."""
    *others, last = operator.inputs
    for index, each in enumerate(others):
        if each.variadic:
            yield ("inputs", index, "variadic"), "is for the last input"
    if last.variadic:
        path, axes = ("inputs", len(others)), {axis_of(token) for each in others for token in each.sizes}
        if last.optional or last.memory != "device" or last.also or last.where:
            yield path, "with variadic takes neither optional, memory, also nor where"
        for token in last.shape:
            if not isinstance(token, str) or token in axes or not _is_group(operator, token):
                yield (*path, "shape"), f"{axis_of(token)!r} is no group that this input alone has"
    for index, each in enumerate(operator.outputs):
        if each.variadic and (not last.variadic or each.like != last.name or each.appended):
            yield ("outputs", index, "variadic"), "is for an output that is like the variadic input"


def _attributes(operator: Operator) -> Iterator[tuple[Path, str]]:
    inputs = {each.name for each in operator.inputs}
    kinds: Mapping[str, tuple[type, ...]] = {
        "int": (int,),
        "float": (int, float),
        "string": (str,),
        "ints": (int,),
        "floats": (int, float),
        "type": (str,),
    }
    for name, each in operator.attributes.items():
        path = ("attributes", name)
        if each.default is not None and not isinstance(each.default, kinds[each.type]):
            yield (*path, "default"), f"{each.default!r} is no {each.type}"
        elif each.allowed and each.default is not None and each.default not in each.allowed:
            yield (*path, "default"), f"{each.default!r} is not among the allowed {listed(each.allowed)}"
        elif each.minimum is not None and isinstance(each.default, int | float) and each.default < each.minimum:
            yield (*path, "default"), f"{each.default!r} is less than the minimum {each.minimum!r}"
        elif each.below is not None and isinstance(each.default, int | float) and each.default >= each.below:
            yield (*path, "default"), f"{each.default!r} is not below {each.below!r}"
        if each.required and each.default is not None:
            yield (*path, "default"), "a required attribute has no default"
        if each.allowed and each.type not in ("string", "int"):
            yield (*path, "allowed"), f"is for strings and ints; this is {each.type}"
        elif not all(isinstance(value, kinds[each.type]) for value in each.allowed):
            yield (*path, "allowed"), f"holds {listed(each.allowed)}; expected values of type {each.type}"
        if each.per is None if each.type == "ints" else each.per is not None and each.type != "floats":
            yield path, "type ints and `per` belong together"
        if each.per is not None and not (each.per in operator.axes and operator.axes[each.per].group):
            yield (*path, "per"), f"{each.per!r} is no group of axes"
        if each.axis_of is not None and (each.axis_of not in inputs or each.type != "int"):
            yield (*path, "axis_of"), f"{each.axis_of!r} is no input, or the attribute is no int"
        if each.axis_of is not None and each.default is None and not each.required:
            yield path, "with axis_of needs a default or required: true"
        if (each.binds is None) != (each.type != "type"):
            yield path, "type `type` and `binds` belong together"
        elif each.binds is not None and each.binds not in operator.types:
            yield (*path, "binds"), f"no type variable {each.binds!r}; types has {listed(operator.types)}"
        elif each.binds is not None and (each.default not in {*operator.types, *_TYPES} or each.default == each.binds):
            yield (*path, "default"), f"{each.default!r} is no other type variable, and no type"
