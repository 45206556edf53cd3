"""A module as an implementation: the order of its configs, reasons for those that do not fit, what it may leave out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from helpers.fake_candidates import DEVICE, FakeCandidate

from gradkern.call import Refusal
from gradkern.search.implementation import Implementation

MADE = {
    "large": FakeCandidate("large"),
    "late": FakeCandidate("late", notes=frozenset({"compiles"})),
    "small": FakeCandidate("small"),
}


def configs(problem: str, device: Any) -> Iterator[Mapping[str, Any]]:
    return ({"size": size} for size in ("large", "late", "odd", "small"))


def build(problem: str, device: Any, config: Mapping[str, Any]) -> FakeCandidate:
    if config["size"] not in MADE:
        raise Refusal(f"{problem} has no {config['size']} size")
    return MADE[config["size"]]


def implementation(**more: Any) -> Implementation:
    return Implementation("sizes", SimpleNamespace(**{"configs": configs, "build": build, **more}), "it", DEVICE)


def names(found: Iterator[Any]) -> list[str]:
    return [each.name for each in found]


def test_configs_are_built_in_their_order_and_those_that_compile_come_last() -> None:
    assert names(implementation().candidates()) == ["large", "small", "late"]
    assert implementation().supports() is None


def test_without_a_config_that_can_be_built_the_reasons_are_those_of_all() -> None:
    def others(problem: str, device: Any) -> list[Mapping[str, Any]]:
        return [{"size": size} for size in ("odd", "even", "odd")]

    made = implementation(configs=others)
    reason = "it has no odd size; it has no even size"
    assert made.supports() == reason
    with pytest.raises(Refusal, match=f"^{reason}$"):
        next(made.candidates())
    with pytest.raises(Refusal, match="none of its configs fits"):
        next(implementation(configs=lambda problem, device: ()).candidates())


def test_what_a_module_says_it_does_not_support_is_not_asked_for_configs() -> None:
    made = implementation(configs=None, supports=lambda problem, device: f"{problem} is too old")
    assert made.supports() == "it is too old"
    with pytest.raises(Refusal, match="it is too old"):
        next(made.candidates())


def test_configs_that_are_not_listed_come_from_a_good_one_or_from_a_name() -> None:
    plain, more = (
        implementation(),
        implementation(
            variations=lambda problem, device, config: [{"size": "odd"}, {"size": "small"}] if config else [],
            named=lambda problem, device, name: {"size": name} if name in MADE else None,
        ),
    )
    good = replace(MADE["large"], name="large")
    assert names(plain.variations(good)) == []
    assert names(more.variations(good)) == ["small"]
    assert plain.named("small") is None
    assert more.named("other") is None
    assert more.named("small") is MADE["small"]


def test_a_module_may_have_no_version_and_no_kernels_of_its_own() -> None:
    assert (implementation().version(), implementation().compiles) == ("", False)
    made = implementation(version=lambda: "lib 3", OWN_KERNELS=True)
    assert (made.version(), made.compiles) == ("lib 3", True)
