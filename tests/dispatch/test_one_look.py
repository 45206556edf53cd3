"""Each array is looked at once: what a plan is made from, and cached under, is what runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.calls import FakeProvider

import gradkern
from gradkern import plan_cache
from gradkern.dispatch import planner, run

GELU = "BiasGeluGrad_dX"


class Changing:
    """An array that says another shape, of as many elements, each time it is looked at."""

    def __init__(self, *shapes: tuple[int, ...]) -> None:
        self._arrays = [np.full(shape, 3, np.float32) for shape in shapes]
        self.looks = 0

    @property
    def __array_interface__(self) -> Any:
        self.looks += 1
        return self._arrays[(self.looks - 1) % len(self._arrays)].__array_interface__


class Exporting(Changing):
    """The same by DLPack."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **_: Any) -> Any:
        self.looks += 1
        return self._arrays[(self.looks - 1) % len(self._arrays)].__dlpack__()


def planned(provider: FakeProvider) -> list[tuple[Any, ...]]:
    """Of each plan, the shapes it was made for and those that it got."""
    return [
        (call.inputs["X"].shape, [each.shape for each in inputs[:2]])
        for call, plan in zip(provider.calls, provider.plans, strict=True)
        for inputs, _, _ in plan.runs
    ]


@pytest.mark.parametrize("kind", [Changing, Exporting])
def test_an_array_that_changes_between_looks_leaves_no_plan_under_another_signature(
    provider: FakeProvider, kind: type[Changing]
) -> None:
    shapes = [(20, 30), (40, 15), (1, 600), (600, 1)]
    for shape in shapes:
        row = np.ones(shape[-1], np.float32)
        for first in shapes:
            x = kind(first, *shapes)
            one = gradkern.prepare if first == shape else gradkern.run
            try:
                one(GELU, x, x, row)
            except gradkern.ShapeError:
                continue
    for made, got in planned(provider):
        assert got == [made, made]
    provider.calls.clear()
    for shape in shapes:  # what innocent callers get is of their own shapes
        x = np.ones(shape, np.float32)
        assert gradkern.run(GELU, x, x, x[0]).dX.shape == shape
        assert gradkern.prepare(GELU, x, x, x[0]).call.inputs["X"].shape == shape


@pytest.mark.parametrize("kind", [Changing, Exporting])
def test_a_first_call_looks_at_each_array_as_often_as_later_ones(provider: FakeProvider, kind: type[Changing]) -> None:
    x, row = kind((2, 3)), np.ones(3, np.float32)
    first, later = gradkern.prepare(GELU, x, x, row), gradkern.prepare(GELU, x, x, row)
    assert first is later
    for call in (first, lambda *each: gradkern.run(GELU, *each, out={"dX": np.zeros((2, 3), np.float32)})):
        looks = []
        for _ in range(3):
            x.looks = 0
            call(x, x, row)
            looks.append(x.looks)
        assert len(set(looks)) == 1


@pytest.fixture
def reshaping(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Sets the shape of these arrays, as another thread may, as soon as a signature has been found."""
    arrays: list[np.ndarray] = []
    find = run.signature_of

    def signature_of(*arguments: Any) -> Any:
        signature = find(*arguments)
        for each in arrays:
            each.shape = each.shape[::-1]
        return signature

    monkeypatch.setattr(run, "signature_of", signature_of)
    return arrays


@pytest.mark.parametrize("written", [False, True])
def test_an_array_whose_shape_another_thread_sets_is_computed_as_it_was(
    provider: FakeProvider, reshaping: list[np.ndarray], written: bool
) -> None:
    """In a first call, and in later ones."""
    row = np.ones(30, np.float32)
    for _ in range(3):
        dy, x, dx = (np.ones((20, 30), np.float32) for _ in range(3))
        reshaping[:] = [dy, x, dx]
        gradkern.run(GELU, dy, x, row, out={"dX": dx} if written else None)
        assert x.shape == dx.shape == (30, 20)
    assert planned(provider) == [((20, 30), [(20, 30), (20, 30)])] * 3
    assert [each.shape for _, outputs, _ in provider.plans[0].runs for each in outputs] == [(20, 30)] * 3
    assert plan_cache.statistics()[:3] == (2, 1, 1)


def test_a_prepared_plan_computes_what_it_has_checked(provider: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    x, row = np.ones((20, 30), np.float32), np.ones(30, np.float32)
    plan = gradkern.prepare(GELU, x, x, row)
    check = type(plan)._check

    def checked(*arguments: Any) -> None:
        check(*arguments)
        x.shape = 30, 20

    monkeypatch.setattr(type(plan), "_check", checked)
    plan(x, x, row)
    assert planned(provider) == [((20, 30), [(20, 30), (20, 30)])]
    with pytest.raises(gradkern.ArgumentError, match="input dY has"):
        plan(x, x, row)


def test_real_kernels_are_unharmed_by_a_thread_that_sets_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bits of a call alone, whatever shape another thread sets meanwhile; the plan is made again each time."""
    x, row = np.linspace(-3, 3, 600, dtype=np.float32).reshape(20, 30), np.ones(30, np.float32)
    expected = gradkern.run(GELU, x, x, row).dX
    plan = planner.plan

    def slow(*arguments: Any) -> Any:
        array.shape = 1, 600
        made = plan(*arguments)
        array.shape = 600, 1
        return made

    monkeypatch.setattr(planner, "plan", slow)
    for _ in range(20):
        plan_cache.clear()
        array = x.copy()
        assert np.array_equal(gradkern.run(GELU, array, array, row).dX, expected)
        assert np.array_equal(gradkern.run(GELU, x, x, row).dX, expected)
