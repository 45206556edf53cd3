"""BatchNormalizationGrad's plan for a GPU, without one: what a call asks a search, and what runs of its answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda import launches_plan
from gradkern.cuda.device import Device
from gradkern.kernels.channels import persistent_plan, streaming_plan
from gradkern.ops.batch_norm.cuda import plan as batch_norm
from gradkern.ops.batch_norm.cuda import streaming
from gradkern.policy import Policy
from gradkern.search import plan as search_plan
from gradkern.search.tuner import Choice
from gradkern.strides import c_strides, end_to_end

DEVICE = Device(0, (9, 0), 132, 232448)


@dataclass(eq=False)
class Fake:
    name: str = "fake"
    workspace: int = 100
    runs: list[Any] = field(default_factory=list)

    def __call__(self, *arguments: Any) -> None:
        self.runs.append(arguments)


class Search:
    """In place of the search: `winner` is the answer to every task, and what was asked is remembered."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, str | None]] = []
        self.winner: Any = Fake()

    def __call__(self, task: Any, policy: Policy, device: Device, pin: str | None = None) -> Choice:
        self.asked.append((task, pin))
        return Choice(task, self.winner)


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> Search:
    made = Search()
    for module in (batch_norm, streaming_plan):
        monkeypatch.setattr(module, "device_of", lambda call: DEVICE)
    monkeypatch.setattr(batch_norm, "choose", made)
    monkeypatch.setattr(persistent_plan, "resident_clusters", lambda device, cluster_size, threads: 132 // cluster_size)
    monkeypatch.setattr(search_plan, "is_current", lambda device: True)
    monkeypatch.setattr(search_plan, "scratch", lambda device, stream, size: (0, 4096))
    return made


def tensor(shape: tuple[int, ...], dtype: str = "float32", **changes: Any) -> Tensor:
    kind = np.dtype(dtype)
    return Tensor(kind, shape, c_strides(shape, kind.itemsize), 16)._replace(**changes)


def call(
    shape: tuple[int, ...] = (4, 8, 5, 3),
    outputs: tuple[str, ...] = ("dX", "dScale", "dBias"),
    policy: Policy | None = None,
    **changes: Tensor,
) -> Call:
    X, vector = tensor(shape), tensor(shape[1:2])
    inputs = {"dY": X, "X": X, "Scale": vector, "saved_mean": vector, "saved_inv_std": vector}
    results = {"dX": X, "dScale": vector, "dBias": vector}
    for name, changed in changes.items():
        (inputs if name in inputs else results)[name] = changed
    wanted = {name: results[name] for name in outputs}
    attributes = {"epsilon": 1e-5}
    return Call("BatchNormalizationGrad", inputs, wanted, attributes, {}, frozenset(), "cuda:0", policy or Policy())


def test_one_search_is_among_our_kernels(search: Search) -> None:
    plan = batch_norm.plan(call())
    ((task, pin),) = search.asked
    assert (task.kind, task.detail) == ("BatchNormalizationGrad float32 channels-first", "4x8x5x3")
    assert (task.terms, pin) == (4 * 15, None)
    assert [source.name for source in task.sources] == ["streaming", "persistent"]
    assert plan.kernel == "fake"


@pytest.mark.parametrize(
    ("shape", "last", "first"),
    [
        ((32, 64, 56, 56), False, "persistent"),
        ((1000, 256, 7, 7), False, "streaming"),  # planes are small
        ((128, 64, 112, 112), False, "streaming"),  # no cluster holds a channel
        ((12, 448, 10, 1), True, "persistent"),
        ((256, 64, 56, 56), True, "streaming"),
    ],
)
def test_what_should_be_faster_serves_until_a_search_is_made(
    search: Search, shape: tuple[int, ...], last: bool, first: str
) -> None:
    X = end_to_end(tensor(shape), (0, 2, 3, 1) if last else (0, 1, 2, 3))
    batch_norm.plan(call(shape, dY=X, X=X, dX=X))
    ((task, _),) = search.asked
    assert task.sources[0].name == first
    assert {source.name for source in task.sources} == {"streaming", "persistent"}


def test_a_kernel_is_pinned_by_its_name(search: Search) -> None:
    batch_norm.plan(call(policy=Policy(kernel="streaming")))
    assert search.asked[0][1] == "streaming"


def test_the_key_tells_apart_all_that_the_answer_depends_on(search: Search) -> None:
    last = tensor((4, 8, 5, 3), strides=(480, 4, 96, 32))
    different = [
        call(),
        call((4, 8, 3, 5)),
        call(outputs=("dX",)),
        call(X=tensor((4, 8, 5, 3), alignment=4)),
        call(dY=last, X=last, dX=last),
        call(Scale=tensor((8,), "float64")),
    ]
    for each in different:
        batch_norm.plan(each)
    assert len({task.key for task, _ in search.asked}) == len(different)


def test_the_winner_runs_on_all_arrays_in_a_workspace(search: Search) -> None:
    plan = batch_norm.plan(call(outputs=("dX", "dBias")))
    plan((1, 2, 3, 4, 5), (6, 7), 9)
    assert search.winner.runs == [((1, 2, 3, 4, 5), (6, 7), 4096, 9)]
    assert plan.scratch == 100


def test_our_kernel_takes_the_scratch_memory_of_the_stream(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[Any] = []

    def launch(*arguments: Any) -> None:
        launched.append(arguments)

    monkeypatch.setattr(launches_plan, "scratch", lambda device, stream, size: (77, 4096))
    problem: Any = batch_norm._task(call(), DEVICE).sources[0]
    search.winner = streaming.build(problem.problem, DEVICE, {})
    each: Any = launch
    search.winner.alone = launches_plan.scratch_plan("fake", 100, each, DEVICE)
    plan = batch_norm.plan(call())
    plan((1, 2, 3, 4, 5), (6, 7, 8), 9)
    assert plan.kernel == "streaming"  # the name that pins it
    assert launched == [((1, 2, 3, 4, 5, 6, 7, 8, 4096, 77), 9)]


def test_an_empty_batch_is_not_searched(search: Search) -> None:
    plan: Any = batch_norm.plan(call((0, 8, 5)))
    assert (search.asked, plan.kernel, plan.sizes) == ([], "empty", (0, 32, 32))


def test_an_output_that_overlaps_itself_is_refused(search: Search) -> None:
    with pytest.raises(Refusal, match="dScale: elements of it share memory"):
        batch_norm.plan(call(dScale=tensor((8,), strides=(0,))))


def test_no_candidate_left_is_a_refusal_with_the_reasons(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: Any, **__: Any) -> Choice:
        raise Refusal("persistent: too large")

    monkeypatch.setattr(batch_norm, "choose", none_left)
    with pytest.raises(Refusal, match="persistent: too large"):
        batch_norm.plan(call())
