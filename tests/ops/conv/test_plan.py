"""ConvGrad's plan for a GPU, without one: the problems a call becomes, what is zero, pinned, or refused."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gradkern.call import Call, Refusal, Tensor
from gradkern.cuda.device import Device, OutOfMemoryError
from gradkern.errors import ProviderError
from gradkern.ops.conv import resolve
from gradkern.ops.conv.cuda import plan as conv
from gradkern.policy import Policy
from gradkern.search import plan as search_plan
from gradkern.search.tuner import Choice
from gradkern.strides import c_strides

DEVICE = Device(0, (9, 0), 132, 232448)


@dataclass(eq=False)
class Fake:
    name: str
    workspace: int = 0
    runs: list[Any] = field(default_factory=list)
    origin = "fake"
    notes = frozenset()
    recipe: Any = None

    def prepare(self) -> None:
        pass

    def __call__(self, inputs: tuple[int, ...], outputs: tuple[int, ...], workspace: int, stream: int) -> None:
        self.runs.append((inputs, outputs, workspace, stream))


def runs(choice: Choice) -> list[Any]:
    """What the chosen fake was called with."""
    assert isinstance(choice.candidate, Fake)
    return choice.candidate.runs


class Search:
    """In place of the search: the winner of every task is a fake, and what was asked is remembered."""

    def __init__(self) -> None:
        self.tasks: list[Any] = []
        self.pins: list[str | None] = []
        self.workspaces: dict[str, list[int]] = {}

    def __call__(self, task: Any, policy: Policy, device: Device, pin: str | None = None, seconds: float = 3.0) -> Any:
        self.tasks.append(task)
        self.pins.append(pin)
        gradient = task.kind.split()[1]
        return FakeChoice(task, gradient, self.workspaces.get(gradient, [0]))


class FakeChoice(Choice):
    def __init__(self, task: Any, gradient: str, sizes: list[int]) -> None:
        super().__init__(task, Fake(f"fake {gradient} {sizes[0]}", sizes[0]))
        object.__setattr__(self, "_rest", (gradient, sizes[1:]))  # it is frozen

    def smaller(self) -> Choice:
        gradient, sizes = vars(self)["_rest"]
        if not sizes:
            raise Refusal("there is no candidate")
        return FakeChoice(self.task, gradient, sizes)


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> Search:
    made = Search()
    monkeypatch.setattr(conv, "device_of", lambda call: DEVICE)
    monkeypatch.setattr(conv, "choose", made)
    monkeypatch.setattr(search_plan, "is_current", lambda device: True)
    monkeypatch.setattr(search_plan, "scratch", lambda device, stream, size: (0, 4096))
    return made


@pytest.fixture
def zeros(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(address, bytes) of what is set to zero."""
    written: list[tuple[int, int]] = []

    def memset(address: int, value: int, size: int, stream: int) -> tuple[Any]:
        written.append((address, size))
        return (search_plan.driver.CUresult.CUDA_SUCCESS,)

    monkeypatch.setattr(search_plan.driver, "cuMemsetD8Async", memset)
    return written


def tensor(shape: tuple[int, ...], dtype: str = "float32", **changes: Any) -> Tensor:
    kind = np.dtype(dtype)
    return Tensor(kind, shape, c_strides(shape, kind.itemsize), 16)._replace(**changes)


def call(
    X: tuple[int, ...] = (2, 4, 6, 5),
    W: tuple[int, ...] = (8, 4, 3, 3),
    outputs: tuple[str, ...] = ("dX", "dW", "dB"),
    policy: Policy | None = None,
    changes: dict[str, Tensor] | None = None,
    **attributes: Any,
) -> Call:
    rank = len(W) - 2
    given = {"auto_pad": "NOTSET", "pads": None, "strides": None, "dilations": None, "kernel_shape": None, "group": 1}
    given |= attributes
    pads, strides = given["pads"] or (0,) * 2 * rank, given["strides"] or (1,) * rank
    out = tuple((X[2 + i] + pads[i] + pads[rank + i] - W[2 + i]) // strides[i] + 1 for i in range(rank))
    axes = {"N": X[0], "C": X[1], "M": W[0], "C_per_group": W[1], "spatial": X[2:], "kernel": W[2:], "out": out}
    inputs = {"dY": tensor((X[0], W[0], *out)), "X": tensor(X), "W": tensor(W)}
    results = {"dX": tensor(X), "dW": tensor(W), "dB": tensor((W[0],))}
    for name, changed in (changes or {}).items():
        (inputs if name in inputs else results)[name] = changed
    return Call(
        operator="ConvGrad",
        inputs=inputs,
        outputs={name: results[name] for name in outputs},
        attributes=resolve(axes, given),
        axes=axes,
        in_place=frozenset(),
        device="cuda:0",
        policy=policy or Policy(),
    )


# --- the problems a call becomes --------------------------------------------------------------------------------------


def test_every_gradient_is_a_problem_and_a_search_of_its_own(search: Search) -> None:
    conv.plan(call(strides=(2, 1), pads=(1, 0, 2, 1)))
    dX, dW, dB = search.tasks
    assert [task.kind for task in (dX, dW, dB)] == [
        f"ConvGrad {name} float32 channels-first" for name in ("dX", "dW", "dB")
    ]
    assert [[each.shape for each in task.inputs] for task in (dX, dW, dB)] == [
        [(2, 8, 4, 4), (8, 4, 3, 3)],
        [(2, 8, 4, 4), (2, 4, 6, 5)],
        [(2, 8, 4, 4)],
    ]
    assert [task.outputs[0].shape for task in (dX, dW, dB)] == [(2, 4, 6, 5), (8, 4, 3, 3), (8,)]
    assert [task.terms for task in (dX, dW, dB)] == [8 * 9, 2 * 16, 2 * 16]
    problem = dX.sources[0].problem
    geometry = problem.geometry
    assert (geometry.strides, geometry.pads_begin, geometry.pads_end) == ((2, 1), (1, 0), (2, 1))


def test_only_what_is_wanted_is_searched(search: Search) -> None:
    plan = conv.plan(call(outputs=("dW",)))
    assert [task.kind for task in search.tasks] == ["ConvGrad dW float32 channels-first"]
    assert plan.kernel == "dW: fake dW 0"


def test_kernels_for_depthwise_convolutions_are_tried_first_and_only_there(search: Search) -> None:
    conv.plan(call(W=(8, 1, 3, 3), group=4, outputs=("dX", "dW")))
    conv.plan(call(W=(8, 2, 3, 3), group=2, outputs=("dX",)))
    conv.plan(call(X=(2, 1, 6, 5), W=(8, 1, 3, 3), outputs=("dX",)))
    names = [[source.name for source in task.sources] for task in search.tasks]
    others = ["cudnn", "gemm"]
    dX, dW = ["depthwise", "depthwise_mma", *others], ["depthwise_mma", "depthwise", *others]
    assert names == [dX, dW, [*others, "channels_last"], [*others, "channels_last"]]


@pytest.mark.parametrize(
    ("images", "size", "taps", "first"),
    [
        (64, 56, 7, "depthwise_mma"),
        (64, 28, 5, "depthwise_mma"),
        (64, 28, 3, "depthwise"),
        (64, 7, 7, "depthwise"),
        (1, 28, 5, "depthwise"),
    ],
)
def test_depthwise_kernels_on_tensor_cores_are_first_for_many_taps_of_wide_rows_where_there_is_much_to_do(
    search: Search, images: int, size: int, taps: int, first: str
) -> None:
    X, W = (images, 96, size, size), (96, 1, taps, taps)
    conv.plan(call(X, W, ("dX",), group=96, pads=(taps // 2,) * 4))
    assert search.tasks[0].sources[0].name == first


def test_a_kernel_for_few_channels_is_tried_first_where_there_may_be_one(search: Search) -> None:
    few, filters, out = (
        tensor((2, 3, 6, 5), "float16"),
        tensor((8, 3, 3, 3), "float16"),
        tensor((2, 8, 4, 3), "float16"),
    )
    changes = {"X": few, "W": filters, "dY": out, "dX": few, "dW": filters}
    conv.plan(call(X=(2, 3, 6, 5), W=(8, 3, 3, 3), outputs=("dX", "dW"), changes=changes))
    conv.plan(call(X=(2, 3, 6, 5), W=(8, 3, 3, 3), outputs=("dW",)))
    conv.plan(call(X=(2, 8, 6, 5), W=(8, 8, 3, 3), outputs=("dW",), changes={"dY": out}))
    names = [[source.name for source in task.sources] for task in search.tasks]
    others = ["cudnn", "gemm", "channels_last"]
    assert names == [others, ["few_channels", "channels_last", "cudnn", "gemm"], others, others]


def test_the_key_tells_apart_all_that_a_gradient_depends_on(search: Search) -> None:
    different = [
        call(),
        call(strides=(2, 1)),
        call(pads=(1, 0, 0, 0)),
        call(pads=(0, 0, 1, 0)),
        call(X=(3, 4, 6, 5)),
        call(changes={"dY": tensor((2, 8, 4, 3), alignment=4)}),
        call(changes={"W": tensor((8, 4, 3, 3), strides=(4, 32, 128, 384))}),
        call(changes={"dX": tensor((2, 4, 6, 5), strides=(480, 4, 80, 16))}),
        call(W=(8, 2, 3, 3), group=2),
    ]
    for each in different:
        conv.plan(replace(each, outputs={"dX": each.outputs["dX"]}))
    assert len({task.key for task in search.tasks}) == len(different)


def transposed(outputs: tuple[str, ...], biased: bool = False, dtype: str = "float32", group: int = 1) -> Call:
    """Of X (2, 4, 6, 5) and W (4, 8, 3, 3), with strides of 2 and 1: Y is (2, 8 * group, 13, 6)."""
    given: dict[str, Any] = {"auto_pad": "NOTSET", "kernel_shape": None, "dilations": None, "output_shape": None}
    given |= {"group": group, "strides": (2, 1), "pads": (1, 0, 0, 1), "output_padding": (1, 0)}
    axes: dict[str, Any] = {"N": 2, "C": 4, "M_per_group": 8, "M": 8 * group, "spatial": (6, 5), "kernel": (3, 3)}
    resolved = resolve(axes, given)
    axes["out"] = resolved.pop("out")
    Y, X, W = (tensor(each, dtype) for each in ((2, 8 * group, *axes["out"]), (2, 4, 6, 5), (4, 8, 3, 3)))
    B = tensor((8 * group,), dtype)
    operator = "ConvTranspose" if outputs == ("Y",) else "ConvTransposeGrad"
    inputs = (
        {"X": X, "W": W} | ({"B": B} if biased else {}) if operator == "ConvTranspose" else {"dY": Y, "X": X, "W": W}
    )
    results = {"Y": Y, "dX": X, "dW": W, "dB": B}
    made = {name: results[name] for name in outputs}
    return Call(operator, inputs, made, resolved, axes, frozenset(), "cuda:0", Policy())


def test_a_transposed_convolution_asks_for_the_results_of_its_convolution(search: Search) -> None:
    plan = conv.plan(transposed(("dX", "dW", "dB")))
    plan((1, 2, 3), (4, 5, 6), 7)
    found = {name: runs(choice) for name, choice in plan.choices.items()}
    assert found == {"dX": [((1, 3), (4,), 0, 7)], "dW": [((2, 1), (5,), 0, 7)], "dB": [((1,), (6,), 0, 7)]}
    conv.plan(transposed(("Y",)))
    of_transposed = {task.kind: task for task in search.tasks}
    assert [*of_transposed] == [
        "Conv Y float32 channels-first",
        "ConvGrad dW float32 channels-first",
        "ConvGrad dB float32 channels-first",
        "ConvGrad dX float32 channels-first",
    ]
    search.tasks.clear()
    conv.plan(call((2, 8, 13, 6), (4, 8, 3, 3), strides=(2, 1), pads=(1, 0, 0, 1)))
    for task in search.tasks[:2]:  # a search for either serves both
        assert of_transposed[task.kind].key == task.key


# --- running ----------------------------------------------------------------------------------------------------------


def test_one_gradient_runs_on_its_own_arrays(search: Search) -> None:
    search.workspaces["dW"] = [100]
    plan = conv.plan(call(outputs=("dW",)))
    plan((1, 2, 3), (4,), 7)
    assert runs(plan.choices["dW"]) == [((1, 2), (4,), 4096, 7)]
    assert plan.scratch == 100


def test_several_run_together_each_on_its_own_arrays(search: Search) -> None:
    plan = conv.plan(call())
    plan((1, 2, 3), (4, 5, 6), 7)
    found = {name: runs(choice) for name, choice in plan.choices.items()}
    assert found == {"dX": [((1, 3), (4,), 0, 7)], "dW": [((1, 2), (5,), 0, 7)], "dB": [((1,), (6,), 0, 7)]}
    assert plan.kernel == "dX: fake dX 0; dW: fake dW 0; dB: fake dB 0"


def test_all_use_one_workspace_in_turn(search: Search) -> None:
    search.workspaces = {"dX": [1000], "dW": [512], "dB": [0]}
    plan = conv.plan(call())
    assert plan.scratch == 1000
    plan((1, 2, 3), (4, 5, 6), 7)
    assert [runs(choice)[0][2] for choice in plan.choices.values()] == [4096] * 3


def test_a_workspace_that_cannot_be_had_gives_way_to_the_next(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    def scratch(device: Device, stream: int, size: int) -> tuple[int, int]:
        if size > 50:
            raise OutOfMemoryError(f"CUDA: no {size} bytes")
        return 0, 4096

    monkeypatch.setattr(search_plan, "scratch", scratch)
    search.workspaces = {"dX": [100, 80, 40], "dW": [60, 20]}
    plan = conv.plan(call(outputs=("dX", "dW")))
    plan((1, 2, 3), (4, 5), 7)
    assert plan.kernel == "dX: fake dX 40; dW: fake dW 20"
    search.workspaces = {"dX": [100, 80]}
    plan = conv.plan(call(outputs=("dX",)))
    with pytest.raises(ProviderError, match="no 80 bytes; no other kernel for dX: there is no candidate"):
        plan((1, 2, 3), (4,), 7)


# --- edges ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("X", "W", "wanted", "zero"),
    [
        ((0, 4, 6, 5), (8, 4, 3, 3), [], {5: 8 * 36 * 4, 6: 8 * 4}),  # no images: dW and dB sum over nothing
        ((2, 0, 6, 5), (8, 0, 3, 3), ["dB"], {}),  # no channels: only dB has elements
        ((2, 4, 6, 5), (0, 4, 3, 3), [], {4: 2 * 4 * 30 * 4}),  # no filters: dX sums over nothing
    ],
)
def test_empty_axes(
    search: Search, zeros: list[tuple[int, int]], X: Any, W: Any, wanted: list[str], zero: dict[int, int]
) -> None:
    plan = conv.plan(call(X, W))
    plan((1, 2, 3), (4, 5, 6), 7)
    assert [task.kind.split()[1] for task in search.tasks] == wanted
    assert dict(zeros) == zero


def test_when_all_is_empty_nothing_runs(search: Search, zeros: list[tuple[int, int]]) -> None:
    plan = conv.plan(call((0, 4, 6, 5), outputs=("dX",)))
    plan((1, 2, 3), (4,), 7)
    assert (search.tasks, zeros, plan.kernel, plan.scratch) == ([], [], "zeros", 0)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"dY": tensor((2, 8, 4, 3), alignment=2)}, "dY: its elements are not aligned to their size"),
        ({"W": tensor((8, 4, 3, 3), strides=(146, 36, 12, 4))}, "W: its elements are not aligned"),
        ({"dX": tensor((2, 4, 6, 5), strides=(0, 120, 20, 4))}, "dX: elements of it share memory"),
    ],
)
def test_arrays_that_no_candidate_takes_are_refused(search: Search, changes: dict[str, Tensor], text: str) -> None:
    with pytest.raises(Refusal, match=text):
        conv.plan(call(outputs=("dX",), changes=changes))


def test_a_zero_gradient_with_gaps_is_refused(search: Search) -> None:
    spread = tensor((8, 4, 3, 3), strides=(288, 72, 24, 8))
    with pytest.raises(Refusal, match="dW: it is not contiguous"):
        conv.plan(call((0, 4, 6, 5), outputs=("dW",), changes={"dW": spread}))


def test_no_candidate_left_is_a_refusal_with_the_reasons(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: Any, **__: Any) -> Choice:
        raise Refusal("a and 3 more: too old")

    monkeypatch.setattr(conv, "choose", none_left)
    with pytest.raises(Refusal, match="a and 3 more: too old"):
        conv.plan(call())


# --- pins -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "outputs", "pins"),
    [
        ("gemm", ("dX",), ["gemm"]),
        ("dX: gemm", ("dX",), ["gemm"]),
        ("dX: gemm; dW: cudnn_eng1", ("dX", "dW"), ["gemm", "cudnn_eng1"]),
        ("dW: cudnn_eng1", ("dX", "dW"), [None, "cudnn_eng1"]),
    ],
)
def test_kernels_are_pinned_by_gradient(search: Search, kernel: str, outputs: Any, pins: list[str | None]) -> None:
    conv.plan(call(outputs=outputs, policy=Policy(kernel=kernel)))
    assert search.pins == pins


@pytest.mark.parametrize("kernel", ["gemm", "dZ: gemm"])
def test_a_pin_that_names_no_gradient_is_refused(search: Search, kernel: str) -> None:
    with pytest.raises(
        Refusal, match=f"has no kernel '{kernel}'; with several gradients a pin is 'dX: NAME; dW: NAME'"
    ):
        conv.plan(call(policy=Policy(kernel=kernel)))


def forward(biased: bool, X: tuple[int, ...] = (2, 4, 6, 5), W: tuple[int, ...] = (8, 4, 3, 3), group: int = 1) -> Call:
    out = tuple(size - taps + 1 for size, taps in zip(X[2:], W[2:], strict=True))
    axes = {"N": X[0], "C": X[1], "M": W[0], "C_per_group": W[1], "spatial": X[2:], "kernel": W[2:]}
    given = {"auto_pad": "NOTSET", "pads": None, "strides": None, "dilations": None, "kernel_shape": None}
    attributes = resolve(axes, {**given, "group": group})
    assert attributes["out"] == out
    inputs = {"X": tensor(X), "W": tensor(W)} | ({"B": tensor(W[:1])} if biased else {})
    outputs = {"Y": tensor((X[0], W[0], *out))}
    return Call("Conv", inputs, outputs, attributes, {**axes, "out": out}, frozenset(), "cuda:0", Policy())


def test_a_forward_pass_is_one_problem_of_its_inputs_with_or_without_a_bias(search: Search) -> None:
    for biased in (False, True):
        plan = conv.plan(forward(biased))
        assert plan.kernel == "Y: fake Y 0"
        plan((1, 2, 3) if biased else (1, 2), (9,), 5)
        assert runs(plan.choices["Y"])[-1] == ((1, 2, 3) if biased else (1, 2), (9,), 0, 5)
    kinds = ["Conv Y float32 channels-first", "Conv Y float32 channels-first bias"]
    assert [task.kind for task in search.tasks] == kinds
    assert [task.terms for task in search.tasks] == [37, 37]
    conv.plan(forward(True, W=(4, 1, 3, 3), group=4))
    names = ["depthwise", "depthwise_mma", "cudnn", "gemm"]
    assert [each.name for each in search.tasks[-1].sources] == names


def test_a_forward_pass_of_no_channels_is_zero_and_refused_with_a_bias(
    search: Search, zeros: list[tuple[int, int]]
) -> None:
    nothing: Any = {"X": (2, 0, 6, 5), "W": (8, 0, 3, 3)}
    conv.plan(forward(False, **nothing))((1, 2), (9,), 5)
    assert zeros == [(9, 2 * 8 * 4 * 3 * 4)]
    with pytest.raises(Refusal, match="no channels with a bias"):
        conv.plan(forward(True, **nothing))
    assert search.tasks == []
