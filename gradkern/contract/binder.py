"""Who is who in a call: arguments by position and name become inputs, attributes and wanted outputs."""

# Callers may pass what its type does not allow; it is looked at nevertheless.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, cast

import numpy as np

from gradkern.contract.schema import Operator
from gradkern.errors import ArgumentError, nearest, shown

AttributeKey = tuple[tuple[str, tuple[Any, Any]], ...]


class Binder:
    """The names of one operator, ready to sort the arguments of a call by."""

    def __init__(self, name: str, operator: Operator) -> None:
        self.name = name
        self.operator = operator
        self.inputs = tuple(each.name for each in operator.inputs)
        self.outputs = tuple(each.name for each in operator.outputs)
        self.appended_outputs = frozenset([each.name for each in operator.outputs if each.appended])
        self.default_outputs = tuple(each.name for each in operator.outputs if each.default)
        places = {each.name: place for place, each in enumerate(operator.inputs) if each.optional}
        self.like_optional = {
            each.name: places[each.like] for each in operator.outputs if each.default and each.like in places
        }
        """Places of the optional inputs that default outputs are like: those are not computed without these."""
        self.host_inputs = tuple((place, each) for place, each in enumerate(operator.inputs) if each.memory != "device")
        self.first = next((place for place, each in enumerate(operator.inputs) if each.memory == "device"), 0)
        self.aliases = tuple((str(each.alias), each.name) for each in operator.outputs if each.alias)
        self.is_plain = not self.host_inputs and not self.aliases
        self._input_names = frozenset(self.inputs)
        required = [each.name for each in operator.inputs if not each.optional]
        last = len(self.inputs) if list(self.inputs[: len(required)]) != required else len(required)
        self._always, self._last = self.inputs[:last], self.inputs[last:]
        self._required_alone = (False,) * last + (True,) * (len(self.inputs) - last)
        # What stands for optional inputs at the end that are not given, by the number of those that are.
        self._padding = {count: (None,) * (len(self.inputs) - count) for count in range(last, len(self.inputs) + 1)}
        # The others out of named arguments. itemgetter is fastest, but of a single name it makes no tuple.
        self._picked: Callable[[dict[str, Any]], tuple[Any, ...]] = (
            itemgetter(*self._always)
            if len(self._always) > 1
            else lambda named: tuple([named[name] for name in self._always])
        )
        self._optional = any(each.optional or each.memory != "device" for each in operator.inputs)
        self._attribute_names = frozenset(operator.attributes)
        self._positions = [f"{name}: input {each}" for each in self.inputs]
        self._wanted: dict[tuple[Any, tuple[str, ...]], tuple[str, ...]] = {}  # checked before
        self.variadic = operator.variadic
        self._several: dict[Any, Binder] = {}  # by the number of arrays for the variadic input

    def where(self, index: int) -> str:
        """How errors name the input of that position."""
        return self._positions[index]

    def of(self, positional: tuple[Any, ...], named: Mapping[str, Any]) -> Binder:
        """The binder of calls with as many arrays for the variadic input as these are."""
        if self.variadic is None:
            return self
        prefix, count = f"{self.inputs[self.variadic]}_", len(positional) - self.variadic
        for name in named:
            number = name.removeprefix(prefix)
            if number != name and number.isdecimal() and int(number) < _MOST_NAMED:
                count = max(count, int(number) + 1)
        if count < 2:
            return self
        choosing = [name for each in self.operator.outputs if each.variadic for name in each.where]
        values = [(name, named[name]) for name in choosing if isinstance(named.get(name), int | str)]
        key = count, *values
        found = self._several.get(key)
        if found is None:
            if len(self._several) >= _MOST:
                self._several.clear()
            found = self._several[key] = Binder(self.name, self.operator.repeated(count, dict(values)))
        return found

    def bind(self, positional: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Inputs in contract order, None for one that is not given, and the attributes as they came.

        `require` checks that required inputs are given; a recognised call skips it.
        """
        padding = self._padding.get(len(positional))
        if padding is not None and (not named or self._input_names.isdisjoint(named)):
            inputs: tuple[Any, ...] = positional + padding
        elif positional:
            inputs, named = self._sort(positional, named)
        else:
            try:
                inputs = self._picked(named)
            except KeyError:
                inputs, named = self._sort(positional, named)
            else:
                for name in self._always:
                    del named[name]
                if self._last:
                    inputs += tuple([named.pop(name, None) for name in self._last])
        if named and not self._attribute_names.issuperset(named):
            raise ArgumentError(self._unknown(min(named.keys() - self._attribute_names)))
        return inputs, named

    def _sort(self, positional: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if len(positional) > len(self.inputs):
            raise ArgumentError(
                f"{self.name}: {len(positional)} inputs given; it takes {len(self.inputs)}: {', '.join(self.inputs)}"
            )
        given = dict(zip(self.inputs, positional, strict=False))
        attributes: dict[str, Any] = {}
        for name, value in named.items():
            if name not in self._input_names:
                attributes[name] = value
            elif given.get(name) is not None:
                place = self.inputs.index(name) + 1
                raise ArgumentError(f"{self.name}: input {name} is given twice, by name and as number {place}")
            else:
                given[name] = value
        return tuple(given.get(name) for name in self.inputs), attributes

    def given(self, inputs: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[bool, ...] | None]:
        """The inputs that are not None, and of each whether it is; all, and None, where the contract needs all."""
        if not self._optional:
            return inputs, None
        missing = tuple([each is None for each in inputs])
        if missing == self._required_alone:
            return inputs[: len(self._always)], missing
        return tuple([each for each in inputs if each is not None]), missing

    def aliased(
        self, inputs: tuple[Any, ...], wanted: tuple[str, ...], out: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None:
        """`out` with the input's own array for each output that is its alias."""
        for source, name in self.aliases:
            array = inputs[self.inputs.index(source)]
            if name in wanted and array is not None and not (out and name in out):
                out = {**(out or {}), name: array}
        return out

    def require(self, inputs: tuple[Any, ...], host: bool = False) -> None:
        """Refuse inputs that are None and not optional. host: those on the host, too; a request has them apart."""
        missing = [
            each.name
            for each, value in zip(self.operator.inputs, inputs, strict=True)
            if value is None and not each.optional and (host or each.memory == "device")
        ]
        if missing:
            word = "input" if len(missing) == 1 else "inputs"
            raise ArgumentError(f"{self.name}: {word} {', '.join(missing)} missing; it takes {', '.join(self.inputs)}")

    def _unknown(self, name: str) -> str:
        known = list(dict.fromkeys([*self.inputs, *self.operator.attributes]))
        attributes = ", ".join(self.operator.attributes) or "none"
        inputs = ", ".join(self.inputs[:_MOST_SHOWN]) + (", ..." if len(self.inputs) > _MOST_SHOWN else "")
        hint = nearest(name, known)
        return f"{self.name}: unknown argument {name!r}{hint}; its attributes are {attributes}; its inputs are {inputs}"

    def wanted(self, outputs: Any, out: Mapping[str, Any] | None) -> tuple[str, ...]:
        """The outputs to compute, in contract order: those named, or the default ones and those that `out` names."""
        if out is not None and not isinstance(out, Mapping):
            raise ArgumentError(
                f"{self.name}: out is a {type(out).__name__}; expected a mapping from output names to arrays"
            )
        if outputs is None and not out:
            return self.default_outputs
        if outputs is not None and type(outputs) is not tuple and type(outputs) is not list:
            return self._choose(outputs, out)
        names: Any = outputs and tuple(outputs)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        selection = names, tuple(out) if out else ()
        try:
            known = self._wanted.get(selection)
        except Exception:  # no name at all: it cannot be hashed, or raises another error
            return self._choose(outputs, out)
        if known is None:
            known = self._wanted[selection] = self._choose(outputs, out)
        return known

    def default_with(self, arrays: tuple[Any, ...], out: Mapping[str, Any] | None) -> tuple[str, ...]:
        """The default outputs of a call with these inputs, and what `out` names."""
        absent = {name for name, place in self.like_optional.items() if arrays[place] is None}
        named = tuple(out) if isinstance(out, Mapping) else ()
        return tuple(dict.fromkeys((*(each for each in self.default_outputs if each not in absent), *named)))

    def _choose(self, outputs: Any, out: Mapping[str, Any] | None) -> tuple[str, ...]:
        if outputs is None:
            names = list(dict.fromkeys((*self.default_outputs, *(out or ()))))
        else:
            try:
                names = [outputs] if isinstance(outputs, str) else list(outputs)
            except Exception as error:  # of the caller's own object, too
                raise ArgumentError(f"{self.name}: outputs is {shown(outputs)}; expected names of outputs") from error
        for name in names:
            if not isinstance(name, str) or name not in self.outputs:
                hint = nearest(name, self.outputs)
                raise ArgumentError(
                    f"{self.name}: unknown output {shown(name)}{hint}; its outputs are {', '.join(self.outputs)}"
                )
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ArgumentError(f"{self.name}: output {twice[0]!r} is wanted twice")
        for name in out or ():
            if name not in names:
                raise ArgumentError(
                    f"{self.name}: out has an array for {name!r}, which is not among the wanted outputs"
                )
        for each in self.operator.outputs:
            if each.name not in names and not each.optional:
                raise ArgumentError(f"{self.name}: output {each.name} is not optional; outputs leaves it out")
        if not names:
            raise ArgumentError(f"{self.name}: outputs is empty; name at least one of {', '.join(self.outputs)}")
        return tuple(name for name in self.outputs if name in names)


def attribute_key(attributes: dict[str, Any]) -> AttributeKey:
    """The attributes in a form that can be a key. Types are part of it: 1, 1.0 and True are equal, not the same."""
    key: list[tuple[str, Any]] = []
    for name, value in attributes.items():
        kind = type(value)  # pyright: ignore[reportUnknownVariableType]  of any attribute
        if kind in _SCALARS:  # the most common values do without _frozen, to save time in a call
            key.append((name, (kind, value)))
        elif kind is tuple:
            key.append((name, _tuples.get(id(value)) or _of_tuple(value)))
        elif kind is list:
            key.append((name, ((*map(type, value),), (*value,))))
        elif value is not None:
            key.append((name, _frozen(value)))
    if len(key) > 1:
        key.sort()
    return tuple(key)


_SCALARS = frozenset([bool, float, int, str])
_MOST = 256
_MOST_NAMED = 1 << 16  # arrays of a variadic input: a larger number in a name is no array's
_MOST_SHOWN = 16  # inputs that an error names
_tuples: dict[int, tuple[Any, Any]] = {}
"""The parts of keys for tuples seen before, such as constants in a caller's code, by the tuples' ids. The table keeps
the tuples alive, so no other object has such an id; they hold only scalars, so they never change. Once the table is
full nothing is added: tuples that are new in every call do not push others out.
"""


def _of_tuple(value: tuple[Any, ...]) -> tuple[Any, Any]:
    frozen = (*map(type, value),), value
    if len(_tuples) < _MOST and _SCALARS.issuperset(frozen[0]):
        _tuples[id(value)] = frozen
    return frozen


def _frozen(value: Any) -> tuple[Any, Any]:
    kind = cast(type[Any], type(value))
    if isinstance(value, np.ndarray):
        array = cast("np.ndarray[Any, Any]", value)
        return (kind, array.item()) if array.ndim == 0 else _frozen(array.tolist())
    if isinstance(value, list | tuple):
        values = cast(Sequence[Any], value)
        return tuple(map(type, values)), tuple(values)
    return kind, value
