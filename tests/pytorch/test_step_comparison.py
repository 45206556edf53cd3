"""tune with repeats: an operator is PyTorch's where a step is no longer without gradkern's kernels. Steps take made-up
times, by which kernels have answered in them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest
import torch
from torch.nn import functional

import gradkern.torch
from gradkern import ArgumentError
from gradkern.torch.overrides import ranks, step_comparison, switch
from gradkern.torch.overrides.comparison import Comparison, Cost

pytestmark = pytest.mark.torch

NORM, GELU = "native_layer_norm_backward", "gelu_backward"


class Clock:
    """A clock that only steps move: by `costs` for each operator that gradkern answers in them, and by 10 ms."""

    def __init__(self, **costs: float) -> None:
        self.costs, self.now, self.steps = costs, 0.0, 0

    def __call__(self) -> float:
        return self.now

    def step(self) -> int:
        before = self.taken()
        for _ in range(2):
            x = torch.randn(6, 40, requires_grad=True)
            functional.gelu(functional.layer_norm(x, (40,), torch.ones(40))).square().sum().backward()
        self.now += 0.010 + sum(self.costs[name] for name, count in self.taken().items() if count > before[name])
        self.steps += 1
        return self.steps

    def taken(self) -> dict[str, int]:
        kernels = {each.translation.name: each for each in switch._kernels() if each.key == "CPU"}
        return {name: sum(each.taken.value for each in kernels[name].signatures()) for name in self.costs}


@pytest.fixture(autouse=True)
def _only_steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(switch, "compare", lambda *_: None)  # of single calls, in time that is not made up
    gradkern.torch.forget()
    yield
    gradkern.torch.disable()
    gradkern.torch.forget()


def tuned(monkeypatch: pytest.MonkeyPatch, clock: Clock, repeats: int) -> dict[str, str]:
    """Why operators rest after tune."""
    monkeypatch.setattr(step_comparison, "perf_counter", clock)
    gradkern.torch.enable(devices="cpu", min_bytes=0)
    assert gradkern.torch.tune(clock.step, repeats=repeats) == 1
    return {each.translation.name: each.inactive for each in switch._kernels() if each.inactive}


def test_an_operator_rests_where_steps_are_no_longer_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(**{NORM: 0.002, GELU: -0.001})
    resting = tuned(monkeypatch, clock, repeats=3)
    assert resting == {NORM: "no gain: a step takes 11.00 ms with gradkern's kernels, 9.00 with PyTorch's"}
    assert clock.steps == 1 + 2 * 2 * 4 * (1 + 3)
    before = clock.taken()
    clock.step()
    assert clock.taken() == {NORM: before[NORM], GELU: before[GELU] + 2}
    rows = {row.signature: row.reason for row in gradkern.torch.report()}
    assert sorted(rows.values()) == ["", resting[NORM]]


@pytest.mark.parametrize(("ours", "theirs", "rests"), [(13.4, 13.6, False), (13.6, 13.4, True), (4.0, 5.0, True)])
def test_the_kernels_decide_where_they_take_longer_than_the_host(
    monkeypatch: pytest.MonkeyPatch, ours: float, theirs: float, rests: bool
) -> None:
    """ours, theirs: milliseconds of the kernels of a step that takes the host 10, and 1 more with the norm."""
    clock, done = Clock(**{NORM: 0.001}), 0.0

    def step() -> None:
        nonlocal done
        before, begin = clock.taken(), clock.now
        clock.step()
        done = max(done, begin) + (ours if clock.taken()[NORM] > before[NORM] else theirs) / 1e3

    def synchronize() -> None:
        clock.now = max(clock.now, done)

    monkeypatch.setattr(step_comparison, "synchronize", synchronize)
    monkeypatch.setattr(step_comparison, "perf_counter", clock)
    gradkern.torch.enable("layer_norm", devices="cpu", min_bytes=0)
    gradkern.torch.tune(step, repeats=2)
    before = clock.taken()
    clock.step()
    assert clock.taken() == {NORM: before[NORM] + 2 * (not rests)}


def test_what_rests_does_so_after_disable_and_enable_until_the_next_tune_or_options_that_take_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(**{NORM: 0.002, GELU: -0.001})
    resting = tuned(monkeypatch, clock, repeats=1)
    assert list(resting) == [NORM]
    gradkern.torch.disable()
    with gradkern.torch.enabled(devices="cpu", min_bytes=0):
        before = clock.taken()
        clock.step()
        assert clock.taken() == {NORM: before[NORM], GELU: before[GELU] + 2}
        assert sorted(row.reason for row in gradkern.torch.report()) == ["", resting[NORM]]
    with gradkern.torch.enabled(devices="cpu", min_bytes=0, only_faster=False):
        before = clock.taken()
        clock.step()
        assert clock.taken() == {NORM: before[NORM] + 2, GELU: before[GELU] + 2}
    gradkern.torch.forget()
    assert not any(each.inactive for each in switch._kernels())


def test_without_repeats_no_further_step_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(**{NORM: 0.002, GELU: 0.0})
    assert tuned(monkeypatch, clock, repeats=0) == {}
    assert clock.steps == 1


@pytest.mark.parametrize(
    ("gained", "taken", "others"),
    [(4, True, True), (-1, False, True), (0, False, True), (4, True, False), (-1, False, False)],
)
def test_calls_that_cost_the_host_more_than_they_gain_are_taken_where_steps_are_shorter_with_them(
    monkeypatch: pytest.MonkeyPatch, gained: int, taken: bool, others: bool
) -> None:
    """gained: of a step's 16 units. others: whether the operator has calls that gain in any case; else it rested before
    whole steps were timed.
    """
    unit = 2**-7  # seconds: sums of it are exact
    seconds = [0.0]
    few, many = (3, 40), (9, 40)

    def step() -> None:
        before = {each: each.taken.value for each in kernel.signatures()}
        for shape in (few, many) if others else (few,):
            x = torch.randn(*shape, requires_grad=True)
            functional.layer_norm(x, (40,), torch.ones(40)).square().sum().backward()
        seconds[0] += 16 * unit
        for each, count in before.items():
            if each.taken.value > count:
                seconds[0] -= unit * (gained if each.key[0] == torch.Size(few) else 2)

    def compare(*_: Any) -> None:
        for each in kernel.signatures():
            if each.key[0] == torch.Size(few) and each.run is not None:
                each.comparison = Comparison(Cost(50, 100), Cost(60, 30))
                each.decline(str(each.comparison))
        if not others:
            kernel.deactivate("no gain: gradkern would answer none of a step's calls")

    (kernel,) = [each for each in switch._kernels() if each.translation.name == NORM and each.key == "CPU"]
    monkeypatch.setattr(switch, "compare", compare)
    monkeypatch.setattr(step_comparison, "perf_counter", lambda: seconds[0])
    gradkern.torch.enable(devices="cpu", min_bytes=0)
    gradkern.torch.tune(step, repeats=2)
    reasons = {row.signature.split("]")[0]: row.reason for row in gradkern.torch.report()}
    before = gradkern.torch.report().taken
    step()
    assert gradkern.torch.report().taken - before == others + taken
    assert kernel.override.installed == (others or taken)
    if taken:
        assert set(reasons.values()) == {""}
    elif others:
        assert reasons == {
            "f32[9, 40": "",
            "f32[3, 40": "no gain: gradkern's kernels take 50.0 us and 100.0 of the host's, PyTorch's 60.0 and 30.0",
        }
    else:
        assert kernel.inactive == "no gain: a step takes 132.81 ms with gradkern's kernels, 125.00 with PyTorch's"


def test_the_next_tune_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(**{NORM: 0.001, GELU: -0.001})
    assert list(tuned(monkeypatch, clock, repeats=1)) == [NORM]
    clock.costs[NORM] = -0.002
    gradkern.torch.tune(clock.step, repeats=1)
    assert not any(each.inactive for each in switch._kernels())


def test_the_slowest_process_decides_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    slower = cycle([[12.0, 11.0], [11.0, 12.0], [11.0, 12.0], [12.0, 11.0]])  # rounds go forth and back

    def of_all(mine: Any) -> list[Any]:
        return [mine, next(slower) if isinstance(mine, list) else mine]

    monkeypatch.setattr(ranks, "of_all", of_all)
    resting = tuned(monkeypatch, Clock(**{NORM: -0.002, GELU: -0.003}), repeats=1)
    assert set(resting) == {NORM, GELU}
    assert resting[GELU] == "no gain: a step takes 12.00 ms with gradkern's kernels, 11.00 with PyTorch's"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("cost", "resting"), [(-0.001, []), (0.001, [NORM])])
def test_a_host_that_others_use_does_not_decide(
    monkeypatch: pytest.MonkeyPatch, cost: float, resting: list[str], seed: int
) -> None:
    clock, generator, factor = Clock(**{NORM: cost}), random.Random(seed), 1.0

    def step() -> None:
        nonlocal factor
        before = clock.now
        clock.step()
        factor = generator.lognormvariate(0, 0.2) if generator.random() < 0.2 else factor
        clock.now = before + (clock.now - before) * factor

    monkeypatch.setattr(step_comparison, "perf_counter", clock)
    gradkern.torch.enable("layer_norm", devices="cpu", min_bytes=0)
    gradkern.torch.tune(step, repeats=2)
    assert [each.translation.name for each in switch._kernels() if each.inactive] == resting


def test_kernels_are_back_after_a_step_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(**{NORM: 0.0, GELU: 0.0})

    def step() -> None:
        if clock.step() == 3:  # PyTorch's turn
            raise ZeroDivisionError

    gradkern.torch.enable(devices="cpu", min_bytes=0)
    with pytest.raises(ZeroDivisionError):
        gradkern.torch.tune(step, repeats=1)
    before = clock.taken()
    clock.step()
    assert clock.taken() == {name: count + 2 for name, count in before.items()}


@pytest.mark.usefixtures("compiled_anew")
@pytest.mark.parametrize(
    ("options", "repeats", "message"),
    [
        ({}, -1, "tune: repeats is -1; expected a number of steps, 0 or more"),
        ({}, True, "tune: repeats is True; expected a number of steps, 0 or more"),
        ({}, 2.0, "tune: repeats is 2.0; expected a number of steps, 0 or more"),
        ({"only_faster": False}, 2, r"tune: repeats is 2; expected 0, as nothing is left to PyTorch"),
        ({"plan": "now"}, 2, r"tune: repeats is 2; expected 0, as nothing is left to PyTorch"),
    ],
)
def test_repeats_that_make_no_sense_are_refused_before_a_step(options: Any, repeats: Any, message: str) -> None:
    gradkern.torch.enable(devices="cpu", **options)
    with pytest.raises(ArgumentError, match=f"^{message}"):
        gradkern.torch.tune(lambda: pytest.fail("a step"), repeats=repeats)


@pytest.mark.usefixtures("compiled_anew")
def test_without_enable_a_step_tells_whether_a_model_is_compiled() -> None:
    steps: list[None] = []
    with pytest.raises(ArgumentError, match=r"^tune: repeats is 2; expected 0, as nothing is left to PyTorch"):
        gradkern.torch.tune(lambda: steps.append(None), repeats=2)
    assert len(steps) == 1
