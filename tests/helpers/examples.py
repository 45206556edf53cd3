"""The calls that every operator is tested with: all its types on all its examples in the registry."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import permutations, product
from typing import Any, TypeVar

import numpy as np
import pytest

import gradkern
from gradkern.cli.sizes import named
from gradkern.contract.samples import inputs_of
from gradkern.contract.schema import Example, Operator
from helpers.covers import cover

OPERATORS = gradkern.operators()
GRADIENTS = tuple(name for name in OPERATORS if "Grad" in name)
IN_PARTS = tuple(name for name in OPERATORS if name.endswith("Statistics"))
"""The steps of a batch norm over a batch in parts."""
LOSSES = tuple(name for name in OPERATORS if name.endswith("CrossEntropy") and OPERATORS[name].domain == "gradkern")
"""Those whose outputs are a loss and its gradients: tests/ops/cross_entropy has their finite differences."""
PLAIN = tuple(
    name for name in OPERATORS if OPERATORS[name].family in ("scaling", "finite") or name.startswith(("Flatten", "Pad"))
)
"""Those that have no gradients of their own."""
FORWARD = tuple(name for name in OPERATORS if name not in (*GRADIENTS, *IN_PARTS, *LOSSES, *PLAIN))
"""The operators whose gradients others are."""
MASKS = {"bool", "uint32"}

Part = TypeVar("Part")


def cases(types: str = "all", names: Iterable[str] = OPERATORS) -> Iterator[object]:
    for name in names:
        operator = OPERATORS[name]
        for row, marks in rows(operator):
            if types != "all" and _floats(row) != {types}:
                continue
            for example in operator.examples:
                yield pytest.param(name, operator, row, example, id=_label(name, row, example), marks=marks)


def rows(operator: Operator) -> Iterator[tuple[Mapping[str, str], list[pytest.MarkDecorator]]]:
    """Every combination of types of arrays with its marks. Of those that mix types of data, as few stand for all, but
    with --long, as have each type of each array where another's is the same and where it is not: on the CPU each makes
    a kernel of its own, of the same code, whose elements are loaded and stored by the same functions.
    """
    arrays = {each.type for each in (*operator.inputs, *operator.outputs) if not getattr(each, "is_scalar", False)}
    found = {tuple(row[key] for key in row if key in arrays): row for row in reversed(operator.combinations)}
    every = [row for row in operator.combinations if row in found.values()]
    mixed = [row for row in every if len({row[key] for key in arrays - {"U"}} - MASKS) > 1]
    pairs = list(permutations(sorted(arrays), 2))
    taken = list(cover(mixed, [[(row[one], row[one] == row[other]) for one, other in pairs] for row in mixed], 1))
    for row in every:
        marks = [] if _is_float32(row) else [pytest.mark.thorough]
        if row in mixed and row not in taken[::2]:
            marks.append(pytest.mark.every_kernel if row in taken else pytest.mark.slow)
        yield row, marks


def cases_with(parts: Callable[[Operator], Iterable[Part]]) -> Iterator[object]:
    """The same with each of some parts of the operator. On the CPU each makes a kernel of its own for each combination
    of types: float32 has them all, and one part of one other combination stands for the rest, which --long adds: what
    is computed does not depend on the types, and elements are loaded and stored by the same functions. Operators take
    turns in the types of their data.
    """
    for number, (name, operator) in enumerate(OPERATORS.items()):
        found = list(parts(operator))
        others = [row for row in operator.combinations if not _is_float32(row)]
        first = {others[place][operator.data.type]: place for place in reversed(range(len(others)))}
        chosen = sorted(first.values())[number % len(first)], number % max(1, len(found))
        for place, row in enumerate([*others, *(row for row in operator.combinations if _is_float32(row))]):
            for example, (turn, part) in product(operator.examples, enumerate(found)):
                marks = [] if _is_float32(row) else [pytest.mark.thorough]
                if marks and (place, turn) != chosen:
                    marks.append(pytest.mark.slow)
                label = f"{_label(name, row, example)}-{part}"
                yield pytest.param(name, operator, row, example, part, id=label, marks=marks)


def _floats(row: Mapping[str, str]) -> set[str]:
    """All types of a combination; those of masks do not count, nor those of indices where they are the usual one."""
    return set(row.values()) - {"int64", *MASKS}


def in_turn(kinds: Iterable[tuple[Any, ...]], types: Sequence[tuple[Any, ...]], orders: Sequence[Any]) -> list[Any]:
    """Parameters of a test, of each kind of a kernel: the first type in every order of memory, and each other type in
    one of them, in turn. --long has all.
    """
    return [
        pytest.param(
            *kind, *each, order, marks=() if not place or (number + place) % len(orders) == spot else pytest.mark.slow
        )
        for number, kind in enumerate(kinds)
        for place, each in enumerate(types)
        for spot, order in enumerate(orders)
    ]


def _is_float32(row: Mapping[str, str]) -> bool:
    return _floats(row) == {"float32"}


def _label(name: str, row: Mapping[str, str], example: Example) -> str:
    return f"{name}-{'-'.join(row.values())}-{named(example)}".replace(" ", "-")


def sample(operator: Operator, row: Mapping[str, str], example: Example, seed: int = 0) -> dict[str, np.ndarray]:
    return inputs_of(operator, row, example, np.random.default_rng(seed))


def attributes_of(operator: Operator, row: Mapping[str, str], example: Example) -> dict[str, object]:
    binding = {key: row[each.binds] for key, each in operator.attributes.items() if each.binds}
    return {**binding, **example.attributes}


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def every_output(operator: Operator) -> tuple[str, ...]:
    return tuple(each.name for each in operator.outputs)
