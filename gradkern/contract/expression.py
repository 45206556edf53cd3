"""The size of an axis that follows from others, as registry.yaml says it: groups, C/groups, 2*F, ceil(sizes/32)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Any, NamedTuple, cast

from gradkern.errors import ShapeError

__all__ = ["EXPECTED_EXPRESSION", "EXPRESSION", "Expression", "expression", "product"]

_TERM = "([A-Za-z][A-Za-z0-9_]*|[1-9][0-9]*)"
EXPRESSION = rf"^(?:{_TERM}(?:([*/]){_TERM})?|ceil\({_TERM}/{_TERM}\))$"
EXPECTED_EXPRESSION = "A, A*B, A/B or ceil(A/B) of axes, attributes and whole numbers from 1 on"


def product(size: Any) -> int:
    """Of the sizes of a group of axes; a single size itself."""
    return prod(cast(tuple[int, ...], size)) if isinstance(size, tuple) else size


class Expression(NamedTuple):
    """first, or first sign second; a group of axes counts as the product of its sizes. rounded: up; otherwise a
    remainder is an error.
    """

    text: str
    first: str | int
    sign: str | None
    second: str | int
    rounded: bool

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each for each in (self.first, self.second) if isinstance(each, str))

    def size(self, known: Mapping[str, Any]) -> Any:
        """The size: an int, or of the name of a list of sizes alone these; None where a name has no value yet.

        Raises ShapeError for a quotient that is not whole.
        """
        values = [known.get(each) if isinstance(each, str) else each for each in (self.first, self.second)]
        if None in values:
            return None
        if self.sign is None:
            return values[0]
        first, second = map(product, values)
        if self.sign == "*":
            return first * second
        if self.rounded and second:
            return -(-first // second)
        if not second or first % second:
            raise ShapeError(f"{self.text} is {first}/{second}; expected a whole number")
        return first // second


@cache
def expression(text: str) -> Expression:
    """The meaning of a text that EXPRESSION matches."""
    found = re.match(EXPRESSION, text)
    assert found is not None
    first, sign, second, over, under = found.groups()
    if over is not None:
        return Expression(text, _term(over), "/", _term(under), True)
    return Expression(text, _term(first), sign, _term(second or "1"), False)


def _term(text: str) -> str | int:
    return int(text) if text.isdigit() else text
