"""`gradkern doctor --self-test`: a wrong kernel of any operator is found and named, and the time is kept."""

from __future__ import annotations

import json
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import Any

import numpy as np
import pytest

import gradkern
from gradkern import cli
from gradkern.cli import self_test
from gradkern.cli.checks import Check
from gradkern.cli.self_test import check_kernels
from gradkern.cli.sizes import Wanted
from gradkern.errors import ProviderError
from gradkern.system import driver

OPERATORS = gradkern.operators()
GELU, LN = "BiasGeluGrad_dX", "LayerNormalizationGrad"


class Here(Executor):
    """Computes in this process, at once."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        made: Future[Any] = Future()
        try:
            made.set_result(fn(*args, **kwargs))
        except Exception as error:
            made.set_exception(error)
        return made


def wanted(name: str) -> Wanted:
    return Wanted(name, OPERATORS[name], OPERATORS[name].examples[0], OPERATORS[name].combinations[0])


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round of two operators in place of all."""
    monkeypatch.setattr(self_test, "_rounds", lambda *_: iter([[wanted(GELU), wanted(LN)]]))


def checked(monkeypatch: pytest.MonkeyPatch, change: Any, which: int = 2) -> list[Check]:
    """What is found where a provider's result of GELU is changed: the reference is asked first, then the other."""
    run: Any = gradkern.run
    called: list[str] = []

    def wrong(name: str, **named: Any) -> Any:
        called.append(name)
        results = run(name, **named)
        return change(results) if name == GELU and called.count(GELU) == which else results

    monkeypatch.setattr(self_test, "run", wrong)
    return [*check_kernels("cpu", "cpu", pool=Here())]


def test_providers_that_agree_are_fine() -> None:
    (found,) = check_kernels("cpu", "cpu")
    assert (found.status, found.text) == ("fine", "2 calls of 2 operators compared with the cpu provider")
    assert found.facts == {"calls": 2, "refused": 0, "left_out": 0}


def altered(change: Any) -> Any:
    def of(results: Any) -> Any:
        results.dX[...] = change(results.dX)
        return results

    return of


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda x: x * 1.01, "dX is 1.0e-02 away, at most 3e-05"),
        (lambda x: np.where(x == x.max(), np.nan, x), "dX is not finite where the other is, or the other way round"),
        (lambda x: np.where(x == x.max(), -x, x), "dX is "),
    ],
)
def test_a_wrong_result_is_found_and_named(monkeypatch: pytest.MonkeyPatch, change: Any, text: str) -> None:
    wrong, summary = checked(monkeypatch, altered(change))
    assert wrong.status == "problem"
    assert wrong.text.startswith(f"{GELU} rows=6 columns=40 float32: {text}")
    assert summary.text.startswith("2 calls of 2 operators")


def test_a_crash_is_found_and_a_refusal_of_the_reference_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(error: Exception) -> Any:
        raise error

    for error in (RuntimeError("an illegal instruction"), ProviderError("kernel x cannot be compiled")):
        wrong, _ = checked(monkeypatch, lambda _, error=error: ends(error))
        assert wrong.text.endswith(f"{type(error).__name__}: {error}")
        monkeypatch.undo()
        monkeypatch.setattr(self_test, "_rounds", lambda *_: iter([[wanted(GELU)]]))
    wrong, _ = checked(monkeypatch, lambda _: ends(ZeroDivisionError("division")), which=1)
    assert wrong.text.endswith("on cpu, ZeroDivisionError: division")
    monkeypatch.undo()
    monkeypatch.setattr(self_test, "_rounds", lambda *_: iter([[wanted(GELU)] * 2]))
    broken = Here()
    monkeypatch.setattr(broken, "submit", lambda *_: Here().submit(ends, BrokenExecutor("abruptly")))
    wrong, summary = check_kernels("cpu", "cpu", pool=broken)
    assert wrong.text == "a process of the cpu provider ended: abruptly"
    assert summary.facts["left_out"] == 2
    monkeypatch.setattr(self_test, "_rounds", lambda *_: iter([[wanted(GELU)]]))
    (found,) = checked(monkeypatch, lambda _: ends(ProviderError("no such size")), which=1)
    assert found.text == "0 calls of 0 operators compared with the cpu provider, 1 that this one does not take"


class Never(Executor):
    """Computes nothing."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        return Future()


def test_calls_beyond_the_time_are_left_out_and_counted() -> None:
    (found,) = check_kernels("cpu", "cpu", 0.0, Never())
    assert found.facts == {"calls": 0, "refused": 0, "left_out": 2}
    assert found.text.endswith(", 2 left out after 0 s")


def test_without_a_gpu_there_is_nothing_to_compare(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(driver, "ask", lambda: None)
    cli.main(["doctor", "--self-test", "--json"])
    last = json.loads(capsys.readouterr().out)["checks"][-1]
    assert (last["name"], last["status"]) == ("self-test", "absent")


@pytest.mark.gpu
def test_the_gpu_at_hand_agrees_with_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    *wrong, summary = check_kernels()
    assert not wrong
    assert summary.facts["calls"] >= len(OPERATORS) / 2
