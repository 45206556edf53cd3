"""The calls that every operator is tested with: all its types on all its examples in the registry."""

from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from samples import inputs_of

import gradkern
from gradkern.cli.sizes import named
from gradkern.contract.schema import Example, Operator

OPERATORS = gradkern.operators()
GRADIENTS = tuple(name for name in OPERATORS if "Grad" in name)
FORWARD = tuple(name for name in OPERATORS if name not in GRADIENTS)
"""The operators whose gradients others are."""


def cases(types: str = "all", names: Iterable[str] = OPERATORS) -> Iterator[object]:
    for name in names:
        operator = OPERATORS[name]
        for row in operator.combinations:
            if types != "all" and set(row.values()) != {types}:
                continue
            for example in operator.examples:
                label = f"{name}-{'-'.join(row.values())}-{named(example)}".replace(" ", "-")
                marks = () if set(row.values()) == {"float32"} else pytest.mark.thorough
                yield pytest.param(name, operator, row, example, id=label, marks=marks)


def sample(operator: Operator, row: dict[str, str], example: Example, seed: int = 0) -> dict[str, np.ndarray]:
    return inputs_of(operator, row, example, np.random.default_rng(seed))


def attributes_of(operator: Operator, row: dict[str, str], example: Example) -> dict[str, object]:
    binding = {key: row[each.binds] for key, each in operator.attributes.items() if each.binds}
    return {**binding, **example.attributes}


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def every_output(operator: Operator) -> tuple[str, ...]:
    return tuple(each.name for each in operator.outputs)
