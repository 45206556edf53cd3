"""A registry of toy operators in place of gradkern's own, and a provider that computes them in NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import gradkern
import gradkern.ops
from gradkern import ShapeError
from gradkern.contract import reading, registry, request
from gradkern.contract.examples import complete
from gradkern.contract.samples import inputs_of
from gradkern.contract.schema import Axis, Example, Operator

__all__ = ["TOYS", "examples", "toy_arguments", "toys"]

FOLDER = Path(__file__).parent / "toy_ops"
PATH = [*gradkern.ops.__path__, str(FOLDER)]


@cache
def _read() -> Mapping[str, Operator]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gradkern.ops, "__path__", PATH)
        return reading.read((FOLDER / "registry.yaml").read_text())


TOYS = _read()


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch, empty_plan_cache: None) -> Iterator[Mapping[str, Operator]]:
    """The toy operators, by name: while the test runs, gradkern has these alone."""
    monkeypatch.setattr(registry, "_contracts", lambda data: TOYS)
    monkeypatch.setattr(request, "_binders", {})
    monkeypatch.setattr(gradkern.ops, "__path__", PATH)
    registry.operators.cache_clear()
    yield TOYS
    registry.operators.cache_clear()


def toy_arguments(
    name: str, example: Example | None = None, types: Mapping[str, str] | None = None, **changes: Any
) -> dict[str, Any]:
    """Inputs and attributes of an example, the first of its operator if none is named, with these changes."""
    operator = TOYS[name]
    size = operator.examples[0] if example is None else example
    inputs = inputs_of(operator, types or operator.combinations[0], size, np.random.default_rng(0))
    return {**inputs, **size.attributes, **changes}


@st.composite
def examples(draw: st.DrawFn, operator: Operator) -> Example:
    """An example of any sizes, and of any rank where no attribute counts dimensions."""
    model = draw(st.sampled_from(operator.examples))
    counted = any(each.axis_of or each.per for each in operator.attributes.values())
    axes: dict[str, Any] = {}
    for name in (each for each, axis in operator.axes.items() if axis.equals is None and each in model.axes):
        axis, before = operator.axes[name], model.axes[name]
        if not isinstance(before, tuple):
            axes[name] = draw(st.integers(0, 5))
        elif axis.broadcasts_to is not None:
            axes[name] = draw(_broadcast(axes[axis.broadcasts_to], axis))
        else:
            rank = len(before) if counted else draw(st.integers(axis.least, axis.most or 3))
            other = axes.get(axis.as_many_as or "")
            rank = rank if other is None else len(other) if isinstance(other, tuple) else other
            axes[name] = tuple(draw(st.lists(st.integers(0, 4), min_size=rank, max_size=rank)))
    try:
        return complete(operator, Example(axes=axes, attributes=dict(model.attributes)))
    except ShapeError:  # a quotient that is not whole
        return model


def _broadcast(whole: tuple[int, ...], axis: Axis) -> st.SearchStrategy[tuple[int, ...]]:
    lengths = st.just(len(whole)) if axis.as_many_as else st.integers(0, len(whole))
    tails = lengths.map(lambda length: whole[len(whole) - length :])
    return tails.flatmap(lambda tail: st.tuples(*[st.sampled_from([1, size]) for size in tail]))
