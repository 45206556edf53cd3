"""The plan cache: one plan for each signature, bounded, counted, shared by threads."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.calls import FakePlan, FakeProvider, arguments, run_any

import gradkern
from gradkern import ArgumentError, ShapeError, plan_cache
from gradkern.dispatch.plan_cache import PlanCache, Statistics

GELU, LAYER = "BiasGeluGrad_dX", "LayerNormalizationGrad"


def gelu(**changes: Any) -> Any:
    return gradkern.run(GELU, **arguments(GELU, **changes))


def zeros(rows: int, columns: int = 40, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros((rows, columns), dtype)


def shape(rows: int) -> dict[str, np.ndarray]:
    return {"dY": zeros(rows), "X": zeros(rows)}


def over(name: str) -> Any:
    array = zeros(6)
    return gelu(**{name: array}, out={"dX": array})


# --- what a signature is ---------------------------------------------------------------------------------------------


def test_the_same_signature_is_planned_once(provider: FakeProvider) -> None:
    for _ in range(3):
        gelu()
    gradkern.run(GELU, *arguments(GELU).values())
    assert len(provider.calls) == 1
    assert plan_cache.statistics()[:3] == (3, 1, 1)


SIGNATURES: dict[str, Callable[[], Any]] = {
    "shape": lambda: gelu(**shape(7)),
    "strides": lambda: gelu(X=np.zeros((40, 6), np.float32).T),
    "type": lambda: gelu(**{key: array.astype(np.float64) for key, array in arguments(GELU).items()}),
    "alignment": lambda: gelu(B=np.zeros(161, np.uint8)[1:].view(np.float32)),
    "wanted outputs": lambda: gelu(outputs=["dX", "dB"]),
    "out": lambda: gelu(out={"dX": zeros(6)}),
    "in place": lambda: over("X"),
    "in place over another input": lambda: over("dY"),
    "provider": lambda: gelu(provider="cpu"),
    "policy": lambda: gelu(policy={"search": "default"}),
    "operator": lambda: gradkern.run("BiasFastGeluGrad_dX", **arguments(GELU)),
}


def test_each_part_of_a_signature_makes_a_plan_of_its_own(provider: FakeProvider) -> None:
    gelu()
    for number, call in enumerate(SIGNATURES.values(), 2):
        for _ in range(2):
            call()
        assert len(provider.calls) == number
    assert plan_cache.statistics()[:3] == (len(SIGNATURES), len(SIGNATURES) + 1, len(SIGNATURES) + 1)


def test_attributes_are_part_of_the_signature(provider: FakeProvider) -> None:
    square = {key: np.ones((3, 3), np.float32) for key in ("Y_grad", "X")}
    ones = {key: np.ones(3, np.float32) for key in ("scale", "mean", "inv_std_dev")}
    run_any(LAYER, **square, **ones)
    run_any(LAYER, **square, **ones, axis=1)
    with pytest.raises(ShapeError):
        run_any(LAYER, **square, **ones, axis=0)
    assert [call.attributes["axis"] for call in provider.calls] == [1, 1]


def test_a_refused_call_leaves_no_plan(provider: FakeProvider) -> None:
    for _ in range(2):
        with pytest.raises(ShapeError):
            gelu(X=zeros(5))
        with pytest.raises(ArgumentError):
            gelu(axis=1)
    assert plan_cache.statistics()[:3] == (0, 2, 0)


def test_clear_forgets_plans_and_statistics(provider: FakeProvider) -> None:
    gelu()
    gelu()
    plan_cache.clear()
    assert plan_cache.statistics() == Statistics(hits=0, misses=0, size=0, bound=1024)
    gelu()
    assert len(provider.calls) == 2


# --- the bound -------------------------------------------------------------------------------------------------------


def test_the_least_recently_used_plan_leaves_first() -> None:
    cache: PlanCache[str] = PlanCache(bound=2)
    cache.put("a", "plan a")
    cache.put("b", "plan b")
    assert cache.get("a") == "plan a"
    cache.put("c", "plan c")
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == ("plan a", None, "plan c")
    assert cache.statistics() == Statistics(hits=3, misses=1, size=2, bound=2)


def test_a_peek_is_not_counted() -> None:
    cache: PlanCache[str] = PlanCache(bound=2)
    cache.put("a", "plan a")
    assert (cache.peek("a"), cache.peek("b")) == ("plan a", None)
    assert cache.statistics()[:2] == (0, 0)


def test_a_plan_put_again_takes_no_second_place() -> None:
    cache: PlanCache[str] = PlanCache(bound=2)
    for entry in ("old", "new"):
        cache.put("a", entry)
    assert cache.statistics().size == 1
    assert cache.get("a") == "new"


def test_more_signatures_than_the_bound_stay_within_it(provider: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_cache, "_bound", 5)
    for rows in range(8):
        gelu(**shape(rows))
    assert plan_cache.statistics().size == 5
    gelu(**shape(7))
    assert len(provider.calls) == 8
    gelu(**shape(0))
    assert len(provider.calls) == 9


# --- threads ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def slow(provider: FakeProvider) -> FakeProvider:
    """Planning takes long enough for every thread to ask meanwhile."""
    provider.seconds = 0.002
    return provider


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run work(0), work(1), ... at once; raise what any of them raises."""
    start = threading.Barrier(count)
    errors: list[BaseException] = []

    def begin(number: int) -> None:
        try:
            start.wait(10)
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_threads_that_ask_for_one_signature_at_once_share_one_plan(slow: FakeProvider) -> None:
    plans: list[Any] = [None] * 16

    def prepare(number: int) -> None:
        plans[number] = gradkern.prepare(GELU, **arguments(GELU))

    in_threads(16, prepare)
    assert len(slow.calls) == 1
    assert all(plan is plans[0] for plan in plans)


def test_threads_plan_every_signature_once_and_get_their_own_results(slow: FakeProvider) -> None:
    def work(number: int) -> None:
        for step in range(40):
            rows = (number + step) % 10
            result = gelu(**shape(rows), outputs=["dX", "dB"])
            assert result.dX.shape == (rows, 40)
            assert (result.dX == 1).all()
            assert (result.dB == 2).all()

    in_threads(8, work)
    assert Counter(call.inputs["X"].shape[0] for call in slow.calls) == dict.fromkeys(range(10), 1)
    statistics = plan_cache.statistics()
    assert statistics.size == 10
    assert statistics.hits + statistics.misses == 8 * 40


def test_threads_may_clear_the_cache_while_others_use_it(slow: FakeProvider) -> None:
    def work(number: int) -> None:
        for step in range(30):
            if number == 0:
                plan_cache.clear()
            else:
                assert gelu(**shape(step % 3)).dX.shape == (step % 3, 40)

    in_threads(6, work)
    assert plan_cache.statistics().size <= 3


def test_a_provider_may_run_operators_while_it_plans(provider: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that times kernels may use gradkern itself: planning does not wait for its own thread."""
    plan = provider.plan

    def searching(call: Any) -> FakePlan:
        if call.operator == GELU:
            gradkern.run(LAYER, **arguments(LAYER))
        return plan(call)

    monkeypatch.setattr(provider, "plan", searching)
    gelu()
    assert [call.operator for call in provider.calls] == [LAYER, GELU]


@pytest.mark.parametrize("name", list(gradkern.operators()))
def test_threads_that_run_one_operator_at_once_get_the_bits_that_one_alone_gets(
    name: str, empty_plan_cache: None
) -> None:
    given = arguments(name)
    alone = run_any(name, **given)
    plan_cache.clear()

    def work(number: int) -> None:
        for _ in range(5):
            for one, other in zip(run_any(name, **given), alone, strict=True):
                np.testing.assert_array_equal(one, other)

    in_threads(6, work)
    assert plan_cache.statistics().size == 1
