"""enable, disable, tune and report: who answers when, and that PyTorch is as before afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

import pytest
import torch
from torch.nn import functional

import gradkern
import gradkern.torch
from gradkern.torch.flags import flags, policy_of
from gradkern.torch.overrides import kernel as kernels
from gradkern.torch.overrides import switch
from gradkern.torch.overrides.options import AllOptions
from gradkern.torch.overrides.override import Override

pytestmark = pytest.mark.torch

LAYER_NORM = "aten::native_layer_norm_backward"
CONV: Any = import_module("torch.backends.cudnn").conv  # it has no types


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    gradkern.torch.forget()
    yield
    gradkern.torch.disable()
    gradkern.torch.forget()


class LayerNorm:
    """A step of one layer norm: `step` gives the gradients."""

    def __init__(self, rows: int = 6) -> None:
        torch.manual_seed(0)
        self.x = torch.randn(rows, 40, requires_grad=True)
        self.weight, self.bias = torch.randn(2, 40).unbind()
        self.target = torch.randn(rows, 40)

    def step(self) -> torch.Tensor:
        y = functional.layer_norm(self.x, (40,), self.weight, self.bias)
        return torch.autograd.grad(((y - self.target) ** 2).sum(), self.x)[0]


def counts() -> tuple[int, int]:
    report = gradkern.torch.report()
    return report.taken, report.declined


def test_importing_changes_nothing() -> None:
    code = (
        "import torch; dump = lambda: [torch._C._dispatch_dump(f'aten::{n}') for n in "
        f"{[each.name for each in switch.TRANSLATIONS]}]; before = dump(); import gradkern.torch; "
        "print(dump() == before, gradkern.torch.is_enabled())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_the_environment_enables() -> None:
    code = "import gradkern.torch; print(gradkern.torch.is_enabled())"
    environment = {**os.environ, "GRADKERN_TORCH": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "True\n"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("GRADKERN_TORCH", "1, which enables, or 0"), ("GRADKERN_NATIVE", "0, which leaves calls to Python, or 1")],
)
def test_the_environment_is_not_guessed_at(name: str, expected: str) -> None:
    environment = {**os.environ, name: "false"}
    code = "import gradkern.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert f"{name} is 'false'; expected {expected}" in done.stderr


def test_nothing_is_taken_before_it_is_enabled_and_after_it_is_disabled() -> None:
    model = LayerNorm()
    bits = model.step()
    with gradkern.torch.enabled(devices="cpu", min_bytes=0, plan="now"):
        model.step()
        torch.testing.assert_close(model.step(), bits)
        assert counts() == (1, 1)
    assert torch.equal(model.step(), bits)
    assert counts() == (1, 1)
    assert not gradkern.torch.is_enabled()


def every_operator() -> Callable[[], list[torch.Tensor]]:
    """A step of one layer of each kind: its gradients."""
    torch.manual_seed(0)
    x = torch.randn(2, 4, 6, 8, requires_grad=True)
    kernel, vector = torch.randn(4, 4, 3, 3, requires_grad=True), torch.randn(8, requires_grad=True)
    scale = torch.randn(4, requires_grad=True)

    def step() -> list[torch.Tensor]:
        y = functional.batch_norm(functional.conv2d(x, kernel, padding=1), None, None, scale, training=True)
        loss = functional.rms_norm(functional.layer_norm(functional.gelu(y), (8,), vector), (8,), vector)
        return list(torch.autograd.grad(loss.square().sum(), (x, kernel, vector, scale)))

    return step


def test_disabled_every_call_has_pytorchs_bits_and_none_is_counted() -> None:
    step = every_operator()
    expected = step()
    for _ in range(2):
        with gradkern.torch.enabled(devices="cpu", min_bytes=0, plan="now"):
            step()
            step()
        before = counts()
        assert before[0] >= 4
        assert all(torch.equal(*pair) for pair in zip(step(), expected, strict=True))
        assert counts() == before


def test_options_change_on_what_stays_in_front() -> None:
    step = LayerNorm().step
    ways: list[tuple[dict[str, Any], int]] = [
        ({"plan": "now"}, 1), ({"ops": "gelu"}, 1), ({"min_bytes": 6 * 40 * 4 + 1}, 1), ({}, 3),
    ]  # fmt: skip
    for options, expected in ways:
        given: dict[str, Any] = {"devices": "cpu", "min_bytes": 0, **options}
        with gradkern.torch.enabled(**given):
            step()
            step()
        assert counts()[0] == expected


def test_without_being_told_a_step_is_never_planned() -> None:
    model = LayerNorm()
    gradkern.torch.enable(devices="cpu", min_bytes=0)
    for _ in range(3):
        model.step()
    assert counts() == (0, 3)
    assert [row.reason for row in gradkern.torch.report()] == ["waits for a plan: gradkern.torch.tune"]


def test_tune_plans_what_a_step_needs_and_returns_its_result() -> None:
    model = LayerNorm()
    bits = model.step()
    gradkern.torch.enable(devices="cpu", min_bytes=0, only_faster=False)
    assert torch.equal(gradkern.torch.tune(model.step), bits)
    torch.testing.assert_close(model.step(), bits)
    assert counts() == (1, 1)
    (row,) = gradkern.torch.report()
    assert (row.op, row.device, row.reason) == ("native_layer_norm_backward", "cpu", "")
    assert "native_layer_norm_backward cpu f32[6, 40]" in str(gradkern.torch.report())


def test_tune_wants_to_be_enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradkern.torch.compile_backend.findings.used", lambda: False)  # by other tests
    with pytest.raises(gradkern.ProviderError, match=r"enable\(\) has not been called"):
        gradkern.torch.tune(lambda: None)


def test_tune_wants_a_function() -> None:
    gradkern.torch.enable(devices="cpu")
    loss: Any = torch.ones(())
    with pytest.raises(gradkern.ArgumentError, match=r"^tune: step is a Tensor; expected a function"):
        gradkern.torch.tune(loss)


def test_tune_says_what_its_plans_need_before_it_makes_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a provider can compile it together: each is a plan that can be made by itself."""
    wanted: list[Any] = []
    planned: list[int] = []

    def ahead(plans: Any) -> None:
        wanted.extend(plans)
        planned.append(sum(bool(kernel._runs) for kernel in switch._kernels()))

    monkeypatch.setattr(switch.planner, "compile_ahead", ahead)
    model = LayerNorm(rows=7)
    gradkern.torch.enable(devices="cpu", min_bytes=0, only_faster=False)
    gradkern.torch.tune(model.step)
    ((provider, device, plan),) = wanted
    assert (provider, device) == ("cpu", "cpu")
    assert plan() is None
    wanted.clear()
    gradkern.torch.tune(model.step)
    assert not wanted
    assert planned[::2] == [0, 1]  # the others are of gradkern.tune()


def test_tune_searches_though_the_policy_puts_searches_off(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    plan_for = kernels.plan_for
    monkeypatch.setattr(kernels, "plan_for", lambda **asked: (seen.append(asked["policy"]), plan_for(**asked))[1])
    gradkern.torch.enable(devices="cpu", min_bytes=0, only_faster=False)
    gradkern.torch.tune(LayerNorm(rows=9).step)
    assert seen == [gradkern.Policy("exhaustive")] != [gradkern.Policy()]


def test_plans_outlive_disable() -> None:
    model = LayerNorm()
    gradkern.torch.enable(devices="cpu", min_bytes=0, only_faster=False)
    gradkern.torch.tune(model.step)
    gradkern.torch.disable()
    gradkern.torch.enable(devices="cpu", min_bytes=0, only_faster=False)
    model.step()
    assert counts() == (1, 1)


def test_small_tensors_are_pytorchs() -> None:
    gradkern.torch.enable(devices="cpu", min_bytes={"layer_norm": 6 * 40 * 4 + 1}, plan="now")
    for rows in (6, 7, 7):
        LayerNorm(rows).step()
    assert counts() == (1, 2)
    assert "fewer than 961 bytes" in [row.reason for row in gradkern.torch.report()]


def test_only_the_operators_that_are_named() -> None:
    gradkern.torch.enable(["gelu"], devices="cpu", min_bytes=0, plan="now")
    model = LayerNorm()
    model.step()
    model.step()
    assert counts() == (0, 0)


def mixed_batch_norm() -> Callable[[], Any]:
    """A batch norm by running statistics of float32, of data in 16 bits: no combination of types of gradkern's."""
    x = torch.randn(6, 40, dtype=torch.bfloat16, requires_grad=True)
    mean, var, weight, bias = torch.zeros(40), torch.ones(40), torch.ones(40), torch.zeros(40)
    return lambda: functional.batch_norm(x, mean, var, weight, bias).sum().backward()


def test_a_refusal_is_silent_unless_told_else() -> None:
    gradkern.torch.enable(devices="cpu", min_bytes=0, plan="now")
    mixed_batch_norm()()
    (row,) = gradkern.torch.report()
    assert (row.taken, row.declined) == (0, 1)
    assert "input Mean has type float32, but input Input has bfloat16" in row.reason


def test_a_fault_that_takes_the_device_from_the_process_is_raised_and_no_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What runs next would fail, too, and PyTorch could not tell why."""

    def lost() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def plan_for(**asked: Any) -> Any:
        monkeypatch.setattr(kernels, "synchronize", lost)
        raise gradkern.ProviderError("the search ended with a fault of an engine")

    monkeypatch.setattr(kernels, "plan_for", plan_for)
    gradkern.torch.enable(devices="cpu", min_bytes=0)
    step = mixed_batch_norm()
    with pytest.raises(gradkern.ProviderError, match="the search ended with a fault of an engine"):
        gradkern.torch.tune(step)


def test_a_refusal_can_warn_once() -> None:
    gradkern.torch.enable(devices="cpu", min_bytes=0, plan="now", on_refusal="warn")
    step = mixed_batch_norm()
    with pytest.warns(RuntimeWarning, match=r"batch_norm_backward of bf16\[6, 40\].* is left to PyTorch"):
        step()
    step()


def test_a_refusal_can_raise() -> None:
    gradkern.torch.enable(devices="cpu", min_bytes=0, plan="now", on_refusal="raise")
    step = mixed_batch_norm()
    for _ in range(2):
        with pytest.raises(gradkern.ProviderError, match="is left to PyTorch: DmlBatchNormalizationGrad: input Mean"):
            step()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ops": "layer_nrm"}, r"ops has 'layer_nrm' \(did you mean layer_norm\?\)"),
        ({"devices": "tpu"}, "devices has 'tpu'"),
        ({"min_bytes": -1}, "min_bytes of layer_norm is -1"),
        ({"min_bytes": {"convolution": 1}}, "min_bytes has 'convolution'"),
        ({"on_refusal": "ignore"}, "on_refusal is 'ignore'; expected torch or warn or raise"),
        ({"on_refusal": ("torch", "warn")}, r"on_refusal is \('torch', 'warn'\)"),
        ({"plan": "later"}, "plan is 'later'; expected tune or now"),
        ({"plan": None}, "plan is None"),
    ],
)
def test_options_that_are_none_are_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(gradkern.ArgumentError, match=text):
        gradkern.torch.enable(**options)


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this PyTorch has CUDA")
def test_a_pytorch_without_cuda_is_named() -> None:
    with pytest.raises(gradkern.ProviderError, match=r"has no kernels for cuda; pass devices='cpu'$"):
        gradkern.torch.enable(devices="cuda")
    assert not gradkern.torch.is_enabled()
    gradkern.torch.enable("gelu", devices="cpu")
    with pytest.raises(gradkern.ProviderError, match="has no kernels for cuda"):
        gradkern.torch.enable(devices=("cpu", "cuda"))
    assert active() == ["gelu"]


@pytest.mark.parametrize(("gpus", "device"), [(0, "cpu"), (1, "cuda")])
def test_the_device_is_by_default_the_gpu_or_else_the_cpu(
    gpus: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(switch, "_there", lambda kernel: kernel.key == switch._KEYS[device])
    taken: list[str] = []
    monkeypatch.setattr(switch.Kernel, "enable", lambda kernel, options: taken.append(kernel.key))
    gradkern.torch.enable()
    assert set(taken) == {switch._KEYS[device]}


def test_options_by_name_are_those_of_enable() -> None:
    """What hands options on to `enable` is typed by a dictionary of them."""
    options = typing.get_type_hints(AllOptions)
    assert options == {name: each for name, each in typing.get_type_hints(switch.enable).items() if name != "return"}


def test_enabled_puts_back_what_was_in_force() -> None:
    gradkern.torch.enable("gelu", devices="cpu")
    with gradkern.torch.enabled(devices="cpu", min_bytes=0):
        assert set(active()) == {
            "layer_norm",
            "batch_norm",
            "group_norm",
            "conv",
            "gelu",
            "softmax",
            "embedding",
            "pooling",
            "resize",
        }
    assert active() == ["gelu"]


def active() -> list[str]:
    return sorted({each.translation.group for each in switch._kernels() if each.enabled})


# --- who else replaces kernels ----------------------------------------------------------------------------------------


class Other:
    """Another library that replaces the kernel and hands on to the one below."""

    def __init__(self) -> None:
        self.calls = 0
        below = torch.library.get_kernel(LAYER_NORM, "CPU")

        def body(keys: Any, *args: Any) -> Any:
            self.calls += 1
            return below.call_boxed(keys, *args)

        self.library = torch.library.Library("aten", "IMPL")
        self.library.impl("native_layer_norm_backward", body, "CPU", with_keyset=True, allow_override=True)

    def remove(self) -> None:
        self.library._destroy()


@pytest.fixture
def other() -> Iterator[Callable[[], Other]]:
    made: list[Other] = []

    def make() -> Other:
        made.append(Other())
        return made[-1]

    yield make
    for each in reversed(made):
        each.remove()


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_the_report_says_that_another_kernel_stands_on_top(overrides: Any, other: Callable[[], Other]) -> None:
    def said() -> list[str]:
        return [f"{row.op} {row.signature}" for row in gradkern.torch.report() if "on top of gradkern's" in row.reason]

    assert said() == []
    above = other()
    assert said() == ["native_layer_norm_backward every call"]
    above.remove()
    assert said() == []


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_a_call_that_is_on_its_way_when_the_kernel_is_removed_is_answered() -> None:
    """As by another thread."""

    def body(keys: Any, *args: Any) -> Any:
        assert override.remove()
        return override.original(keys, *args)

    step = LayerNorm().step
    expected = step()
    override = Override("native_layer_norm_backward", "CPU", body)
    override.install()
    assert torch.equal(step(), expected)
    assert not override.installed


def test_one_who_was_there_before_gets_what_gradkern_declines(other: Callable[[], Other]) -> None:
    below, model = other(), LayerNorm()
    gradkern.torch.enable(devices="cpu", min_bytes=0)
    model.step()
    assert below.calls == 1
    gradkern.torch.disable()
    model.step()
    assert below.calls == 2


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_one_who_was_there_before_may_go(other: Callable[[], Other]) -> None:
    below, model = other(), LayerNorm()
    gradkern.torch.enable(devices="cpu", min_bytes=0)
    model.step()
    below.remove()
    model.step()
    assert (below.calls, counts()) == (1, (0, 2))
    gradkern.torch.disable()
    model.step()


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_one_who_came_after_keeps_what_it_hands_on_to(other: Callable[[], Other]) -> None:
    model = LayerNorm()
    bits = model.step()
    gradkern.torch.enable(devices="cpu", min_bytes=0, plan="now")
    above = other()
    model.step()
    model.step()
    assert (above.calls, counts()) == (2, (1, 1))
    gradkern.torch.disable()
    assert torch.equal(model.step(), bits)
    assert (above.calls, counts()) == (3, (1, 1))
    above.remove()
    gradkern.torch.disable()  # now nobody needs it


# --- what else decides ------------------------------------------------------------------------------------------------


def test_pytorchs_flags_become_policy() -> None:
    assert policy_of(flags()) == gradkern.Policy()
    with torch.backends.cudnn.flags(deterministic=True, allow_tf32=True):
        assert policy_of(flags()).deterministic
    before = CONV.fp32_precision
    CONV.fp32_precision = "ieee"
    try:
        assert not policy_of(flags()).allow_tf32
    finally:
        CONV.fp32_precision = before
    torch.use_deterministic_algorithms(True)
    try:
        assert policy_of(flags()).deterministic
    finally:
        torch.use_deterministic_algorithms(False)
    with gradkern.policy(workspace_limit=7):
        assert policy_of(flags()) == gradkern.Policy(workspace_limit=7)


def test_flags_count_at_each_call(overrides: Any) -> None:
    x, weight = torch.randn(2, 3, 8, 8, requires_grad=True), torch.randn(4, 3, 3, 3)

    def step() -> None:
        torch.autograd.grad(functional.conv2d(x, weight).square().sum(), x)

    step()
    step()
    with torch.backends.cudnn.flags(deterministic=True, allow_tf32=True):
        step()
        step()
    assert counts() == (2, 2)
    assert len(switch._kernels()[0].signatures()) == 0


def test_backward_from_eight_threads(overrides: Any) -> None:
    models = [LayerNorm(rows) for rows in range(3, 11)]
    expected = [model.step() for model in models]

    def steps(model: LayerNorm) -> torch.Tensor:
        return [model.step() for _ in range(20)][-1]

    with ThreadPoolExecutor(8) as pool:
        for result, bits in zip(pool.map(steps, models), expected, strict=True):
            torch.testing.assert_close(result, bits)
    assert counts() == (160, 8)


def test_with_and_without_a_weight_are_two_signatures(overrides: Any) -> None:
    x = torch.randn(6, 40, requires_grad=True)
    for weight in (None, torch.ones(40), None, torch.ones(40)):
        functional.layer_norm(x, (40,), weight).square().sum().backward()
    assert counts() == (2, 2)


def test_of_too_many_kinds_of_calls_the_oldest_is_forgotten(overrides: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in switch._kernels():
        monkeypatch.setattr(each._table, "bound", 4)
    for rows in range(2, 12):
        for _ in range(3):
            LayerNorm(rows).step()
    *rows, others = gradkern.torch.report()
    assert [row.signature[:9] for row in rows] == [f"f32[{rows}, 40"[:9] for rows in (8, 9, 10, 11)]
    assert [(row.taken, row.declined) for row in rows] == [(2, 1)] * 4
    assert (others.signature, others.taken, others.declined) == ("6 other kinds of calls", 12, 6)
    assert others.reason == "forgotten: more than 4096 had come"
    assert sum(len(each._runs) for each in switch._kernels()) == 4


def test_what_tune_has_planned_outlives_kinds_of_calls_that_it_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of sentences of other lengths."""
    for each in switch._kernels():
        monkeypatch.setattr(each._table, "bound", 4)
    tuned = LayerNorm(2)
    gradkern.torch.enable(devices="cpu", min_bytes=0, only_faster=False)
    gradkern.torch.tune(tuned.step)
    for rows in range(3, 13):
        LayerNorm(rows).step()
    tuned.step()
    assert counts() == (1, 11)


# --- what fails -------------------------------------------------------------------------------------------------------

ERRORS = [
    OSError(28, "No space left on device"), TypeError("no such signature"), RuntimeError("LLVM ERROR"), MemoryError(),
    RecursionError("maximum recursion depth exceeded"), torch.OutOfMemoryError("CUDA out of memory"),
    gradkern.ProviderError("no memory for scratch"),
]  # fmt: skip


def raising(error: Exception) -> Callable[..., Any]:
    def function(*args: Any, **named: Any) -> Any:
        raise error

    return function


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("part", ["plan_for", "runner", "describe"])
def test_a_call_whose_planning_fails_is_pytorchs_and_training_goes_on(
    part: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = LayerNorm()
    bits = model.step()
    gradkern.torch.enable(devices="cpu", min_bytes=0, plan="now")
    monkeypatch.setattr(kernels, part, raising(error))
    for _ in range(3):
        assert torch.equal(model.step(), bits)
    (row,) = gradkern.torch.report()
    assert (row.taken, row.declined) == (0, 3)
    assert str(error) in row.reason
    if not isinstance(error, gradkern.GradkernError):
        assert type(error).__name__ in row.reason


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_call_that_fails_is_pytorchs_and_the_report_says_why(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, failing = LayerNorm(), True
    bits = model.step()
    runner = kernels.runner

    def made(*arguments: Any) -> Any:
        run = runner(*arguments)
        return lambda tensors: raising(error)() if failing else run(tensors)

    monkeypatch.setattr(kernels, "runner", made)
    gradkern.torch.enable(devices="cpu", min_bytes=0, plan="now")
    for _ in range(3):
        assert torch.equal(model.step(), bits)
    (row,) = gradkern.torch.report()
    assert (row.taken, row.declined) == (0, 3)
    assert str(error) in row.reason
    failing = False
    model.step()
    again = isinstance(error, gradkern.GradkernError | MemoryError | torch.OutOfMemoryError)
    assert counts() == ((1, 3) if again else (0, 4))  # what memory was lacking for is tried again


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_what_fails_can_warn_or_raise(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "plan_for", raising(error))
    step = LayerNorm().step
    with gradkern.torch.enabled(devices="cpu", min_bytes=0, plan="now", on_refusal="warn"):
        with pytest.warns(RuntimeWarning, match="is left to PyTorch: "):
            step()
        step()
    gradkern.torch.forget()
    with gradkern.torch.enabled(devices="cpu", min_bytes=0, plan="now", on_refusal="raise"):
        for _ in range(2):
            with pytest.raises(gradkern.ProviderError, match="is left to PyTorch: "):
                step()


def test_an_interrupt_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(**asked: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(kernels, "plan_for", interrupt)
    with gradkern.torch.enabled(devices="cpu", min_bytes=0, plan="now"), pytest.raises(KeyboardInterrupt):
        LayerNorm().step()
