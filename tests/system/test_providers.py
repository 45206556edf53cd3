"""Whether a provider can run here, and what to do where it cannot."""

from __future__ import annotations

import pytest

from gradkern.system import driver, providers
from gradkern.system.driver import Driver, Gpu

H200 = Gpu(0, "NVIDIA H200", (9, 0), 150_109_880_320, 4.9e12)


@pytest.mark.parametrize(
    ("asked", "extra"),
    [
        (Driver((12, 4), (H200,)), "cu12"),
        (Driver((13, 1), (H200,)), "cu13"),
        (Driver((14, 0), (H200,)), "cu13"),
        (Driver((11, 8), (H200,)), "cu12"),
        (None, "cu13"),
    ],
)
def test_the_packages_that_are_missing_are_those_for_the_driver_that_is_there(
    monkeypatch: pytest.MonkeyPatch, asked: Driver | None, extra: str
) -> None:
    monkeypatch.setattr(driver, "ask", lambda: asked)
    monkeypatch.setattr(providers, "_installed", lambda module: module != "cuda.core")
    why = providers.unavailable.__wrapped__("cuda")
    assert why == f"cuda.core not installed (pip install 'gradkern[{extra}]')"


def test_a_provider_whose_packages_are_there_asks_the_driver_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "_installed", lambda module: True)
    why = {}
    for name, asked in {
        "no driver": None,
        "no gpu": Driver((12, 4), ()),
        "a fault": Driver((12, 4), (), "out of order"),
        "a gpu": Driver((12, 4), (H200,)),
    }.items():
        monkeypatch.setattr(driver, "ask", lambda asked=asked: asked)
        why[name] = providers.unavailable.__wrapped__("cuda")
    assert why == {
        "no driver": "no NVIDIA GPU: the CUDA driver is not installed",
        "no gpu": "no NVIDIA GPU: the CUDA driver has no device",
        "a fault": "no NVIDIA GPU: out of order",
        "a gpu": None,
    }
