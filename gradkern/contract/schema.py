"""What one entry of registry.yaml may say: the contract of an operator, as frozen read-only data."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, WrapValidator
from pydantic_core import PydanticCustomError

__all__ = ["Attribute", "Axis", "Example", "Input", "Operator", "Output", "Token", "axis_of"]

TypeName = Literal["float16", "bfloat16", "float32", "float64"]
Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
Module = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$")]
Text = Annotated[str, Field(min_length=1)]
Path = tuple[str | int, ...]
RESERVED = frozenset({"op", "outputs", "out", "provider", "stream", "policy", "domain", "version"})
"""Keyword parameters of `gradkern.run`, which no input or attribute may be called."""

frozen_mapping = AfterValidator(MappingProxyType)


def _choice(expected: str) -> WrapValidator:
    """Refuses what is no member of a union in one sentence, where pydantic has one for every member."""

    def choose(value: Any, handler: Any) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise PydanticCustomError("choice", "expected {expected}", {"expected": expected}) from None

    return WrapValidator(choose)


def _some(value: Any) -> Any:
    if not value:
        raise PydanticCustomError("empty", "needs at least one")
    return value


some = AfterValidator(_some)
"""For a list or mapping that may not be empty; min_length counts only the valid items and complains twice."""


def _thawed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _thawed(each) for key, each in cast(Mapping[str, Any], value).items()}
    if isinstance(value, tuple):
        return tuple(map(_thawed, cast(tuple[Any, ...], value)))
    return value


class Model(BaseModel):
    """Strict and frozen: an unknown key, a wrong type and a later change are all errors."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True, allow_inf_nan=False
    )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as what it was made of: Python cannot pickle read-only mappings."""
        values = {name: _thawed(getattr(self, name)) for name in type(self).model_fields}
        return type(self).model_validate, (values,)


class Axis(Model):
    """A dimension, or with group=True any number of them."""

    doc: Text
    group: bool = False
    least: Annotated[int, Field(ge=0)] = 0
    most: Annotated[int, Field(ge=1)] | None = None
    as_many_as: Name | None = None
    begins_at: Name | None = None
    broadcasts_to: Name | None = None


class Ones(Model):
    """A dimension of size 1 for every dimension of a group."""

    ones: Name


class Flat(Model):
    """A group of axes folded into one dimension."""

    flat: Name


def axis_of(token: str | Ones | Flat) -> str:
    """The name of the axis or group that a part of a shape is made of."""
    return token if isinstance(token, str) else token.ones if isinstance(token, Ones) else token.flat


Token = Annotated[Name | Ones | Flat, _choice("the name of an axis, {ones: GROUP} or {flat: GROUP}")]
Shape = tuple[Token, ...]


class Input(Model):
    name: Name
    type: Name
    shape: Shape
    also: tuple[Shape, ...] = ()
    values: Literal["any", "positive", "nonzero"] = "any"
    optional: bool = False
    default: bool = True
    doc: Text

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Every shape that is taken, the usual one first."""
        return (self.shape, *self.also)


class Output(Model):
    name: Name
    type: Name
    like: Name | None = None
    shape: Shape | None = None
    order_of: Name | None = None
    optional: bool = False
    default: bool = True
    appended: bool = False
    doc: Text


class Attribute(Model):
    type: Literal["int", "float", "string", "ints", "type"]
    required: bool = False
    default: Annotated[int | float | str, _choice("a number or text")] | None = None
    allowed: tuple[Annotated[Name | int, _choice("a name or a whole number")], ...] = ()
    minimum: Annotated[int | float, _choice("a number")] | None = None
    per: Name | None = None
    times: Annotated[int, Field(ge=1)] = 1
    axis_of: Name | None = None
    binds: Name | None = None
    doc: Text


Size = Annotated[int, Field(ge=0)]
Sizes = Annotated[Size | tuple[Size, ...], _choice("a size or a list of sizes, 0 or more")]
Value = Annotated[int | float | str | tuple[int, ...], _choice("a number, text or a list of ints")]


class Example(Model):
    """One size of the problem: every axis, and the attributes that are not at their default."""

    axes: Annotated[dict[Name, Sizes], frozen_mapping]
    attributes: Annotated[dict[Name, Value], frozen_mapping] = Field(default={}, validate_default=True)


class Operator(Model):
    """The contract of one operator."""

    domain: Text
    since_version: Annotated[int, Field(ge=1)]
    until_version: Annotated[int, Field(ge=1)] | None = None
    family: Name
    doc: Text
    types: Annotated[dict[Name, Text], frozen_mapping]
    combinations: Annotated[tuple[Annotated[dict[Name, TypeName], frozen_mapping], ...], some]
    axes: Annotated[dict[Name, Axis], frozen_mapping]
    inputs: Annotated[tuple[Input, ...], some]
    outputs: Annotated[tuple[Output, ...], some]
    attributes: Annotated[dict[Name, Attribute], frozen_mapping]
    in_place: tuple[Annotated[dict[Name, Name], frozen_mapping], ...] = ()
    providers: Annotated[dict[Name, Annotated[tuple[Module, ...], some]], some, frozen_mapping]
    examples: Annotated[tuple[Example, ...], some]
    benchmarks: Annotated[tuple[Example, ...], some]

    @property
    def in_place_pairs(self) -> frozenset[tuple[str, str]]:
        """The (input, output) pairs that may share one array."""
        return frozenset(pair for each in self.in_place for pair in each.items())

    def inputs_of(self, axes: Collection[str]) -> tuple[Input, ...]:
        """The usual inputs of a call in which these axes have sizes: all but optional ones with another axis, or that
        are not given by default.
        """
        return tuple(
            each
            for each in self.inputs
            if not each.optional or (each.default and all(axis_of(token) in axes for token in each.shape))
        )

    @property
    def data_types(self) -> tuple[str, ...]:
        """The types of the first input in the order of the combinations, each once."""
        variable = self.inputs[0].type
        return tuple(dict.fromkeys(row[variable] for row in self.combinations))
