"""Searches that are put off: calls return at once, tune() searches, and plans that are there get what it finds."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from helpers.calls import OPERATORS, arguments

import gradkern
from gradkern.call import Call
from gradkern.dispatch.plan_cache import PendingSearches, pending
from gradkern.errors import ProviderError
from gradkern.system import providers

GELU = "BiasGeluGrad_dX"
EXHAUSTIVE = {"search": "exhaustive"}


class SearchedPlan:
    scratch = 0

    def __init__(self, call: Call) -> None:
        self.provisional = call.policy.search == "background"
        self.kernel = "first" if self.provisional else "fastest"

    def __call__(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...], stream: Any) -> None:
        for output in outputs:
            output[...] = 1 if self.provisional else 2


class SearchingProvider:
    """A provider that searches unless the policy puts that off."""

    def __init__(self) -> None:
        self.searches: list[str] = []
        self.fault = ""

    def plan(self, call: Call) -> SearchedPlan:
        self.searches.append(call.policy.search)
        if self.fault and call.policy.search == "exhaustive":
            raise ProviderError(self.fault)
        return SearchedPlan(call)


@pytest.fixture
def searching(monkeypatch: pytest.MonkeyPatch, empty_plan_cache: None) -> Iterator[SearchingProvider]:
    fake = SearchingProvider()
    for module in OPERATORS[GELU].providers["cpu"]:
        monkeypatch.setitem(sys.modules, f"gradkern.ops.{OPERATORS[GELU].family}.{module}", fake)
    yield fake
    for plan in pending.plans():
        pending.discard(plan)


def result(**changes: Any) -> float:
    return float(gradkern.run(GELU, **arguments(GELU), **changes).dX.flat[0])


def test_in_the_background_a_call_waits_for_no_search_and_tune_makes_it(searching: SearchingProvider) -> None:
    assert (result(), searching.searches) == (1, ["background"])
    assert gradkern.tune().plans == 1
    assert (result(), searching.searches) == (2, ["background", "exhaustive"])
    assert gradkern.tune().plans == 0


def test_what_the_searches_compile_is_compiled_together_before_the_first(
    searching: SearchingProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead: list[tuple[int, str]] = []

    class Ahead:
        def for_plans(self, plans: list[Any], device: str, show: Any = None) -> int:
            for plan in plans:
                plan()
            ahead.append((len(plans), device))
            return len(plans)

    modules: dict[str, Any] = sys.modules
    monkeypatch.setitem(modules, "fake_ahead", Ahead())
    cpu = replace(providers.PROVIDERS["cpu"], compile_ahead="fake_ahead")
    monkeypatch.setattr(providers, "PROVIDERS", {**providers.PROVIDERS, "cpu": cpu})
    result()
    assert gradkern.tune().plans == 1
    assert ahead == [(1, "cpu")]
    assert searching.searches == ["background", "exhaustive", "exhaustive"]
    assert gradkern.tune().plans == 0
    assert ahead == [(1, "cpu")]


def test_a_prepared_plan_gets_what_tune_finds(searching: SearchingProvider) -> None:
    plan = gradkern.prepare(GELU, **arguments(GELU))
    assert (plan.kernel, plan.provisional) == ("first", True)
    before = plan.plan
    gradkern.tune()
    assert (plan.kernel, plan.provisional) == ("fastest", False)
    assert before in plan._replaced  # a captured graph may have its kernels
    assert float(plan(**arguments(GELU)).dX.flat[0]) == 2


def test_a_step_within_tune_is_not_held_up_in_any_thread_whatever_the_policy(searching: SearchingProvider) -> None:
    seen: list[float] = []
    with gradkern.tune() as tuning:
        thread = threading.Thread(target=lambda: seen.append(result(policy=EXHAUSTIVE)))
        thread.start()
        thread.join()
        assert (seen, searching.searches) == ([1.0], ["background"])
    assert tuning.plans == 1
    assert (result(policy=EXHAUSTIVE), searching.searches) == (2, ["background", "exhaustive"])
    assert gradkern.recorded()[0]["policy"] == EXHAUSTIVE


def test_after_tune_calls_search_again_as_the_policy_says(searching: SearchingProvider) -> None:
    with gradkern.tune():
        pass
    assert (result(policy=EXHAUSTIVE), searching.searches) == (2, ["exhaustive"])


def test_a_step_that_fails_is_not_followed_by_searches(searching: SearchingProvider) -> None:
    def step() -> None:
        with gradkern.tune():
            result()
            raise KeyError

    with pytest.raises(KeyError):
        step()
    assert searching.searches == ["background"]
    assert gradkern.tune().plans == 1


def test_a_search_that_fails_leaves_the_plan_as_it_is_with_a_warning(searching: SearchingProvider) -> None:
    result()
    searching.fault = "no memory"
    with pytest.warns(RuntimeWarning, match=rf"{GELU} is not tuned: {GELU}: no memory"):
        assert gradkern.tune().plans == 0
    assert result() == 1


@pytest.mark.parametrize("search", ["default", "exhaustive"])
def test_other_policies_leave_nothing_to_tune(searching: SearchingProvider, search: str) -> None:
    result(policy={"search": search})
    assert (pending.plans(), searching.searches) == ([], [search])


def test_of_too_many_plans_the_oldest_are_forgotten() -> None:
    few: PendingSearches = PendingSearches(bound=2)
    plans: list[Any] = [object(), object(), object()]
    for each in plans:
        few.add(each)
    assert few.plans() == plans[1:]
