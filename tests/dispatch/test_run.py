"""run and prepare: providers are asked in order, plans are bound to their signature, errors name the operator."""

import sys
import weakref
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.calls import OPERATORS, FakeProvider, arguments, message, prepare_any, run_any

import gradkern
from gradkern import ArgumentError, DataError, OutputError, ProviderError
from gradkern.call import Refusal
from gradkern.contract import request
from gradkern.contract.binder import Binder
from gradkern.dispatch import run

GELU, LAYER, CONV = "BiasGeluGrad_dX", "LayerNormalizationGrad", "ConvGrad"
FAMILY = f"gradkern.ops.{OPERATORS[GELU].family}"


# --- the path of a call ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(OPERATORS))
def test_a_plan_gets_the_arrays_in_contract_order(provider: FakeProvider, name: str) -> None:
    given = arguments(name)
    result = run_any(name, **given)
    (call,) = provider.calls
    ((inputs, outputs, stream),) = provider.plans[0].runs
    assert call.operator == name
    assert call.device == "cpu"
    assert stream is None
    assert len(inputs) == len(call.inputs) + len(call.scalars)
    for (key, tensor), array in zip(call.inputs.items(), inputs, strict=False):
        assert array.base is given[key]
        assert (tensor.dtype, tensor.shape, tensor.strides) == (array.dtype, array.shape, array.strides)
    for (key, tensor), array in zip(call.outputs.items(), outputs, strict=True):
        assert array is getattr(result, key)
        assert (tensor.dtype, tensor.shape, tensor.strides) == (array.dtype, array.shape, array.strides)


def test_a_call_describes_itself_completely(provider: FakeProvider) -> None:
    gradkern.run(LAYER, **arguments(LAYER), axis=1, policy={"deterministic": True}, outputs=["scale_grad"])
    (call,) = provider.calls
    assert list(call.inputs) == ["Y_grad", "X", "scale", "mean", "inv_std_dev"]
    assert list(call.outputs) == ["scale_grad"]
    assert dict(call.attributes) == {"axis": 1, "branch_grad_type": None}
    assert dict(call.axes) == {"rows": (6,), "columns": (40,)}
    assert call.in_place == frozenset()
    assert call.policy == gradkern.Policy(deterministic=True)


def test_an_optional_input_may_be_left_out(provider: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    contract = OPERATORS[LAYER]
    optional = [replace(each, optional=each.optional or each.name == "mean") for each in contract.inputs]
    binder = Binder(LAYER, replace(contract, inputs=tuple(optional)))
    monkeypatch.setitem(request._binders, LAYER, binder)
    given = arguments(LAYER, mean=None)
    plan = gradkern.prepare(LAYER, **given)
    gradkern.run(LAYER, **given)
    plan(**{key: array for key, array in given.items() if key != "mean"})
    assert list(provider.calls[0].inputs) == ["Y_grad", "X", "scale", "inv_std_dev"]
    assert [len(inputs) for inputs, _, _ in provider.plans[0].runs] == [4, 4]
    text = message(ArgumentError, plan, **arguments(LAYER))
    assert text == (
        f"{LAYER}: inputs Y_grad, X, scale, mean, inv_std_dev; the plan was prepared for Y_grad, X, scale, inv_std_dev"
    )


def test_arrays_on_the_host_take_no_stream(provider: FakeProvider) -> None:
    expected = f"{GELU}: stream is for arrays on a GPU; these are on the host"
    assert message(ArgumentError, gradkern.run, GELU, **arguments(GELU), stream=7) == expected
    assert message(ArgumentError, gradkern.prepare(GELU, **arguments(GELU)), **arguments(GELU), stream=7) == expected


def test_the_plan_cache_keeps_no_array_alive(provider: FakeProvider) -> None:
    given = arguments(GELU)
    dead = [weakref.ref(array) for array in given.values()]
    out = np.empty((6, 40), np.float32)
    dead.append(weakref.ref(out))
    gradkern.run(GELU, **given, out={"dX": out})
    provider.plans[0].runs.clear()
    del given, out
    assert [reference() for reference in dead] == [None] * 4


# --- prepare ---------------------------------------------------------------------------------------------------------


def test_prepare_runs_nothing_and_tells_what_will_run(provider: FakeProvider) -> None:
    given = arguments(GELU)
    plan = gradkern.prepare(GELU, **given)
    assert provider.plans[0].runs == []
    assert (plan.operator, plan.provider, plan.kernel, plan.scratch) == (GELU, "cpu", "fake", 24)
    assert plan.bytes == given["dY"].nbytes + given["X"].nbytes + given["B"].nbytes + given["X"].nbytes
    assert plan.call is provider.calls[0]
    assert repr(plan) == f"<gradkern plan {GELU} on cpu: fake, 24 bytes of scratch>"


def test_a_prepared_plan_is_the_one_run_would_use(provider: FakeProvider) -> None:
    plan = gradkern.prepare(GELU, **arguments(GELU))
    gradkern.run(GELU, **arguments(GELU))
    assert gradkern.prepare(GELU, **arguments(GELU)) is plan
    assert len(provider.calls) == 1


def test_a_prepared_plan_runs_without_look_up(provider: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = gradkern.prepare(GELU, **arguments(GELU), outputs=["dB"])
    monkeypatch.setattr(run, "_find", None)
    given = arguments(GELU)
    for result in (plan(**given), plan(*given.values()), plan(given["dY"], X=given["X"], B=given["B"])):
        assert result.dX is None
        np.testing.assert_array_equal(result.dB, np.ones(40))


@pytest.mark.parametrize(
    ("name", "array", "expected"),
    [
        (
            "X",
            np.zeros((6, 41), np.float32),
            "has type float32, shape (6, 41), strides (164, 4), alignment 4; "
            "the plan was prepared for type float32, shape (6, 40), strides (160, 4), alignment 4",
        ),
        (
            "X",
            np.zeros((6, 40), np.float16),
            "has type float16, shape (6, 40), strides (80, 2), alignment 2; "
            "the plan was prepared for type float32, shape (6, 40), strides (160, 4), alignment 4",
        ),
        (
            "dY",
            np.zeros((40, 6), np.float32).T,
            "has type float32, shape (6, 40), strides (4, 24), alignment 4; "
            "the plan was prepared for type float32, shape (6, 40), strides (160, 4), alignment 4",
        ),
        (
            "B",
            np.zeros(161, np.uint8)[1:].view(np.float32),
            "has type float32, shape (40,), strides (4,), alignment 1; "
            "the plan was prepared for type float32, shape (40,), strides (4,), alignment 4",
        ),
    ],
)
def test_a_prepared_plan_refuses_arrays_of_another_signature(
    provider: FakeProvider, name: str, array: np.ndarray, expected: str
) -> None:
    plan = gradkern.prepare(GELU, **arguments(GELU))
    text = message(ArgumentError, plan, **{**arguments(GELU), name: array})
    assert text == f"{GELU}: input {name} {expected}"
    assert provider.plans[0].runs == []


def test_a_prepared_plan_refuses_another_out(provider: FakeProvider) -> None:
    given = arguments(GELU)
    out = {"dX": np.zeros((6, 40), np.float32)}
    plain, into = prepare_any(GELU, **given), prepare_any(GELU, **given, out=out)
    over = gradkern.prepare(GELU, **given, out={"dX": given["X"]})
    prefix = f"{GELU}: out differs from the one the plan was prepared with, "
    assert message(ArgumentError, plain, **given, out=out) == f"{prefix}none"
    assert message(ArgumentError, into, **given) == f"{prefix}dX float32 (6, 40)"
    assert message(ArgumentError, into, **given, out={"dX": given["X"]}) == (
        f"{GELU}: out reuses X for dX; the plan was prepared to reuse nothing"
    )
    assert message(ArgumentError, over, **given, out=out) == (
        f"{GELU}: out reuses nothing; the plan was prepared to reuse X for dX"
    )
    assert into(**given, out=out).dX is out["dX"]
    assert over(**given, out={"dX": given["X"]}).dX is given["X"]


def test_a_prepared_plan_still_checks_what_depends_on_addresses(provider: FakeProvider) -> None:
    memory = np.zeros((12, 40), np.float32)
    plan = gradkern.prepare(GELU, **arguments(GELU, X=memory[:6]), out={"dX": memory[6:]})
    expected = f"{GELU}: out dX overlaps input X without being that array"
    assert message(OutputError, plan, **arguments(GELU, X=memory[:6]), out={"dX": memory[1:7]}) == expected
    memory.flags.writeable = False
    expected = f"{GELU}: out dX is read-only"
    assert message(OutputError, plan, **arguments(GELU, X=memory[:6]), out={"dX": memory[6:]}) == expected


def test_attributes_of_a_prepared_plan_are_fixed(provider: FakeProvider) -> None:
    plan = gradkern.prepare(LAYER, **arguments(LAYER), axis=1)
    expected = f"{LAYER}: attribute axis is fixed in a prepared plan; prepare another"
    assert message(ArgumentError, plan, **arguments(LAYER), axis=1) == expected
    takes = "Y_grad, X, scale, mean, inv_std_dev, residual_grad"
    expected = f"{LAYER}: inputs scale, mean, inv_std_dev missing; it takes {takes}"
    given = arguments(LAYER)
    assert message(ArgumentError, plan, given["Y_grad"], given["X"]) == expected


# --- providers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("gpu", "no provider 'gpu' (did you mean cpu?); registered are cuda, cpu"),
        ("cudnn", "no provider 'cudnn' (did you mean cuda?); registered are cuda, cpu"),
        (["cpu"], "no provider ['cpu'] (did you mean cpu?); registered are cuda, cpu"),
    ],
)
def test_a_provider_that_is_not_there_is_refused(provider: FakeProvider, named: Any, expected: str) -> None:
    assert message(ProviderError, gradkern.run, GELU, **arguments(GELU), provider=named) == f"{GELU}: {expected}"
    assert not provider.calls


def providing(monkeypatch: pytest.MonkeyPatch, **modules: Any) -> None:
    """Let the CPU provider of an operator have these modules; None is one that is not there."""
    contract = replace(OPERATORS[GELU], providers={"cpu": tuple(modules), "cuda": ("cuda",)})
    monkeypatch.setitem(request._binders, GELU, Binder(GELU, contract))
    for name, plan in modules.items():
        if plan is not None:
            monkeypatch.setitem(sys.modules, f"{FAMILY}.{name}", SimpleNamespace(plan=plan))


def refusing(reason: str) -> Any:
    def plan(call: Any) -> Any:
        raise Refusal(reason)

    return plan


def test_a_named_provider_runs_or_says_why_it_cannot(provider: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    providing(monkeypatch, cpu=provider.plan)
    why = {"cuda": "no NVIDIA GPU: the CUDA driver is not installed"}
    monkeypatch.setattr("gradkern.dispatch.planner.unavailable", why.get)
    expected = f"{GELU}: provider 'cuda' cannot run here: no NVIDIA GPU: the CUDA driver is not installed"
    assert message(ProviderError, gradkern.run, GELU, **arguments(GELU), provider="cuda") == expected
    assert gradkern.prepare(GELU, **arguments(GELU), provider="cpu").provider == "cpu"


def test_the_first_module_that_does_not_refuse_makes_the_plan(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def third(call: Any) -> Any:
        pytest.fail("a module was asked after one that made the plan")

    providing(monkeypatch, first=refusing("too small"), missing=None, second=provider.plan, third=third)
    assert gradkern.prepare(GELU, **arguments(GELU)).kernel == "fake"


def test_when_every_module_refuses_the_error_has_the_reason_of_each(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    providing(monkeypatch, first=refusing("too small"), missing=None)
    expected = (
        f"{GELU}: provider 'cpu' cannot take the call: first: too small; "
        f"missing: cannot be loaded: No module named '{FAMILY}.missing'"
    )
    for _ in range(2):
        assert message(ProviderError, gradkern.run, GELU, **arguments(GELU)) == expected


def test_an_error_of_a_provider_gets_the_name_of_the_operator(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise DataError("input B has a zero")

    providing(monkeypatch, cpu=fail)
    assert message(DataError, gradkern.run, GELU, **arguments(GELU)) == f"{GELU}: input B has a zero"
    providing(monkeypatch, cpu=lambda call: type("Plan", (), {"kernel": "k", "scratch": 0, "__call__": fail})())
    assert gradkern.prepare(GELU, **arguments(GELU)).kernel == "k"
    assert message(DataError, gradkern.run, GELU, **arguments(GELU)) == f"{GELU}: input B has a zero"


def test_a_bug_in_a_provider_is_not_dressed_up(provider: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    providing(monkeypatch, cpu=lambda call: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        gradkern.run(GELU, **arguments(GELU))
    assert gradkern.plan_cache.statistics().size == 0
