"""A second implementation of layer norm, from another folder: tried, timed, chosen or refused, like gradkern's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from helpers.calls import message
from helpers.fake_candidates import FakeBench
from helpers.reference import reference
from helpers.tolerance import assert_close

import gradkern
from gradkern import ProviderError
from gradkern.cli.sizes import wanted_of
from gradkern.cuda import cache, launch, packs
from gradkern.cuda.compile import Compiled
from gradkern.cuda.device import Device, described
from gradkern.cuda.dry_run import device_named, dry_run
from gradkern.dispatch import planner
from gradkern.search import operators, store, tuner
from gradkern.system import cache_files, implementations

NORM: dict[str, Any] = {
    "op": "LayerNormalizationGrad", "axes": {"rows": [64], "columns": [48]}, "types": "float32", "outputs": ["X_grad"],
}  # fmt: skip
DEVICE = Device(0, (9, 0), 132, 232448, 1)
OWN, TOYS = "cuda.plan", ("toy_threads128", "toy_threads32")


@pytest.fixture(autouse=True)
def toy(empty_plan_cache: None) -> Iterator[None]:
    implementations.add("LayerNormalizationGrad", "cuda", "toy", "helpers.toy_layer_norm")
    yield
    implementations.remove("LayerNormalizationGrad", "cuda", "toy")


class Bench(FakeBench):
    """Its times and results are by the names of candidates; 1 is right."""

    def __init__(self, seconds: dict[str, float], results: dict[str, float]) -> None:
        super().__init__()
        self.seconds, self.results = seconds, results

    def run(self, candidate: Any) -> float:
        self.order.append(candidate.name)
        self.result = self.results.get(candidate.name, 1.0)
        return self.seconds.get(candidate.name, 1e-3)

    def times(self, candidate: Any, repeats: int) -> list[float]:
        return [self.seconds.get(candidate.name, 1e-3)] * repeats


class Loaded:
    """A kernel that is neither compiled nor loaded."""

    function = None

    def __init__(self, made: Compiled, device: Device, shared_bytes: int, cluster: int = 1) -> None:
        self.device, self.shared_bytes = device, shared_bytes

    def resident_blocks(self, threads: int, cluster: int = 1) -> int:
        return self.device.processors


class Planned:
    """Plans on a GPU that is not there, whose bench has these times and results."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.benches: list[Bench] = []
        self.seconds: dict[str, float] = {}
        self.results: dict[str, float] = {}
        monkeypatch.setattr(cache, "fetch", lambda key, compile_now: Compiled(b"", 1, 0))
        monkeypatch.setattr(packs, "find", lambda spec: None)
        monkeypatch.setattr(launch, "activate", nullcontext)
        monkeypatch.setattr(launch, "Kernel", Loaded)
        monkeypatch.setattr(launch, "_loaded", {})
        monkeypatch.setattr(tuner, "workspace_limit", lambda policy, device: 1 << 30)
        monkeypatch.setattr(tuner, "compile_ahead", lambda *_: None)
        monkeypatch.setattr(planner, "unavailable", lambda provider: None)
        monkeypatch.setattr(operators, "choose", partial(tuner.choose, open_bench=self.open))

    def open(self, task: Any, device: Device) -> Bench:
        self.benches.append(Bench(self.seconds, self.results))
        return self.benches[-1]

    def __call__(self, search: str = "exhaustive", kernel: str | None = None, **changes: Any) -> Any:
        wanted = wanted_of({**NORM, **changes, "policy": {"kernel": kernel}})
        with described(DEVICE):
            return wanted.plan("cuda", search=search).plan


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Planned:
    return Planned(monkeypatch)


def test_the_faster_one_is_chosen_after_a_trial_of_every_config(planned: Planned) -> None:
    planned.seconds = {TOYS[1]: 0.5e-3}
    assert planned().kernel == "toy_layer_norm_32"
    assert planned.benches[0].order == [OWN, *TOYS]
    planned.seconds = {OWN: 0.4e-3}
    assert planned(axes={"rows": [64], "columns": [40]}).kernel.startswith("layer_norm")


def test_the_winner_of_an_earlier_search_is_taken_without_another(planned: Planned) -> None:
    planned.seconds = {TOYS[0]: 0.5e-3}
    first = planned()
    assert planned("background").kernel == first.kernel == "toy_layer_norm_128"
    assert len(planned.benches) == 1
    (found,) = first.results.values()
    assert [row.name for row in found.ranking] == [TOYS[0], OWN, TOYS[1]]
    assert found.confirmed


def test_a_wrong_result_is_refused_however_fast(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    """It agrees with nobody else's, and gradkern's own is that of the float64 reference."""
    monkeypatch.setattr(Bench, "errors", lambda self, copy: (abs(self.copies[copy] - 1.0),))
    planned.seconds, planned.results = dict.fromkeys(TOYS, 1e-5), dict.fromkeys(TOYS, 3.0)
    with pytest.warns(RuntimeWarning, match="toy_threads128"):
        plan = planned()
    assert plan.kernel.startswith("layer_norm")
    (found,) = plan.results.values()
    assert {row.name for row in found.wrong} == set(TOYS)


def test_a_call_it_does_not_support_is_gradkerns_own_with_the_reason_in_the_result(planned: Planned) -> None:
    plan = planned(outputs=["X_grad", "scale_grad"])
    assert plan.kernel.startswith("layer_norm")
    (found,) = plan.results.values()
    assert [row.reason for row in found.rejected] == ["it computes X_grad alone"]


@pytest.mark.parametrize("search", ["default", "background"])
def test_without_a_search_gradkerns_own_serves_calls(planned: Planned, search: str) -> None:
    plan = planned(search)
    assert plan.kernel.startswith("layer_norm")
    assert plan.provisional == (search == "background")
    assert planned.benches == []


def test_either_can_be_pinned_and_an_unknown_name_lists_all(planned: Planned) -> None:
    own = planned("default").kernel
    for kernel in (own, "toy_layer_norm_32"):
        assert planned(kernel=kernel).kernel == kernel
    text = message(ProviderError, planned, kernel="another")
    assert f"has no kernel 'another' for this call; it has {own}, toy_layer_norm_128, toy_layer_norm_32" in text
    assert planned.benches == []


def test_without_others_no_search_is_made(planned: Planned) -> None:
    wanted: Any = {"op": "SimplifiedLayerNormalizationGrad", "types": "float32"}
    assert planned(**wanted).kernel.startswith("layer_norm")
    assert planned.benches == []
    assert not cache_files.folder("search").exists()


def test_kernels_of_all_are_compiled_ahead() -> None:
    with dry_run(device_named("H100, H200")) as dry:
        wanted_of(NORM).dry_plan("cuda")
    builders = [each.builder for each in dry.specs]
    assert builders.count("helpers.toy_layer_norm.kernel:build") == 2
    assert "gradkern.ops.layer_norm.cuda.kernel:build" in builders
    assert "gradkern.search.kernels:compare" in builders


@pytest.mark.gpu
@pytest.mark.torch
def test_on_a_gpu_it_is_timed_against_gradkerns_own_and_both_are_right() -> None:
    import torch

    random = np.random.default_rng(0)
    shapes = {"Y_grad": (300, 200), "X": (300, 200), "scale": (200,), "mean": (300,), "inv_std_dev": (300,)}
    given = {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    given["inv_std_dev"] = np.abs(given["inv_std_dev"]) + np.float32(0.1)
    arrays: dict[str, Any] = {name: torch.from_numpy(each).cuda() for name, each in given.items()}
    expected = reference("LayerNormalizationGrad", given, {})["X_grad"]
    policies: list[Any] = [{"search": "exhaustive"}, {"kernel": "toy_layer_norm_128"}]
    for policy in policies:
        plan: Any = gradkern.prepare("LayerNormalizationGrad", **arrays, outputs=["X_grad"], policy=policy)
        found = plan(*arrays.values()).X_grad
        assert_close("LayerNormalizationGrad", "X_grad", found.cpu().numpy(), expected)
    (result,) = store.newest("LayerNormalizationGrad", 1)
    assert result.confirmed
    assert {OWN, *TOYS} <= {row.name for row in result.ranking}
