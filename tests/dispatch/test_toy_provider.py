"""A provider is a record and a module, an operator an entry and a folder: added here without touching the package."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.calls import message, prepare_any, run_any

import gradkern
import gradkern.ops
from gradkern import ProviderError
from gradkern.call import Refusal
from gradkern.cli import main
from gradkern.contract import registry, request
from gradkern.system import providers
from gradkern.system.providers import PROVIDERS, Provider

ENTRY = """
schema: 1
operators:
  ToyGrad:
    domain: toys
    since_version: 1
    family: toy
    doc: Gradient of a product with a constant.
    types: {T: data}
    combinations: [{T: float32}, {T: float64}]
    axes: {sizes: {doc: all dimensions, group: true}}
    inputs:
      - {name: dY, type: T, shape: [sizes], doc: gradient of the output}
    outputs:
      - {name: dX, type: T, like: dY, doc: gradient of the input}
    attributes:
      factor: {type: float, default: 2.0, doc: the constant}
    providers:
      abacus: [beads]
      cpu: [plain]
    examples: [{axes: {sizes: [3, 4]}}]
    benchmarks: [{axes: {sizes: [64, 64]}}]
"""

MODULE = """
from dataclasses import dataclass

from gradkern.call import Call, Refusal


@dataclass
class ToyPlan:
    factor: float
    kernel: str = "{kernel}"
    scratch: int = 0

    def __call__(self, inputs, outputs, stream):
        outputs[0][...] = inputs[0] * self.factor


def plan(call: Call) -> ToyPlan:
    if call.axes["sizes"] == (1, 1):
        raise Refusal("is not worth it")
    return ToyPlan(call.attributes["factor"])
"""


@pytest.fixture(autouse=True)
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_plan_cache: None) -> Iterator[None]:
    """A registry with the toy operator alone, its family's folder, and a record for the second of its providers."""
    (tmp_path / "registry.yaml").write_text(ENTRY)
    family = tmp_path / "ops" / "toy"
    family.mkdir(parents=True)
    (family / "__init__.py").write_text("")
    (family / "beads.py").write_text(MODULE.format(kernel="beads"))
    (family / "plain.py").write_text(MODULE.format(kernel="plain"))
    monkeypatch.setattr(registry, "path", lambda: tmp_path / "registry.yaml")
    monkeypatch.setattr(request, "_binders", {})
    monkeypatch.setattr(gradkern.ops, "__path__", [*gradkern.ops.__path__, str(tmp_path / "ops")])
    abacus = Provider("abacus", "cpu", {"numpy": "numpy"})
    monkeypatch.setattr(providers, "PROVIDERS", MappingProxyType({**PROVIDERS, "abacus": abacus}))
    registry.operators.cache_clear()
    providers.unavailable.cache_clear()
    yield
    registry.operators.cache_clear()
    providers.unavailable.cache_clear()


def test_run_computes_with_the_best_provider_of_the_arrays_device_or_the_one_that_is_named() -> None:
    dY = np.arange(12, dtype=np.float32).reshape(3, 4)
    for provider, kernel in ((None, "beads"), ("abacus", "beads"), ("cpu", "plain")):
        plan = prepare_any("ToyGrad", dY, factor=3.0, provider=provider)
        assert (plan.provider, plan.kernel) == ("abacus" if kernel == "beads" else "cpu", kernel)
        np.testing.assert_array_equal(run_any("ToyGrad", dY, factor=3.0, provider=provider).dX, 3 * dY)


def test_a_provider_that_cannot_run_here_gives_way_to_the_next_for_the_same_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = Provider("abacus", "cpu", {"a_module_nobody_has": "beads"})
    monkeypatch.setattr(providers, "PROVIDERS", {**PROVIDERS, "abacus": broken})
    dY = np.ones((3, 4), np.float32)
    assert prepare_any("ToyGrad", dY).kernel == "plain"
    assert message(ProviderError, gradkern.run, "ToyGrad", dY, provider="abacus") == (
        "ToyGrad: provider 'abacus' cannot run here: a_module_nobody_has not installed (pip install beads)"
    )


def test_a_module_that_refuses_says_why() -> None:
    assert message(ProviderError, gradkern.run, "ToyGrad", np.ones((1, 1), np.float32)) == (
        "ToyGrad: provider 'abacus' cannot take the call: beads: is not worth it"
    )


def test_out_arrays_with_gaps_are_copied_by_the_module_that_the_provider_has_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, ...]] = []

    def wrap(call: Any, make: Any, names: tuple[str, ...] = ()) -> Any:
        asked.append(names)
        return make(replace(call, attributes={"factor": -1.0}))

    monkeypatch.setitem(sys.modules, "copying_beads", SimpleNamespace(wrap=wrap))
    copying = Provider("abacus", "cpu", {}, contiguous="copying_beads")
    monkeypatch.setattr(providers, "PROVIDERS", {**PROVIDERS, "abacus": copying})
    dY, wide = np.ones((3, 4), np.float32), np.zeros((3, 8), np.float32)
    for out in (wide[:, ::2], wide[:, :4], np.asfortranarray(dY * 0)):
        assert (run_any("ToyGrad", dY, out={"dX": out}).dX == -1).all()
    assert asked == [("dX",)] * 3
    turned = np.asfortranarray(dY)
    for given, out in ((dY, dY * 0), (turned, np.asfortranarray(dY * 0)), (turned, dY * 0)):  # as new ones may lie
        assert (run_any("ToyGrad", given, out={"dX": out}).dX == 2).all()
    assert len(asked) == 3

    def refuse(*_: Any) -> Any:
        raise Refusal("has too many axes")

    monkeypatch.setitem(sys.modules, "copying_beads", SimpleNamespace(wrap=refuse))
    says = message(ProviderError, run_any, "ToyGrad", dY[:2], out={"dX": wide[:2, ::2]})
    assert says == "ToyGrad: provider 'abacus' cannot take the call: has too many axes"


def test_a_provider_for_another_kind_of_device_does_not_take_host_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = Provider("abacus", "wood", {})
    monkeypatch.setattr(providers, "PROVIDERS", {**PROVIDERS, "abacus": elsewhere})
    dY = np.ones((3, 4), np.float32)
    assert prepare_any("ToyGrad", dY).provider == "cpu"
    assert message(ProviderError, gradkern.run, "ToyGrad", dY, provider="abacus") == (
        "ToyGrad: provider 'abacus' was asked for, but the arrays are on cpu"
    )


def test_the_command_lists_and_explains_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", "ToyGrad", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["operators"]
    assert entry["name"] == "ToyGrad"
    assert entry["available"]["abacus"] == {"available": True, "reason": None, "modules": ["beads"]}
    for provider, kernel in (("abacus", "beads"), ("cpu", "plain")):
        assert main(["explain", "ToyGrad", "--provider", provider, "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert (facts["operator"], facts["provider"], facts["device"]) == ("ToyGrad", provider, "cpu")
        assert (facts["kernel"], facts["bandwidth"]) == (kernel, None)
