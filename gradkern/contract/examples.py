"""The sizes of a problem, from a registry entry or a caller: whether they fit, and the shapes that follow."""

from __future__ import annotations

from collections.abc import Iterator

from gradkern.contract.expression import expression, product
from gradkern.contract.schema import Example, Operator, Path, axis_of, shape_of
from gradkern.contract.shape_consistency import listed
from gradkern.errors import ShapeError, nearest


def example_mistakes(operator: Operator, example: Example) -> Iterator[tuple[Path, str]]:
    """Every size of the problem that disagrees with the entry, as (path inside the example, reason)."""
    found = [*_mistakes(operator, example)]
    yield from found
    if not found:
        try:
            complete(operator, example)
        except ShapeError as error:
            yield (), str(error)


def _mistakes(operator: Operator, example: Example) -> Iterator[tuple[Path, str]]:
    needed = {axis_of(part) for each in operator.inputs if not each.optional for part in each.sizes}
    spare = {axis_of(part) for each in operator.inputs if each.optional for part in each.sizes} - needed
    spare |= {name for name, axis in operator.axes.items() if axis.equals is not None}
    spare |= {str(part) for each in operator.inputs if each.is_list for part in each.shape}
    for name, size in example.axes.items():
        if name not in operator.axes:
            yield ("axes", name), f"no axis {name!r}{nearest(name, operator.axes)}; axes has {listed(operator.axes)}"
        elif operator.axes[name].group != isinstance(size, tuple):
            kind, came = ("a list of sizes", "one size") if operator.axes[name].group else ("one size", "a list")
            yield ("axes", name), f"expected {kind}, got {came}"
    for name in operator.axes:
        if name not in spare and name not in example.axes:
            yield ("axes",), f"gives no size to {name!r}"
    on_host = {each.name: each for each in operator.inputs if each.memory != "device"}
    for name in example.attributes.keys() - operator.attributes.keys() - on_host.keys():
        hint = nearest(name, operator.attributes)
        yield ("attributes", name), f"no attribute {name!r}{hint}; attributes has {listed(operator.attributes)}"
    for name, attribute in operator.attributes.items():
        if attribute.required and name not in example.attributes:
            yield ("attributes",), f"misses the required {name!r}"
    for name, each in on_host.items():
        if each.memory == "host" and not each.optional and each.gives is None and name not in example.attributes:
            yield ("attributes",), f"misses the value of input {name!r}"


def complete(operator: Operator, example: Example) -> Example:
    """An example with the axes that follow from its others, and the shapes that inputs give. Raises ShapeError where a
    size that follows is not whole.
    """
    axes, attributes = dict(example.axes), dict(example.attributes)
    plain = {name: each.default for name, each in operator.attributes.items()}
    for name, axis in operator.axes.items():
        if axis.equals is not None:
            size = expression(axis.equals).size({**plain, **attributes, **axes})
            if size is not None:
                axes[name] = size if axis.group else product(size)
    for each in operator.inputs:
        if each.gives is not None:
            attributes[each.name] = shape_of(each.gives, axes)
    return Example(axes=axes, attributes=attributes)
