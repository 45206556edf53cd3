"""tune with repeats, of compiled models: steps run the graphs of gradkern or of Inductor alone, as they are shorter."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import count, cycle
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import gradkern.torch
from gradkern import ArgumentError
from gradkern.dispatch.plan_cache import pending
from gradkern.torch.compile_backend import choice, findings
from gradkern.torch.compile_backend.choice import Choice
from gradkern.torch.overrides import ranks, step_comparison

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread", "compiled_anew")]


class Clock:
    """A clock that only calls of a graph move: by 10 ms in gradkern's form, by `plain` in Inductor's, times what
    `factor` says.
    """

    def __init__(self, plain: float, factor: Callable[[], float] = lambda: 1.0) -> None:
        self.now, self.calls, self.plain, self.factor = Fraction(), list[str](), plain, factor

    def __call__(self) -> Fraction:
        return self.now

    def ours(self, *args: Any) -> str:
        return self._called("ours", 0.010)

    def compile_plain(self, args: Sequence[Any]) -> Any:
        assert args == (1,)
        self.calls.append("compiled")
        return lambda *_: self._called("plain", self.plain)

    def _called(self, form: str, cost: float) -> str:
        self.now += Fraction(cost * self.factor())
        self.calls.append(form)
        return form


def tuned(monkeypatch: pytest.MonkeyPatch, clock: Clock, *on_device: float) -> Choice:
    """on_device: milliseconds of gradkern's kernels and of Inductor's."""
    graph, rest = Choice(clock.ours, clock.compile_plain), list(on_device)
    findings.note_graph()
    monkeypatch.setattr(step_comparison, "perf_counter", clock)
    monkeypatch.setattr(step_comparison, "_on_device", lambda *_: rest.pop(0) if rest else None)
    assert gradkern.torch.tune(lambda: graph(1), repeats=2) == "ours"
    return graph


def test_the_faster_graphs_run_and_the_report_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(plain=0.009)
    graph = tuned(monkeypatch, clock)
    turns = ["ours"] * 3 + ["plain"] * 6 + ["ours"] * 3  # the first of three does not count
    assert clock.calls == ["ours", *turns[:3], "compiled", *turns[3:], *turns[6:], *turns[:6]]
    assert graph(1) == "plain"
    line = "compiled step: 10.00 ms with gradkern's graphs, 9.00 with Inductor's, so Inductor's are used"
    assert str(gradkern.torch.report()) == line
    assert [round(each.inductor, 6) for each in gradkern.torch.report().steps] == [9]
    gradkern.torch.forget()
    assert gradkern.torch.report().steps == ()


def test_gradkerns_graphs_stay_where_they_are_no_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tuned(monkeypatch, Clock(plain=0.0101))(1) == "ours"


class SharedHost:
    """What steps take on a host whose speed changes every few of them, beside what they would."""

    def __init__(self, seed: int) -> None:
        self._random, self._now = random.Random(seed), 1.0

    def __call__(self) -> float:
        if self._random.random() < 0.2:
            self._now = self._random.lognormvariate(0, 0.2)
        return self._now * self._random.lognormvariate(0, 0.03)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("plain", "expected"), [(0.0092, "plain"), (0.0108, "ours")])
def test_a_host_that_others_use_does_not_decide(
    monkeypatch: pytest.MonkeyPatch, plain: float, expected: str, seed: int
) -> None:
    clock = Clock(plain, SharedHost(seed))
    assert tuned(monkeypatch, clock)(1) == expected
    assert len(clock.calls) > 26  # of 8 turns
    assert clock.now < 25


@pytest.mark.parametrize("phase", range(12))
@pytest.mark.parametrize(("plain", "expected"), [(0.0092, "plain"), (0.0108, "ours")])
def test_a_host_that_is_busy_at_regular_times_does_not_decide(
    monkeypatch: pytest.MonkeyPatch, plain: float, expected: str, phase: int
) -> None:
    """For two turns of four: were they in a fixed order, those of the same form could meet it every time."""
    steps = count(phase)
    clock = Clock(plain, lambda: 1.2 if next(steps) % 12 < 6 else 1.0)
    assert tuned(monkeypatch, clock)(1) == expected


def test_four_turns_that_are_alike_by_chance_are_too_few() -> None:
    """Of equally fast forms 0.3 % lead for certain; by three errors, as four turns estimate them, 6 % would."""
    rng = random.Random(0)

    def turns() -> list[float]:
        return [rng.lognormvariate(0, 0.1) for _ in range(4)]

    assert sum(step_comparison._is_clear({"ours": turns(), "plain": turns()}) for _ in range(3000)) < 30


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("on_device", "used"), [((4.0, 5.0), "gradkern"), ((5.0, 4.0), "Inductor"), ((), ""), ((9.8, 9.9), "gradkern")]
)
def test_the_kernels_decide_where_turns_cannot_tell(
    monkeypatch: pytest.MonkeyPatch, on_device: tuple[float, ...], used: str, seed: int
) -> None:
    host = random.Random(seed)
    clock = Clock(0.010, lambda: host.lognormvariate(0, 0.3))
    form = tuned(monkeypatch, clock, *on_device)(1)
    (times,) = gradkern.torch.report().steps
    assert not times.is_clear
    if on_device:
        assert form == ("ours" if used == "gradkern" else "plain")
        least, most = sorted(on_device)
        text = f"too close to tell: {used}'s are used, whose kernels take {least:.2f} and not {most:.2f} ms"
        assert text in str(times)
    else:
        assert form == ("plain" if times.inductor < times.gradkern else "ours")
        assert "so " in str(times)


def test_a_host_whose_speed_changes_too_much_to_tell_is_left_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0.010, SharedHost(0))
    monkeypatch.setattr(step_comparison, "_is_clear", lambda _: False)
    tuned(monkeypatch, clock)
    assert 10 * 3 / 2 < clock.now < 10 * 3 / 2 + 1  # two steps in three count


def test_the_kernels_of_all_processes_begin_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the sleep of the slowest: else some would wait for others' in the time that is measured."""
    slept: list[float] = []
    clock = Clock(0.009)
    graph = Choice(clock.ours, clock.compile_plain)
    findings.note_graph()
    monkeypatch.setattr(step_comparison, "perf_counter", clock)
    monkeypatch.setattr(ranks, "of_all", lambda mine: [mine, 77.0 if isinstance(mine, float) else mine])
    monkeypatch.setattr(step_comparison, "_on_device", lambda step, longest: slept.append(longest))
    gradkern.torch.tune(lambda: graph(1), repeats=1)
    assert slept == [77.0, 77.0]


@pytest.mark.parametrize("slower", ["ours", "plain"])
def test_the_slowest_process_decides_for_all(monkeypatch: pytest.MonkeyPatch, slower: str) -> None:
    forth = [12.0, 14.0] if slower == "plain" else [14.0, 12.0]
    rounds = cycle([forth, forth[::-1], forth[::-1], forth])
    monkeypatch.setattr(ranks, "of_all", lambda mine: [mine, next(rounds) if isinstance(mine, list) else mine])
    graph = tuned(monkeypatch, Clock(0.010))
    assert graph(1) == ("ours" if slower == "plain" else "plain")


@pytest.mark.parametrize(("on_device", "recommended"), [(4.0, True), (9.5, False)])
def test_a_cuda_graph_is_recommended_where_the_host_bounds_the_step(
    monkeypatch: pytest.MonkeyPatch, on_device: float, recommended: bool
) -> None:
    tuned(monkeypatch, Clock(plain=0.011), on_device, on_device)
    assert ("gradkern.torch.graphed" in str(gradkern.torch.report())) == recommended


@pytest.mark.parametrize(
    ("plain", "on_device", "in_step", "in_graph"),
    [
        (0.009, (4.0, 5.0), "plain", "ours"),
        (0.011, (5.0, 4.0), "ours", "plain"),
        (0.009, (), "plain", "plain"),
        (0.010, (5.0, 4.0), "ours", "plain"),  # neither shorter
    ],
)
def test_a_cuda_graph_has_the_kernels_that_take_less_time(
    monkeypatch: pytest.MonkeyPatch, plain: float, on_device: tuple[float, ...], in_step: str, in_graph: str
) -> None:
    graph = tuned(monkeypatch, Clock(plain), *on_device)
    assert graph(1) == in_step
    with choice.in_cuda_graph():
        assert graph(1) == in_graph
    assert graph(1) == in_step
    captured = "gradkern's kernels" if in_graph == "ours" else "Inductor's kernels"
    assert (f"a CUDA graph, with {captured}" in str(gradkern.torch.report())) == bool(on_device)


def test_inductors_form_is_compiled_as_torch_compile_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that Inductor finds it in its caches, and knows that parameters stay where they are."""
    from torch._functorch._aot_autograd.utils import make_boxed_func
    from torch._guards import TracingContext
    from torch._inductor import compile_fx

    seen: list[Any] = []

    def inner(graph_module: Any, inputs: Any, **how: Any) -> Any:
        mode = TracingContext.get().fake_mode
        assert mode is not None
        assert mode.shape_env is not None
        seen.append((graph_module.code, [each.shape for each in inputs], list(how["static_input_idxs"])))
        return make_boxed_func(graph_module)

    compiled = compile_fx.compile_fx
    monkeypatch.setattr(
        compile_fx, "compile_fx", lambda *given, **how: compiled(*given, **{**how, "inner_compile": inner})
    )
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8))
    torchs, gradkerns = (torch.compile(model, backend=backend) for backend in ("inductor", "gradkern"))
    torchs(torch.randn(3, 4)).sum().backward()
    expected = seen.copy()
    gradkerns(torch.randn(3, 4)).sum().backward()
    (graph,) = choice.live()
    graph.plain = True
    seen.clear()
    gradkerns(torch.randn(3, 4)).sum().backward()
    assert len(expected) == 2
    assert expected[0][2]
    assert seen == expected


def test_a_graph_that_is_not_of_the_step_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(plain=0.001)
    other = Choice(clock.ours, clock.compile_plain)
    other(1)
    tuned(monkeypatch, clock)
    assert not other.plain


def test_a_step_that_fails_leaves_gradkerns_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(args: Any) -> Any:
        raise RuntimeError("out of memory")

    graph = Choice(lambda *_: None, fails)
    findings.note_graph()
    with pytest.raises(RuntimeError, match="out of memory"):
        gradkern.torch.tune(lambda: graph(1), repeats=1)
    assert not graph.plain


def test_repeats_without_anything_to_compare_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "live", list)
    with pytest.raises(ArgumentError, match="repeats is 2; expected 0"):
        gradkern.torch.tune(lambda: None, repeats=2)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.layer_norm, self.batch_norm = nn.Linear(8, 8), nn.LayerNorm(8), nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.linear(x)
        y: Any = checkpoint(lambda z: self.linear(z).sin(), self.batch_norm(self.layer_norm(x)), use_reentrant=False)
        return x + y


def step(model: nn.Module, run: Any) -> list[torch.Tensor]:
    model.zero_grad()
    x = torch.linspace(-3, 3, 32).view(4, 8).sin().requires_grad_()
    run(x).sin().sum().backward()
    gradients = [each.grad for each in (x, *model.parameters())]
    return [*[each.clone() for each in gradients if each is not None], *[each.clone() for each in model.buffers()]]


@pytest.mark.thorough
@pytest.mark.usefixtures("graphs_as_they_are")
def test_both_forms_of_a_compiled_graph_train_the_same_model() -> None:
    model = Block()
    eager, compiled = copy.deepcopy(model), torch.compile(model, backend="gradkern", options={"gradkern": True})
    before = set(choice.live())
    for plain in (False, True, False, True):
        for each in set(choice.live()) - before:
            each.plain = plain
        torch.testing.assert_close(step(model, compiled), step(eager, eager))
    assert {each.fusion for each in findings.findings()} == {"add + layer_norm", "batch_norm"}
    assert all(each.ran for each in set(choice.live()) - before)


@pytest.mark.thorough
def test_the_first_step_of_a_compiled_model_may_be_tunes() -> None:
    for plan in pending.plans():  # of other tests, on devices that are not here
        pending.discard(plan)
    model = Block()
    compiled = torch.compile(model, backend="gradkern", options={"gradkern": True})
    gradkern.torch.tune(lambda: step(model, compiled), repeats=1)
    (times,) = gradkern.torch.report().steps
    assert times.gradkern > 0
    assert times.inductor > 0


@pytest.mark.gpu
@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
def test_a_step_on_a_gpu_is_compared_and_its_kernels_are_timed() -> None:
    model = Block().cuda()
    compiled = torch.compile(model, backend="gradkern", options={"gradkern": True})

    def step() -> None:
        model.zero_grad()
        compiled(torch.ones(4096, 8, device="cuda")).sin().sum().backward()

    gradkern.torch.tune(step, repeats=2)
    (times,) = gradkern.torch.report().steps
    for each in (times.gradkern_on_device, times.inductor_on_device):
        assert each is not None
        assert 0 < each < 10 * min(times.gradkern, times.inductor)
    assert {each.plain for each in choice.live() if each.ran} == {times.is_plain}
    assert {each.plain_in_graph for each in choice.live() if each.ran} == {times.is_plain_in_graph}


@pytest.mark.gpu
def test_the_time_of_kernels_is_not_that_of_the_host_between_them() -> None:
    """Nor that of another device than the current one, where there are several."""
    x = torch.ones(1 << 26, device=f"cuda:{torch.cuda.device_count() - 1}")

    def step() -> None:
        x.sin()
        time.sleep(0.02)
        x.cos()

    step()
    found = step_comparison._on_device(step, 25.0)
    assert found is not None
    assert 0.05 < found < 5  # two passes over 256 MiB


def test_graphs_of_open_sizes_have_one_form() -> None:
    model = Block()
    compiled = torch.compile(model, backend="gradkern", options={"gradkern": True}, dynamic=True)
    before = set(choice.live())
    step(model, compiled)
    assert set(choice.live()) == before
