"""What one entry of registry.yaml may say: the contract of an operator, as frozen read-only data. The head of that file
explains every key.

This module needs nothing but the standard library, so that a process whose registry was checked before loads no more.
What an annotation of type Check asks for is checked, with the types, when a registry is read: see `reading`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from math import prod
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast

from gradkern.contract.expression import EXPECTED_EXPRESSION, EXPRESSION
from gradkern.system.display import table
from gradkern.system.importing import load


class Check:
    """What pydantic checks of a value beside its type: one of the CHECKS in `reading` by its name, with arguments."""

    def __init__(self, name: str, *arguments: Any) -> None:
        self._name, self._arguments = name, arguments

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return load("gradkern.contract.reading").CHECKS[self._name](handler(source), *self._arguments)


TypeName = Literal["float16", "bfloat16", "float32", "float64", "int32", "int64", "uint8", "uint32", "bool"]
Name = Annotated[str, Check("matches", r"^[A-Za-z][A-Za-z0-9_]*$")]
NameOrInt = Annotated[Name | int, Check("one_of", "a name or a whole number")]
Expression = Annotated[str, Check("matches", EXPRESSION), Check("one_of", EXPECTED_EXPRESSION)]
Module = Annotated[str, Check("matches", r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$")]
Text = Annotated[str, Check("min_length", 1)]
AtLeast0 = Annotated[int, Check("at_least", 0)]
AtLeast1 = Annotated[int, Check("at_least", 1)]
Path = tuple[str | int, ...]
RESERVED = frozenset({"op", "outputs", "out", "provider", "stream", "policy", "domain", "version"})
"""Keyword parameters of `gradkern.run`. No input or attribute may have such a name."""


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return MappingProxyType({key: _frozen(each) for key, each in cast(Mapping[str, Any], value).items()})
    return tuple(map(_frozen, cast(tuple[Any, ...], value))) if isinstance(value, tuple) else value


def _thawed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _thawed(each) for key, each in cast(Mapping[str, Any], value).items()}
    return tuple(map(_thawed, cast(tuple[Any, ...], value))) if isinstance(value, tuple) else value


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A part of the registry: a frozen dataclass whose mappings are read-only, too."""

    # When a registry is read, an unknown key and a value of another type are errors.
    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        schema = handler(source)
        handler.resolve_ref_schema(schema)["strict"] = False  # the entry itself is made of a mapping
        return schema

    def __post_init__(self) -> None:
        for name in names_of(type(self)):
            value = getattr(self, name)
            if isinstance(value, dict | tuple):
                object.__setattr__(self, name, _frozen(value))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments it was made from: Python cannot pickle read-only mappings."""
        return partial(type(self), **{name: _thawed(getattr(self, name)) for name in names_of(type(self))}), ()


def names_of(kind: type[Entry]) -> tuple[str, ...]:
    """The names of an entry's fields: its keys in registry.yaml."""
    return tuple(each.name for each in fields(kind))


@dataclass(frozen=True, kw_only=True)
class Axis(Entry):
    """A dimension, or with group=True any number of them."""

    doc: Text
    group: bool = False
    least: AtLeast0 = 0
    most: AtLeast1 | None = None
    as_many_as: Name | None = None
    begins_at: Name | None = None
    ends_at: Name | None = None
    broadcasts_to: Name | None = None
    equals: Expression | None = None


@dataclass(frozen=True, kw_only=True)
class Ones(Entry):
    """A dimension of size 1 for every dimension of a group."""

    ones: Name


@dataclass(frozen=True, kw_only=True)
class Flat(Entry):
    """A group of axes folded into one dimension."""

    flat: Name


def axis_of(token: str | Ones | Flat) -> str:
    """The name of the axis or group that a part of a shape is made of."""
    return token if isinstance(token, str) else token.ones if isinstance(token, Ones) else token.flat


def shape_of(shape: Shape, axes: Mapping[str, Any]) -> tuple[int, ...]:
    """The sizes a contract's shape has for these axes."""
    sizes: list[int] = []
    for token in shape:
        if isinstance(token, Ones):
            sizes.extend(1 for _ in axes[token.ones])
        elif isinstance(token, Flat):
            sizes.append(prod(axes[token.flat]))
        else:
            size: int | tuple[int, ...] = axes[token]
            sizes.extend(size if isinstance(size, tuple) else (size,))
    return tuple(sizes)


Token = Annotated[Name | Ones | Flat, Check("one_of", "the name of an axis, {ones: GROUP} or {flat: GROUP}")]
Shape = tuple[Token, ...]
Where = dict[Name, dict[NameOrInt, Shape]]
"""By attribute and its value, the shape that a tensor has then."""


@dataclass(frozen=True, kw_only=True)
class Input(Entry):
    name: Name
    type: Name
    shape: Shape
    also: tuple[Shape, ...] = ()
    where: Where = field(default_factory=dict[str, Any])
    gives: Shape | None = None
    memory: Literal["device", "host", "any"] = "device"
    values: Literal["any", "positive", "nonzero", "mask", "probability", "log_probability", "window"] = "any"
    index_of: tuple[Name, ...] = ()
    along: Name | None = None
    negative: bool = False
    optional: bool = False
    default: bool = True
    variadic: bool = False
    doc: Text

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Every shape that is taken, the usual one first."""
        return (self.shape, *self.also)

    @property
    def sizes(self) -> Shape:
        """The axes whose sizes the input gives: by its shape, or by its values."""
        return self.shape if self.gives is None else self.gives

    @property
    def is_scalar(self) -> bool:
        """Whether it is a single number, read by each call where it is on the host: its value is not part of a plan."""
        return self.memory != "device" and self.gives is None and not self.shape

    @property
    def is_list(self) -> bool:
        """Whether it is a list in the host's memory. Its values are part of a plan, as those of an attribute are."""
        return self.memory == "host" and not self.is_scalar


@dataclass(frozen=True, kw_only=True)
class Output(Entry):
    name: Name
    type: Name
    like: Name | None = None
    shape: Shape | None = None
    where: Where = field(default_factory=dict[str, Any])
    order_of: Name | None = None
    alias: Name | None = None
    optional: bool = False
    default: bool = True
    appended: bool = False
    variadic: bool = False
    doc: Text


Number = Annotated[int | float, Check("one_of", "a number")]


@dataclass(frozen=True, kw_only=True)
class Attribute(Entry):
    type: Literal["int", "float", "string", "ints", "floats", "type"]
    required: bool = False
    default: Annotated[int | float | str, Check("one_of", "a number or text")] | None = None
    allowed: tuple[NameOrInt, ...] = ()
    minimum: Number | None = None
    below: Number | None = None
    per: Name | None = None
    times: AtLeast1 = 1
    axis_of: Name | None = None
    binds: Name | None = None
    doc: Text


T = TypeVar("T", Input, Output)


def _chosen(tensor: T, declared: Mapping[str, Attribute], attributes: Mapping[str, Any]) -> T:
    """The tensor with the shape that it has where the attributes have these values."""
    for name, shapes in tensor.where.items():
        value = declared[name].default if attributes.get(name) is None else attributes[name]
        shape = shapes.get(value) if isinstance(value, int | str) else None  # another is refused where it is checked
        if shape is not None:
            chosen = replace(tensor, shape=shape, where={})
            return replace(chosen, like=None, variadic=False) if isinstance(chosen, Output) else chosen
    return replace(tensor, where={}) if tensor.where else tensor


def _numbered(tensor: T, number: int, own: Collection[str]) -> T:
    """The tensor of that number, from 0 on, among those of a variadic one. own: the axes that each has for itself."""
    if not number:
        return replace(tensor, variadic=False)
    shape = tensor.shape and tuple(f"{each}_{number}" if each in own else each for each in tensor.shape)
    made = replace(tensor, name=f"{tensor.name}_{number}", shape=shape, variadic=False)
    return replace(made, like=f"{made.like}_{number}") if isinstance(made, Output) and made.like else made


Sizes = Annotated[AtLeast0 | tuple[AtLeast0, ...], Check("one_of", "a size or a list of sizes, 0 or more")]
Value = Annotated[
    bool | int | float | str | tuple[int | float, ...], Check("one_of", "a number, text or a list of numbers")
]


@dataclass(frozen=True, kw_only=True)
class Example(Entry):
    """One size of the problem: every axis that does not follow from others, and the attributes that are not at their
    default. Once a registry is read, all axes, and among the attributes the values of inputs that are lists.
    """

    axes: dict[Name, Sizes]
    attributes: dict[Name, Value] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, kw_only=True)
class Operator(Entry):
    """The contract of one operator."""

    domain: Text
    since_version: AtLeast1
    until_version: AtLeast1 | None = None
    family: Name
    doc: Text
    types: dict[Name, Text]
    combinations: Annotated[tuple[dict[Name, TypeName], ...], Check("some")]
    axes: dict[Name, Axis]
    inputs: Annotated[tuple[Input, ...], Check("some")]
    outputs: Annotated[tuple[Output, ...], Check("some")]
    attributes: dict[Name, Attribute]
    in_place: tuple[dict[Name, Name], ...] = ()
    providers: Annotated[dict[Name, Annotated[tuple[Module, ...], Check("some")]], Check("some")]
    examples: Annotated[tuple[Example, ...], Check("some")]
    benchmarks: Annotated[tuple[Example, ...], Check("some")]

    def __repr__(self) -> str:
        attributes = f"; {', '.join(self.attributes)}" if self.attributes else ""
        inputs, outputs = (", ".join(each.name for each in tensors) for tensors in (self.inputs, self.outputs))
        return f"<gradkern operator of {self.domain}: ({inputs}{attributes}) -> ({outputs})>"

    def _repr_html_(self) -> str:
        tensors = (("input", self.inputs), ("output", self.outputs))
        rows = [(kind, each.name, each.type, each.doc) for kind, group in tensors for each in group]
        rows += [("attribute", name, each.type, each.doc) for name, each in self.attributes.items()]
        return table(self.doc, ("", "name", "type", ""), rows)

    @property
    def in_place_pairs(self) -> frozenset[tuple[str, str]]:
        """The (input, output) pairs that may share one array."""
        aliases = {(each.alias, each.name) for each in self.outputs if each.alias is not None}
        return frozenset(pair for each in self.in_place for pair in each.items()) | aliases

    def chosen(self, attributes: Mapping[str, Any]) -> Operator:
        """The contract of calls with these attributes: each shape is the one that they choose."""
        if not any(each.where for each in (*self.inputs, *self.outputs)):
            return self
        return replace(
            self,
            inputs=tuple(_chosen(each, self.attributes, attributes) for each in self.inputs),
            outputs=tuple(_chosen(each, self.attributes, attributes) for each in self.outputs),
        )

    @property
    def variadic(self) -> int | None:
        """The place of the input that stands for any number of arrays: the last one. None where there is none."""
        return len(self.inputs) - 1 if self.inputs[-1].variadic else None

    def repeated(self, count: int, attributes: Mapping[str, Any] = MappingProxyType({})) -> Operator:
        """The contract of calls with so many arrays for the variadic input, and these attributes: X, X_1, X_2, each
        with sizes of its own, and as many outputs where these are variadic.
        """
        if count < 2 or self.variadic is None:
            return self
        last, numbers = self.inputs[-1], range(1, count)
        own = [axis_of(token) for token in last.shape]
        axes: dict[str, Axis] = {}
        for name, axis in self.axes.items():
            total = "+".join([str(axis.equals), *(f"{axis.equals}_{n}" for n in numbers)])
            axes[name] = replace(axis, equals=total) if axis.equals in own else axis
            axes |= {f"{name}_{n}": axis for n in numbers if name in own}
        several = {each.name for each in self.outputs if _chosen(each, self.attributes, attributes).variadic}
        pairs = [pair for each in self.in_place for pair in each.items() if pair[0] == last.name and pair[1] in several]
        return replace(
            self,
            axes=axes,
            inputs=(*self.inputs[:-1], *(_numbered(last, n, own) for n in range(count))),
            outputs=tuple(
                _numbered(each, n, own) for each in self.outputs for n in range(count if each.name in several else 1)
            ),
            in_place=(
                *self.in_place,
                *({f"{source}_{n}": f"{target}_{n}"} for source, target in pairs for n in numbers),
            ),
        )

    def inputs_of(
        self, axes: Collection[str], attributes: Mapping[str, Any] = MappingProxyType({})
    ) -> tuple[Input, ...]:
        """The usual arrays of a call where these axes have sizes: all but optional ones with another axis, or that are
        not given by default. Inputs in the host's memory are given among the attributes, if at all.
        """
        return tuple(
            each
            for each in self.chosen(attributes).inputs
            if not each.is_list
            and not (each.is_scalar and (each.optional or each.memory == "host"))
            and (not each.optional or (each.default and all(axis_of(token) in axes for token in each.shape)))
        )

    @property
    def data_types(self) -> tuple[str, ...]:
        """The types of the data in the order of the combinations, each once."""
        return tuple(dict.fromkeys(row[self.data.type] for row in self.combinations))

    @property
    def data(self) -> Input:
        """The first input of a floating-point type in the memory of the device; where none is, the first there."""
        there = [each for each in self.inputs if each.memory == "device"]
        floating = (each for each in there if any("float" in row[each.type] for row in self.combinations))
        return next(floating, there[0])
