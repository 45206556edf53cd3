"""The size of an axis that follows from others, as registry.yaml says it: groups, C/groups, 2*F, ceil(bits/32)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Any, NamedTuple, cast

from gradkern.errors import ShapeError

_TERM = "([A-Za-z][A-Za-z0-9_]*|[1-9][0-9]*)"
EXPRESSION = rf"^(?:{_TERM}(?:[*/]{_TERM}|(?:\+{_TERM})+)?|ceil\({_TERM}/{_TERM}\))$"
EXPECTED_EXPRESSION = "A, A*B, A/B, ceil(A/B) or A+B+C of axes, attributes and whole numbers from 1 on"


def product(size: Any) -> int:
    """Of the sizes of a group of axes; a single size itself."""
    return prod(cast(tuple[int, ...], size)) if isinstance(size, tuple) else size


class Expression(NamedTuple):
    """A single term, or terms with a sign between them; a group of axes counts as the product of its sizes. rounded:
    up; otherwise a remainder is an error.
    """

    text: str
    terms: tuple[str | int, ...]
    sign: str | None
    rounded: bool

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each for each in self.terms if isinstance(each, str))

    def size(self, known: Mapping[str, Any]) -> Any:
        """The size: an int, or of the name of a list of sizes alone these; None where a name has no value yet.

        Raises ShapeError for a quotient that is not whole.
        """
        values = [known.get(each) if isinstance(each, str) else each for each in self.terms]
        if None in values:
            return None
        if self.sign is None:
            return values[0]
        numbers = [*map(product, values)]
        if self.sign != "/":
            return sum(numbers) if self.sign == "+" else prod(numbers)
        first, second = numbers
        if self.rounded and second:
            return -(-first // second)
        if not second or first % second:
            raise ShapeError(f"{self.text} is {first}/{second}; expected a whole number")
        return first // second


@cache
def expression(text: str) -> Expression:
    """The meaning of a text that EXPRESSION matches."""
    rounded = text.startswith("ceil(")
    terms = re.findall(_TERM, text.removeprefix("ceil") if rounded else text)
    sign = next((each for each in "+*/" if each in text), None)
    return Expression(text, tuple(int(each) if each.isdigit() else each for each in terms), sign, rounded)
