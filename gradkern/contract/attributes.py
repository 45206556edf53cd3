"""The values of a call's attributes: of the contract's type, within its bounds, with its defaults filled in."""

from __future__ import annotations

import numbers
import operator as operators
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import numpy as np

from gradkern.contract.schema import Attribute, Operator
from gradkern.errors import AttributeValueError, nearest, shown


def attribute_values(operator: Operator, given: Mapping[str, Any], overridden: Collection[str] = ()) -> dict[str, Any]:
    """Every attribute of the contract: the given value as a plain Python one, else the default, else None; None for one
    that an input overrides.
    """
    values: dict[str, Any] = {}
    for name, attribute in operator.attributes.items():
        value = given.get(name)
        if name in overridden:
            values[name] = None
        elif value is not None:
            values[name] = _value(name, attribute, value)
        elif attribute.required:
            raise AttributeValueError(f"attribute {name} is missing; it has no default ({attribute.doc})")
        else:
            values[name] = None if attribute.type == "type" else attribute.default
    return values


def _value(name: str, attribute: Attribute, value: Any) -> Any:
    match attribute.type:
        case "int":
            return _allowed(name, attribute, bounded(f"attribute {name}", attribute, _integer(name, value, "an int")))
        case "float":
            return bounded(f"attribute {name}", attribute, _real(name, value, "a float"))
        case "ints" | "floats":
            if isinstance(value, np.ndarray):
                value = value.tolist()
            expected = f"a list of {attribute.type}"
            if not isinstance(value, list | tuple):
                raise AttributeValueError(
                    f"attribute {name} is {shown(value)}; expected {expected}{_number(attribute)}"
                )
            values, number = cast(Sequence[Any], value), _integer if attribute.type == "ints" else _real
            return tuple(bounded(f"attribute {name}", attribute, number(name, each, expected)) for each in values)
        case "string":
            if not isinstance(value, str):
                raise AttributeValueError(f"attribute {name} is {shown(value)}; expected a string")
            return _allowed(name, attribute, value)
        case "type":
            return _type_name(name, value)


def _number(attribute: Attribute) -> str:
    """Check the number of a list's values, and the values."""
    if attribute.per is None:
        return ""
    each = "one" if attribute.times == 1 else str(attribute.times)
    return f", {each} for every {attribute.per} dimension: {attribute.doc}"


def _integer(name: str, value: Any, expected: str) -> int:
    if isinstance(value, bool | np.bool_):
        raise AttributeValueError(f"attribute {name} is {shown(value)}; expected {expected}")
    try:
        number = operators.index(value)
    except Exception as error:  # of the value's own, too
        raise AttributeValueError(f"attribute {name} is {shown(value)}; expected {expected}") from error
    if not -(1 << 63) <= number < 1 << 63:
        raise AttributeValueError(f"attribute {name} is {shown(number)}; expected {expected} of 64 bits")
    return number


def _real(name: str, value: Any, expected: str) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise AttributeValueError(f"attribute {name} is {shown(value)}; expected {expected}")
    try:
        return float(value)
    except OverflowError:
        raise AttributeValueError(f"attribute {name} is an int too large for a float") from None
    except Exception as error:  # of the value's own
        raise AttributeValueError(f"attribute {name} is {shown(value)}; expected {expected}") from error


def bounded(what: str, attribute: Attribute, value: Any) -> Any:
    """The value. Raises AttributeValueError where it is outside the attribute's bounds; what: whose it is."""
    if attribute.minimum is not None and not value >= attribute.minimum:  # `not >=` refuses NaN too
        raise AttributeValueError(f"{what} has the value {shown(value)}; the least allowed is {attribute.minimum!r}")
    if attribute.below is not None and not value < attribute.below:
        raise AttributeValueError(f"{what} has the value {shown(value)}; expected less than {attribute.below!r}")
    return value


def _allowed(name: str, attribute: Attribute, value: Any) -> Any:
    if attribute.allowed and value not in attribute.allowed:
        words = [str(each) for each in attribute.allowed]
        hint = nearest(value, words) if isinstance(value, str) else ""
        raise AttributeValueError(f"attribute {name} is {shown(value)}{hint}; allowed are {', '.join(words)}")
    return value


def _type_name(name: str, value: Any) -> str:
    """The registry's name of a type given as a name, a NumPy type, or another library's (torch.float16)."""
    text = str(value).removeprefix("torch.")
    try:
        return np.dtype(text if text in ("float16", "float32", "float64") else value).name
    except (TypeError, ValueError, SyntaxError):  # NumPy parses what looks like a list of types
        if text == "bfloat16":
            return text
        raise AttributeValueError(f"attribute {name} is {shown(value)}; expected the name of a type") from None


def dimension(name: str, value: int, of: str, rank: int) -> int:
    """An axis attribute counted from the front."""
    if not -rank <= value < rank:
        span = f"allowed are {-rank} to {rank - 1}" if rank else "it has no axis"
        raise AttributeValueError(f"attribute {name} is {value}, but input {of} has rank {rank}; {span}")
    return value % rank


def per_dimension(operator: Operator, values: dict[str, Any], axes: Mapping[str, Any]) -> None:
    """Give lists their length: one value (or `times` of them) for every dimension of a group of axes."""
    for name, attribute in operator.attributes.items():
        if attribute.per is None or values[name] is None:
            continue
        rank = len(axes[attribute.per])
        if isinstance(values[name], int | float):
            values[name] = (values[name],) * (rank * attribute.times)
        elif len(values[name]) != rank * attribute.times:
            each = "one" if attribute.times == 1 else str(attribute.times)
            raise AttributeValueError(
                f"attribute {name} has {len(values[name])} values, {values[name]}; "
                f"expected {rank * attribute.times}, {each} for every one of the {rank} {attribute.per} dimensions"
                f": {attribute.doc}"
            )
