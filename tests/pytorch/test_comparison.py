"""tune with only_faster: what is timed, what is left to PyTorch, when a whole operator is. The costs are made up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional

import gradkern.torch
from gradkern.arrays.kind import dtype_of
from gradkern.call import Tensor
from gradkern.strides import c_strides
from gradkern.torch.aten.conv import gainless_conv
from gradkern.torch.overrides import comparison, ranks, switch
from gradkern.torch.overrides.comparison import Cost, Verdicts, follow, verdicts
from gradkern.torch.overrides.signatures import random_args, recogniser

pytestmark = pytest.mark.torch

NAME = "native_layer_norm_backward"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    gradkern.torch.forget()
    yield
    gradkern.torch.disable()
    gradkern.torch.forget()


def step(*rows: int) -> Callable[[], None]:
    """The backward passes of layer norms with so many rows."""

    def run() -> None:
        for each in rows:
            x = torch.randn(each, 40, requires_grad=True)
            functional.layer_norm(x, (40,), torch.ones(40)).square().sum().backward()

    return run


def pretend(monkeypatch: pytest.MonkeyPatch, ours: dict[int, Cost], theirs: Cost, detour: Cost) -> list[str]:
    """By rows, what a call costs when gradkern answers; when PyTorch does, with gradkern in front of it and without."""
    asked: list[str] = []

    def cost(call: Callable[[], Any], key: str) -> Cost:
        before = gradkern.torch.report()
        result: Any = None
        assert key == "CPU"
        for _ in range(4):
            result = call()
        after = gradkern.torch.report()
        if after.taken > before.taken:
            asked.append("ours")
            return ours[result[0].shape[0]]
        asked.append("detour" if after.declined > before.declined else "theirs")
        return detour if asked[-1] == "detour" else theirs

    monkeypatch.setattr(comparison, "_cost", cost)
    return asked


def rows_of_report() -> dict[str, tuple[int, int, str]]:
    found = {row.signature: (row.taken, row.declined, row.reason) for row in gradkern.torch.report()}
    return {signature.split("[")[1].split(",")[0]: row for signature, row in found.items()}


def test_what_gains_less_on_the_device_than_it_costs_on_the_host_is_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {6: Cost(50, 40), 7: Cost(95, 20), 8: Cost(95, 45), 9: Cost(101, 10)}
    asked = pretend(monkeypatch, costs, theirs=Cost(100, 30), detour=Cost(100, 31))
    gradkern.torch.enable(devices="cpu", min_bytes=0)
    gradkern.torch.tune(step(6, 7, 8, 9))
    assert (asked.count("ours"), asked.count("theirs")) == (4, 4)
    step(6, 7, 8, 9)()
    found = rows_of_report()
    assert found["6"] == (1, 1, "")  # 50 us gained, 10 lost
    assert found["7"] == (1, 1, "")  # both gained
    assert found["8"][:2] == (0, 2)  # 5 gained, 15 lost
    assert found["8"][2] == "no gain: gradkern's kernels take 95.0 us and 45.0 of the host's, PyTorch's 100.0 and 30.0"
    assert found["9"][:2] == (0, 2)  # slower


def test_an_operator_rests_where_its_calls_lose_more_than_they_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {6: Cost(90, 30), 7: Cost(100, 30)}
    pretend(monkeypatch, costs, theirs=Cost(100, 30), detour=Cost(100, 33))
    gradkern.torch.enable(devices="cpu", min_bytes=0)
    (kernel,) = [each for each in switch._kernels() if each.translation.name == NAME and each.key == "CPU"]
    gradkern.torch.tune(step(6, 7, 7, 7))  # 10 us gained, 9 lost
    assert kernel.override.installed
    gradkern.torch.tune(step(6, 7, 7, 7, 7))
    assert not kernel.override.installed
    assert rows_of_report()["6"][2] == "no gain: of a step's calls some gain 10 us, the others lose 12"
    taken = gradkern.torch.report().taken
    step(6)()
    assert gradkern.torch.report().taken == taken
    gradkern.torch.tune(step(6, 6, 7))  # another step, which it is awake for
    assert kernel.override.installed
    assert rows_of_report()["6"][2] == ""
    assert gradkern.torch.report().taken == taken + 2


@pytest.mark.parametrize("small", [False, True])
def test_an_operator_rests_of_which_all_calls_are_too_small_or_refused(
    monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    (kernel,) = [each for each in switch._kernels() if each.translation.name == NAME and each.key == "CPU"]
    if not small:
        monkeypatch.setattr(kernel, "plan", lambda signature: signature.decline("refused"))
    gradkern.torch.enable(devices="cpu", min_bytes=1 << 20 if small else 0)
    gradkern.torch.tune(step(6, 7))
    assert not kernel.override.installed
    assert kernel.inactive == "no gain: gradkern would answer none of a step's calls"


def test_calls_that_are_too_small_count_among_those_that_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    small: list[int] = []

    def cost(call: Callable[[], Any], key: str) -> Cost:
        before = kernel.small.value, gradkern.torch.report().taken
        call()
        if gradkern.torch.report().taken > before[1]:
            return Cost(90, 30)
        small.append(kernel.small.value - before[0])
        return Cost(100, 30 + 4 * small[-1])

    (kernel,) = [each for each in switch._kernels() if each.translation.name == NAME and each.key == "CPU"]
    monkeypatch.setattr(comparison, "_cost", cost)
    gradkern.torch.enable(devices="cpu", min_bytes=6 * 40 * 4)
    gradkern.torch.tune(step(6, 2, 3))  # 10 us gained, 2 calls lose 4 each
    assert kernel.override.installed
    assert small == [0, 1]  # PyTorch's alone, and with gradkern before it
    assert kernel.small.value == 2
    gradkern.torch.tune(step(6, 2, 3, 4))
    assert not kernel.override.installed
    assert kernel.inactive == "no gain: of a step's calls some gain 10 us, the others lose 12"


def test_all_that_has_a_plan_is_taken_where_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = pretend(monkeypatch, {6: Cost(200, 30)}, theirs=Cost(100, 30), detour=Cost(100, 30))
    options: list[dict[str, Any]] = [{"only_faster": False}, {"plan": "now"}, {"on_refusal": "raise"}]
    for each in options:
        gradkern.torch.forget()
        gradkern.torch.enable(devices="cpu", min_bytes=0, **each)
        gradkern.torch.tune(step(6))
        step(6)()
        assert gradkern.torch.report().taken == 1, each
    assert not asked


def test_on_a_cpu_all_time_is_the_devices() -> None:
    slept = iter([0.0, 0.004, 0.002, 0.003])  # the first is no round
    found = comparison._cost(lambda: sleep(next(slept)), "CPU")
    assert found.device >= 2000
    assert found.host == 0
    text = "no gain: gradkern's kernels take 4.0 us, PyTorch's 3.0"
    assert str(comparison.Comparison(Cost(4.0, 0.0), Cost(3.0, 0.0))) == text
    assert next(slept, None) is None


def test_calls_that_only_take_time_have_ones_for_numbers_of_elements() -> None:
    args = torch.randn(2, 3).t(), None, torch.tensor([40, 0], dtype=torch.int32), 5
    made = random_args(args, {})
    assert made is not None
    found: list[Any] = [each() if callable(each) else each for each in made]
    data, nothing, count, number = found
    assert (nothing, number, count.tolist()) == (None, 5, [1, 1])
    assert recogniser((args[0], args[2]))(data, count)
    assert random_args((*args, torch.ones(2, dtype=torch.bool)), {}) is None


@pytest.fixture
def layer_norm(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Its kernel, of whose calls those of 7 rows and more gain nothing where they take 100 us or less."""
    (kernel,) = [each for each in switch._kernels() if each.translation.name == NAME and each.key == "CPU"]

    def gainless(asked: Any) -> float:
        return 100.0 if dict(asked.inputs)["X"].shape[0] > 6 else 0.0

    monkeypatch.setattr(kernel, "translation", replace(kernel.translation, gainless=gainless))
    return kernel


def test_nothing_is_searched_for_calls_that_take_pytorch_too_little_time(
    monkeypatch: pytest.MonkeyPatch, layer_norm: Any
) -> None:
    planned: list[str] = []
    plan = layer_norm.plan

    def noted(signature: Any) -> None:
        planned.extend([signature.text] if signature.waits else [])
        plan(signature)

    monkeypatch.setattr(layer_norm, "plan", noted)
    asked = pretend(monkeypatch, {6: Cost(50, 30)}, theirs=Cost(100, 30), detour=Cost(100, 30))
    gradkern.torch.enable(devices="cpu", min_bytes=0)
    gradkern.torch.tune(step(6, 7))
    assert planned == ["f32[6, 40] with f32, f32, f32"]
    assert asked == ["theirs", "ours", "theirs", "detour"]
    step(6, 7)()
    text = "no gain expected: PyTorch's kernels take 100.0 us, and of such calls none has gained what it costs the host"
    assert rows_of_report() == {"6": (1, 1, ""), "7": (0, 2, text)}
    assert list(verdicts(switch._kernels()).declined.values()) == [text]


@pytest.mark.parametrize(("microseconds", "options"), [(101, {}), (50, {"only_faster": False})])
def test_what_takes_longer_is_searched_and_so_is_all_that_is_to_be_taken(
    monkeypatch: pytest.MonkeyPatch, layer_norm: Any, microseconds: float, options: dict[str, Any]
) -> None:
    pretend(monkeypatch, {7: Cost(40, 30)}, theirs=Cost(microseconds, 30), detour=Cost(microseconds, 30))
    gradkern.torch.enable(devices="cpu", min_bytes=0, **options)
    gradkern.torch.tune(step(7))
    step(7)()
    assert rows_of_report()["7"] == (1, 1, "")


def test_convolutions_that_gain_nothing_where_they_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 bits, channels last, one group, and cuDNN's own search in PyTorch."""

    def gainless(
        *shape: int, dtype: str = "bfloat16", last: bool = True, groups: int = 1, device: str = "cuda:0"
    ) -> float:
        kind = dtype_of(dtype)
        strides = c_strides((shape[0], *shape[2:], shape[1]), kind.itemsize)
        strides = (strides[0], strides[-1], *strides[1:-1]) if last else c_strides(shape, kind.itemsize)
        asked = SimpleNamespace(
            inputs=(("X", Tensor(kind, shape, strides, 16)),), attributes=(("group", groups),), device=device
        )
        return gainless_conv(asked)

    monkeypatch.setattr(torch._C, "_get_cudnn_benchmark", lambda: True)
    assert gainless(2, 8, 4, 4) == gainless(2, 8, 1, 1, last=False) == gainless(2, 8, 4, 4, 4, dtype="float16") == 100
    others: list[dict[str, Any]] = [{"dtype": "float32"}, {"last": False}, {"groups": 8}, {"device": "cpu"}]
    assert [gainless(2, 8, 4, 4, **each) for each in others] == [0] * 4
    monkeypatch.setattr(torch._C, "_get_cudnn_benchmark", lambda: False)
    assert gainless(2, 8, 4, 4) == 0


def test_other_processes_do_as_the_first_has_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, {6: Cost(50, 30), 7: Cost(100, 30)}, theirs=Cost(100, 30), detour=Cost(100, 30))
    gradkern.torch.enable(devices="cpu", min_bytes=0)
    gradkern.torch.tune(step(6, 7))
    found = verdicts(switch._kernels())
    assert [text for _, text in found.declined] == ["f32[7, 40] with f32, f32, f32"]
    assert found.inactive == {}
    gradkern.torch.forget()
    gradkern.torch.enable(devices="cpu", min_bytes=0, only_faster=False)
    gradkern.torch.tune(step(6, 7))
    follow(switch._kernels(), found)
    assert [row[2][:7] for row in rows_of_report().values()] == ["", "no gain"]
    follow(switch._kernels(), Verdicts(inactive={NAME: "no gain at all"}))
    assert rows_of_report()["6"][2] == "no gain at all"


def test_what_the_first_has_declined_the_others_do_not_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Verdicts({(NAME, "f32[7, 40] with f32, f32, f32"): "no gain expected"})
    monkeypatch.setattr(ranks, "is_first", lambda: False)
    monkeypatch.setattr(ranks, "of_first", lambda mine: found)
    gradkern.torch.enable(devices="cpu", min_bytes=0)
    gradkern.torch.tune(step(6, 7))
    step(6, 7)()
    assert rows_of_report() == {"6": (1, 1, ""), "7": (0, 2, "no gain expected")}
