"""Whether the axes and the shapes of a registry entry agree with one another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gradkern.contract.expression import expression
from gradkern.contract.schema import Axis, Ones, Operator, Path, Shape, axis_of

_OF_GROUPS = ("as_many_as", "begins_at", "broadcasts_to", "ends_at", "least", "most")
_PLAIN = Axis(doc="an axis")


def shape_mistakes(operator: Operator) -> Iterator[tuple[Path, str]]:
    groups = {name for name, axis in operator.axes.items() if axis.group}
    for name, axis in operator.axes.items():
        if axis.broadcasts_to is not None and (axis.broadcasts_to not in groups or axis.broadcasts_to == name):
            yield ("axes", name, "broadcasts_to"), f"{axis.broadcasts_to!r} is no other group of axes"
        if axis.as_many_as is not None and (axis.as_many_as not in operator.axes or axis.as_many_as == name):
            yield ("axes", name, "as_many_as"), f"{axis.as_many_as!r} is no other axis or group of axes"
        for key in ("begins_at", "ends_at"):
            attribute = operator.attributes.get(getattr(axis, key) or "")
            if getattr(axis, key) is not None and (attribute is None or attribute.axis_of is None):
                yield ("axes", name, key), f"{getattr(axis, key)!r} is no attribute with axis_of"
        yield from _equals(operator, name, axis)
        own = [key for key in sorted(_OF_GROUPS) if getattr(axis, key) != getattr(_PLAIN, key)]
        if own and not axis.group:
            yield ("axes", name), f"{listed(own)} is for a group; this is a single axis"
        if axis.most is not None and axis.most < axis.least:
            yield ("axes", name, "most"), f"is less than least, {axis.least}"
    inputs = {each.name for each in operator.inputs}
    used: set[str] = set()
    sized: set[str] = set()
    for path, shape in _shapes(operator):
        for index, token in enumerate(shape):
            name = axis_of(token)
            used.add(name)
            if name not in operator.axes:
                yield (*path, index), f"no axis {name!r}; axes has {listed(operator.axes)}"
            elif not isinstance(token, str) and name not in groups:
                yield (*path, index), f"{name!r} is a single axis, not a group"
            said = isinstance(token, Ones) and name in groups and operator.axes[name].equals is not None
            if not isinstance(token, str) and name in groups and name not in sized and not said:
                yield (*path, index), f"{name!r} has no sizes yet: no earlier input has it"
        for name in (token for token in shape if isinstance(token, str) and token in operator.axes):
            model = operator.axes[name].broadcasts_to
            if name not in sized and model in groups and model not in {name, *sized}:
                yield path, f"{name!r} broadcasts to {model!r}, which no earlier input has"
        sized.update(token for token in shape if isinstance(token, str))
    yield from _open_groups(operator)
    yield from _where(operator)
    for name, axis in operator.axes.items():
        if name not in used and axis.equals is None:
            yield ("axes", name), "is in no shape"
    for index, each in enumerate(operator.inputs):
        for name in each.index_of:
            if name not in operator.axes:
                yield ("inputs", index, "index_of"), f"no axis {name!r}; axes has {listed(operator.axes)}"
        if each.along is not None and each.along not in each.shape:
            yield ("inputs", index, "along"), f"{each.along!r} is no axis of the input"
    for index, output in enumerate(operator.outputs):
        if (output.like is None) == (output.shape is None):
            yield ("outputs", index), "needs exactly one of like and shape"
        if output.like is not None and output.like not in inputs:
            yield ("outputs", index, "like"), f"no input {output.like!r}; inputs has {listed(sorted(inputs))}"
        if output.order_of is not None and (output.shape is None or output.order_of not in inputs):
            yield ("outputs", index, "order_of"), f"{output.order_of!r} is no input, or the output has no shape"


def _equals(operator: Operator, name: str, axis: Axis) -> Iterator[tuple[Path, str]]:
    """Mistakes of an axis that follows from others: each of them has to be known before it."""
    if axis.equals is None:
        return
    names = [*operator.axes]
    for each in expression(axis.equals).names:
        attribute = operator.attributes.get(each)
        if each in names:
            if names.index(each) >= names.index(name):
                yield ("axes", name, "equals"), f"{each!r} is an axis that does not stand before this one"
        elif attribute is None or attribute.type not in ("int", "ints"):
            yield ("axes", name, "equals"), f"{each!r} is no axis, and no attribute of whole numbers"
        elif (attribute.type == "ints") != axis.group:
            yield ("axes", name, "equals"), f"{each!r} is {attribute.type}; a group takes ints, a single axis an int"


def _open_groups(operator: Operator) -> Iterator[tuple[Path, str]]:
    """Inputs that cannot be matched: no order leaves at most one group of theirs open."""
    fixed = {name for name, axis in operator.axes.items() if axis.begins_at or axis.ends_at or not axis.group}
    fixed |= {name for name, axis in operator.axes.items() if axis.equals in operator.attributes}

    def count(shape: Shape) -> int:
        groups = [part for part in shape if isinstance(part, str) and part in operator.axes]
        return sum(
            not ({part, operator.axes[part].as_many_as, *alike(part)} & sized or part in fixed) for part in groups
        )

    def alike(name: str) -> set[str]:
        return {other for other, axis in operator.axes.items() if axis.as_many_as == name}

    sized: set[str] = set()
    pending = {index: each.sizes for index, each in enumerate(operator.inputs)}
    while pending:
        index = next((index for index, shape in pending.items() if count(shape) <= 1), None)
        if index is None:
            for index in pending:
                key = "shape" if operator.inputs[index].gives is None else "gives"
                yield (
                    ("inputs", index, key),
                    "has more than one group of axes, and nothing says where the second begins",
                )
            return
        sized |= {part for part in pending.pop(index) if isinstance(part, str)}


def _where(operator: Operator) -> Iterator[tuple[Path, str]]:
    """Shapes that an attribute chooses."""
    for key in ("inputs", "outputs"):
        for index, each in enumerate(getattr(operator, key)):
            if len(each.where) > 1:
                yield (key, index, "where"), "is for one attribute"
            for name, shapes in each.where.items():
                attribute = operator.attributes.get(name)
                if attribute is None or attribute.type not in ("int", "string"):
                    yield (key, index, "where", name), "is no attribute of type int or string"
                    continue
                for value in shapes:
                    if attribute.allowed and value not in attribute.allowed:
                        yield (key, index, "where", name, value), f"is not among {listed(attribute.allowed)}"


def _shapes(operator: Operator) -> Iterator[tuple[Path, Shape]]:
    for index, each in enumerate(operator.inputs):
        yield ("inputs", index, "shape" if each.gives is None else "gives"), each.sizes
        for other, shape in enumerate(each.also):
            yield ("inputs", index, "also", other), shape
        for name, shapes in each.where.items():
            for value, shape in shapes.items():
                yield ("inputs", index, "where", name, value), shape
    for index, output in enumerate(operator.outputs):
        if output.shape is not None:
            yield ("outputs", index, "shape"), output.shape
        for name, shapes in output.where.items():
            for value, shape in shapes.items():
                yield ("outputs", index, "where", name, value), shape


def listed(names: Any) -> str:
    """Names as a message has them."""
    return ", ".join(map(str, names)) or "none"
