"""As few cases as have every part, or every pair of parts, that all of a product have."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from itertools import combinations, product
from typing import Any, TypeVar

import pytest

__all__ = ["cover", "pairwise"]

Case = TypeVar("Case")


def cover(
    cases: Iterable[Case], parts: Iterable[Iterable[Hashable]], size: int, had: Iterable[Iterable[Hashable]] = ()
) -> Iterator[Case]:
    """The least of `cases`, by a greedy choice, that have all combinations of `size` parts.

    parts  of each case: two parts are the same only in the same place
    had    parts of cases that there are anyway
    """
    of_each = [(case, _combined(each, size)) for case, each in zip(cases, parts, strict=True)]
    missing = (
        set[Hashable]().union(*(found for _, found in of_each)).difference(*(_combined(each, size) for each in had))
    )
    while missing:
        best, found = max(of_each, key=lambda each: len(each[1] & missing))
        missing -= found
        yield best


def pairwise(*parts: Iterable[Hashable]) -> list[Any]:
    """Parameters of a test: of the product of these parts as few as have every pair of them; --long has all."""
    cases = list(product(*parts))
    taken = set(cover(cases, cases, 2))
    return [pytest.param(*each, marks=() if each in taken else pytest.mark.slow) for each in cases]


def _combined(parts: Iterable[Hashable], size: int) -> set[Hashable]:
    return {*combinations(enumerate(parts), size)}
