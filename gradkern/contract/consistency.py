"""Whether the parts of a registry entry agree with one another."""

# A default's type is compared with that which the attribute names.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import keyword
from collections.abc import Iterator, Mapping, Set
from typing import Any

from gradkern.contract.schema import RESERVED, Axis, Example, Operator, Shape, axis_of

__all__ = ["example_mistakes", "mistakes"]

Path = tuple[str | int, ...]
_OF_GROUPS = ("as_many_as", "begins_at", "broadcasts_to", "least", "most")
_PLAIN = Axis(doc="an axis")


def mistakes(operator: Operator) -> Iterator[tuple[Path, str]]:
    """Every way in which the parts of an entry disagree with one another, as (path inside the entry, reason)."""
    yield from _names(operator)
    yield from _types(operator)
    yield from _outputs(operator)
    yield from _axes(operator)
    yield from _in_place(operator)
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
    for name in operator.attributes:
        if keyword.iskeyword(name):
            yield ("attributes", name), "is a word of the Python language"
        if name in seen or name in RESERVED:
            owner = "an input or output" if name in seen else "a parameter of gradkern.run"
            yield ("attributes", name), f"is also the name of {owner}"


def _types(operator: Operator) -> Iterator[tuple[Path, str]]:
    bound = {each.type for each in operator.inputs if not each.optional}
    bound |= {each.binds for each in operator.attributes.values() if each.binds is not None}
    for key in ("inputs", "outputs"):
        for index, each in enumerate(getattr(operator, key)):
            if each.type not in operator.types:
                yield (key, index, "type"), f"no type variable {each.type!r}; types has {_list(operator.types)}"
    of_inputs = {each.type for each in operator.inputs}
    for variable in operator.types:
        if variable in bound:
            continue
        if variable in of_inputs:
            if not _goes_along(operator, variable):
                yield ("types", variable), "is never bound: no required input has this type and no attribute binds it"
        elif not _follows(operator, variable, bound):
            yield ("types", variable), "is never bound: no input has this type, and the combinations leave it open"
    rows: dict[tuple[tuple[str, str], ...], int] = {}
    for index, row in enumerate(operator.combinations):
        missing, surplus = operator.types.keys() - row.keys(), row.keys() - operator.types.keys()
        if missing:
            yield ("combinations", index), f"gives no type to {_list(sorted(missing))}"
        for name in sorted(surplus):
            yield ("combinations", index, name), f"no type variable {name!r}; types has {_list(operator.types)}"
        first = rows.setdefault(tuple(sorted(row.items())), index)
        if first != index:
            yield ("combinations", index), f"is the same combination as number {first + 1}"


def _goes_along(operator: Operator, variable: str) -> bool:
    """Whether every output of this type is like an input of it, and so is there only where its type is known."""
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


def _axes(operator: Operator) -> Iterator[tuple[Path, str]]:
    groups = {name for name, axis in operator.axes.items() if axis.group}
    for name, axis in operator.axes.items():
        for field in ("as_many_as", "broadcasts_to"):
            other = getattr(axis, field)
            if other is not None and (other not in groups or other == name):
                yield ("axes", name, field), f"{other!r} is no other group of axes"
        if axis.begins_at is not None and (
            axis.begins_at not in operator.attributes or operator.attributes[axis.begins_at].axis_of is None
        ):
            yield ("axes", name, "begins_at"), f"{axis.begins_at!r} is no attribute with axis_of"
        own = [key for key in sorted(_OF_GROUPS) if getattr(axis, key) != getattr(_PLAIN, key)]
        if own and not axis.group:
            yield ("axes", name), f"{_list(own)} is for a group; this is a single axis"
        if axis.most is not None and axis.most < axis.least:
            yield ("axes", name, "most"), f"is less than least, {axis.least}"
    inputs = {each.name for each in operator.inputs}
    used: set[str] = set()
    sized: set[str] = set()
    for path, shape in _shapes(operator):
        open_groups = 0
        for index, token in enumerate(shape):
            name = axis_of(token)
            used.add(name)
            if name not in operator.axes:
                yield (*path, index), f"no axis {name!r}; axes has {_list(operator.axes)}"
            elif not isinstance(token, str) and name not in groups:
                yield (*path, index), f"{name!r} is a single axis, not a group"
            elif isinstance(token, str) and name in groups:
                open_groups += 1
            if not isinstance(token, str) and name in groups and name not in sized:
                yield (*path, index), f"{name!r} has no sizes yet: no earlier input has it"
        split = any(operator.axes[n].begins_at for n in map(axis_of, shape) if n in operator.axes)
        if open_groups > 1 and not split:
            yield path, "has more than one group of axes and no attribute says where the second begins"
        for name in (token for token in shape if isinstance(token, str) and token in operator.axes):
            model = operator.axes[name].broadcasts_to
            if name not in sized and model in groups and model not in {name, *sized}:
                yield path, f"{name!r} broadcasts to {model!r}, which no earlier input has"
        sized.update(token for token in shape if isinstance(token, str))
    for name in operator.axes:
        if name not in used:
            yield ("axes", name), "is in no shape"
    for index, output in enumerate(operator.outputs):
        if (output.like is None) == (output.shape is None):
            yield ("outputs", index), "needs exactly one of like and shape"
        if output.like is not None and output.like not in inputs:
            yield ("outputs", index, "like"), f"no input {output.like!r}; inputs has {_list(sorted(inputs))}"
        if output.order_of is not None and (output.shape is None or output.order_of not in inputs):
            yield ("outputs", index, "order_of"), f"{output.order_of!r} is no input, or the output has no shape"


def _shapes(operator: Operator) -> Iterator[tuple[Path, Shape]]:
    for index, each in enumerate(operator.inputs):
        yield ("inputs", index, "shape"), each.shape
        for other, shape in enumerate(each.also):
            yield ("inputs", index, "also", other), shape
    for index, output in enumerate(operator.outputs):
        if output.shape is not None:
            yield ("outputs", index, "shape"), output.shape


def _in_place(operator: Operator) -> Iterator[tuple[Path, str]]:
    inputs = {each.name: each for each in operator.inputs}
    outputs = {each.name: each for each in operator.outputs}
    for index, each in enumerate(operator.in_place):
        for source, target in each.items():
            if source not in inputs:
                yield ("in_place", index, source), f"no input {source!r}; inputs has {_list(inputs)}"
            elif target not in outputs:
                yield ("in_place", index, source), f"no output {target!r}; outputs has {_list(outputs)}"
            elif not any(
                row.get(inputs[source].type) == row.get(outputs[target].type) for row in operator.combinations
            ):
                yield ("in_place", index, source), f"{source!r} and {target!r} never have the same type"


def _attributes(operator: Operator) -> Iterator[tuple[Path, str]]:
    inputs = {each.name for each in operator.inputs}
    kinds: Mapping[str, tuple[type, ...]] = {
        "int": (int,),
        "float": (int, float),
        "string": (str,),
        "ints": (int,),
        "type": (str,),
    }
    for name, each in operator.attributes.items():
        path = ("attributes", name)
        if each.default is not None and not isinstance(each.default, kinds[each.type]):
            yield (*path, "default"), f"{each.default!r} is no {each.type}"
        elif each.allowed and each.default is not None and each.default not in each.allowed:
            yield (*path, "default"), f"{each.default!r} is not among the allowed {_list(each.allowed)}"
        elif each.minimum is not None and isinstance(each.default, int | float) and each.default < each.minimum:
            yield (*path, "default"), f"{each.default!r} is less than the minimum {each.minimum!r}"
        if each.required and each.default is not None:
            yield (*path, "default"), "a required attribute has no default"
        if each.allowed and each.type not in ("string", "int"):
            yield (*path, "allowed"), f"is for strings and ints; this is {each.type}"
        elif not all(isinstance(value, kinds[each.type]) for value in each.allowed):
            yield (*path, "allowed"), f"holds {_list(each.allowed)}; expected values of type {each.type}"
        if (each.per is None) != (each.type != "ints"):
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
            yield (*path, "binds"), f"no type variable {each.binds!r}; types has {_list(operator.types)}"
        elif each.binds is not None and (each.default not in operator.types or each.default == each.binds):
            yield (*path, "default"), f"{each.default!r} is no other type variable"


def example_mistakes(operator: Operator, example: Example) -> Iterator[tuple[Path, str]]:
    """Every way in which a size of the problem disagrees with the entry, as (path inside the example, reason)."""
    needed = {axis_of(part) for each in operator.inputs if not each.optional for part in each.shape}
    spare = {axis_of(part) for each in operator.inputs if each.optional for part in each.shape} - needed
    for name in operator.axes.keys() - spare - example.axes.keys():
        yield ("axes",), f"gives no size to {name!r}"
    for name, size in example.axes.items():
        if name not in operator.axes:
            yield ("axes", name), f"no axis {name!r}; axes has {_list(operator.axes)}"
        elif operator.axes[name].group != isinstance(size, tuple):
            yield ("axes", name), "a group takes a list of sizes, a single axis one size"
    for name in example.attributes.keys() - operator.attributes.keys():
        yield ("attributes", name), f"no attribute {name!r}; attributes has {_list(operator.attributes)}"
    for name, attribute in operator.attributes.items():
        if attribute.required and name not in example.attributes:
            yield ("attributes",), f"misses the required {name!r}"


def _list(names: Any) -> str:
    return ", ".join(map(str, names)) or "none"
