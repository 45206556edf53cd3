"""BatchNormalizationGrad whole on a GPU: one search over all kernels, on PyTorch's tensors, against float64."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.batch_norm import OPERATOR, OUTPUTS, Case, case
from helpers.calls import run_any
from helpers.reference import reference
from helpers.searches import keep_searches_in
from helpers.tolerance import assert_close
from helpers.torch_on_gpu import back, there

import gradkern
from gradkern.policy import Search

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

b, h, f, d = "bfloat16", "float16", "float32", "float64"
TYPES = [(f, f, f), (d, d, d), (h, h, h), (h, h, f), (h, f, f), (b, f, f), (b, b, f), (b, b, b)]
IMAGES = (6, 24, 13, 12)
SHAPES = [
    IMAGES,
    (50, 16),
    (7, 5, 31),
    (3, 8, 4, 9, 5),
    (2, 8, 3, 4, 5, 2),
    (4, 3, 70, 65),
    (1, 9, 1, 1),
    (1, 1),
    (1, 6),
]
LAST = pytest.mark.parametrize("last", [False, True], ids=["channels_first", "channels_last"])


@pytest.fixture(autouse=True)
def quick_searches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Short searches, kept in a folder of the test's own; no plan of another test's."""
    from gradkern import plan_cache
    from gradkern.ops.batch_norm.cuda import plan

    keep_searches_in(tmp_path, monkeypatch)
    monkeypatch.setattr(plan, "choose", partial(plan.choose, seconds=1.0))
    plan_cache.clear()
    with gradkern.policy(search="exhaustive"):
        yield
    plan_cache.clear()


def on_gpu(operands: Case, last: bool = False) -> dict[str, Any]:
    return {name: there(array, last) for name, array in operands.inputs.items()}


def check(operands: Case, results: Any) -> None:
    operands.check({name: back(each) for name, each in results._asdict().items() if each is not None})


@LAST
@pytest.mark.parametrize("types", TYPES, ids=" ".join)
def test_every_combination_of_types(types: tuple[str, str, str], last: bool) -> None:
    operands = case(IMAGES, *types)
    check(operands, gradkern.run(OPERATOR, **on_gpu(operands, last)))


@LAST
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_rank_and_order(shape: tuple[int, ...], last: bool) -> None:
    operands = case(shape, f)
    tensors = on_gpu(operands, last)
    results = gradkern.run(OPERATOR, **tensors)
    check(operands, results)
    assert results.dX.stride() == tensors["X"].stride()


@LAST
@pytest.mark.parametrize("dtype", [f, h])
def test_every_ranked_kernel_is_right_when_it_is_pinned(dtype: str, last: bool) -> None:
    operands = case(IMAGES, dtype, f, f)
    tensors = on_gpu(operands, last)
    plan = gradkern.prepare(OPERATOR, **tensors)
    chosen: Any = plan.plan
    (found,) = chosen.results.values()
    assert found.confirmed
    assert {"streaming", "persistent"} <= {row.source for row in found.ranking}
    assert plan.kernel == found.ranking[0].name
    for row in found.ranking[:8]:
        pinned: dict[str, Any] = {"policy": {"kernel": row.name}}
        assert gradkern.prepare(OPERATOR, **tensors, **pinned).kernel == row.name
        check(operands, gradkern.run(OPERATOR, **tensors, **pinned))


@pytest.mark.parametrize("search", ["heuristic", "default", "background"])
def test_every_policy(search: Search) -> None:
    operands = case(IMAGES, h, f, f)
    check(operands, gradkern.run(OPERATOR, **on_gpu(operands), policy={"search": search, "deterministic": True}))


@pytest.mark.parametrize("over", ["dY", "X"])
@LAST
def test_dX_may_be_written_over_what_it_is_made_of(last: bool, over: str) -> None:
    operands = case(IMAGES, b, f, f)
    tensors = on_gpu(operands, last)
    results = gradkern.run(OPERATOR, **tensors, out={"dX": tensors[over]})
    assert results.dX is tensors[over]
    check(operands, results)


@pytest.mark.parametrize("outputs", [["dX"], ["dScale", "dBias"], ["dBias"], ["dX", "dScale"]], ids=" ".join)
def test_only_what_is_wanted(outputs: list[str]) -> None:
    operands = case(IMAGES, h, h, f)
    results = run_any(OPERATOR, **on_gpu(operands), outputs=outputs)
    assert [name for name, each in results._asdict().items() if each is not None] == outputs
    check(operands, results)


def test_arrays_with_gaps_and_at_odd_addresses() -> None:
    operands = case(IMAGES, h, f, f)
    tensors = on_gpu(operands)
    room = torch.empty((*IMAGES[:-1], 2 * IMAGES[-1]), device="cuda", dtype=torch.float16)
    room[..., ::2] = tensors["X"]
    flat = torch.empty(prod(IMAGES) + 1, device="cuda", dtype=torch.float16)
    flat[1:] = tensors["dY"].flatten()
    check(operands, gradkern.run(OPERATOR, **tensors | {"X": room[..., ::2]}))
    check(operands, gradkern.run(OPERATOR, **tensors | {"dY": flat[1:].view(IMAGES)}))


def test_an_empty_batch_has_sums_of_zero() -> None:
    results = gradkern.run(OPERATOR, **on_gpu(case((0, 5, 4), h, f, f)))
    assert results.dX.shape == (0, 5, 4)
    assert back(results.dScale).tolist() == back(results.dBias).tolist() == [0] * 5


def test_a_search_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradkern import plan_cache
    from gradkern.search.bench import CudaBench

    operands = case(IMAGES, f)
    tensors = on_gpu(operands)
    first = gradkern.prepare(OPERATOR, **tensors).kernel

    def refuse(*_: Any) -> None:
        raise AssertionError("searched again")

    monkeypatch.setattr(CudaBench, "__init__", refuse)
    plan_cache.clear()
    assert gradkern.prepare(OPERATOR, **tensors).kernel == first
    check(operands, gradkern.run(OPERATOR, **tensors))


@LAST
def test_the_same_bits_every_time(last: bool) -> None:
    tensors = on_gpu(case((16, 32, 28, 28), f), last)
    first = gradkern.run(OPERATOR, **tensors)
    for _ in range(100):
        again = gradkern.run(OPERATOR, **tensors)
        assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


@pytest.mark.parametrize("dtype", [f, h])
def test_a_warm_call_can_be_captured_and_replayed(dtype: str) -> None:
    operands = case(IMAGES, dtype, f, f)
    tensors = on_gpu(operands)
    gradkern.run(OPERATOR, **tensors)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = gradkern.run(OPERATOR, **tensors)
    for each in results:
        each.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    check(operands, results)


@LAST
@pytest.mark.parametrize("types", [(f, f, f), (h, f, f), (b, b, f)], ids=" ".join)
def test_a_batch_in_two_parts_has_the_gradients_of_the_whole(types: tuple[str, str, str], last: bool) -> None:
    operands = case(IMAGES, *types)
    tensors = on_gpu(operands, last)
    halves = [tensors | {name: tensors[name][part] for name in ("dY", "X")} for part in (slice(0, 2), slice(2, None))]
    names = "dY", "X", "saved_mean", "saved_inv_std"
    shares = [gradkern.run("BatchNormalizationGradSums", **{name: half[name] for name in names}) for half in halves]
    sums = {name: getattr(shares[0], name) + getattr(shares[1], name) for name in OUTPUTS[1:]}
    count = prod(IMAGES) // IMAGES[1]
    counts = torch.tensor([half["X"].numel() // IMAGES[1] for half in halves], dtype=torch.float32, device="cuda")
    expected = reference(OPERATOR, operands.inputs)
    for size in ({"count": count}, {"counts": counts}):
        steps = [run_any("BatchNormalizationGradFromSums", **half, **sums, **size) for half in halves]
        dX = np.concatenate([back(step.dX) for step in steps])
        assert_close(OPERATOR, "dX", dX, np.asarray(expected["dX"]))
    for name, each in sums.items():
        assert_close(OPERATOR, name, back(each), np.asarray(expected[name]), operands.terms(name))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_statistics_of_parts_are_merged(dtype: Any) -> None:
    name = "BatchNormalizationMergeStatistics"
    parts = torch.rand(5, 2 * 300 + 1, device="cuda", dtype=dtype) + 0.5
    parts[:, -1] = torch.tensor([100.0, 0, 7, 0, 30], device="cuda")
    found = gradkern.run(name, parts)
    expected = reference(name, {"part_statistics": back(parts)})
    for key, each in found._asdict().items():
        assert_close(name, key, back(each), np.asarray(expected[key]))


@pytest.mark.slow
def test_more_than_2_to_the_31_elements() -> None:
    """In float16, channels first: the gradients of one channel, in float64 by PyTorch."""
    shape = (33, 64, 1024, 1024)
    X, dY = (torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(2))
    scale, mean, inv_std = (
        torch.rand(64, device="cuda") + 0.5,
        torch.randn(64, device="cuda"),
        torch.rand(64, device="cuda"),
    )
    results = gradkern.run(OPERATOR, dY, X, scale, mean, inv_std)
    for channel in (0, 63):
        D, r = dY[:, channel].double(), inv_std[channel].double()
        xh = (X[:, channel].double() - mean[channel].double()) * r
        dBias, dScale = D.sum(), (D * xh).sum()
        dX = scale[channel].double() * r * (D - (dBias + xh * dScale) / D.numel())
        terms = {"dBias": D.norm(), "dScale": (D * xh).norm()}
        assert (results.dX[:, channel].double() - dX).norm() <= 3e-4 * dX.norm()
        for name, exact in (("dBias", dBias), ("dScale", dScale)):
            assert abs(getattr(results, name)[channel].double() - exact) <= 1e-6 * max(abs(exact), terms[name])
