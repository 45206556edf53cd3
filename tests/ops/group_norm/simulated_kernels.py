"""The kernels of group norms under the CUDA simulator, from a call's plan to its results."""

from __future__ import annotations

from collections.abc import Sequence
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest
from helpers import simulated
from helpers.covers import pairwise
from helpers.guarded import Guarded
from helpers.held import Held, hold
from helpers.reference import reference
from helpers.terms import terms
from helpers.tolerance import assert_close, assert_within_terms

from gradkern.call import Call
from gradkern.cuda import launches_plan
from gradkern.cuda.device import Device
from gradkern.cuda.launch import KernelConfig
from gradkern.ops.group_norm.cuda import plan as planning
from gradkern.policy import Policy

b, h, f, d = "bfloat16", "float16", "float32", "float64"
LAYOUTS = ["planes", "lines"]
WAYS = ["whole", "clusters", "passes"]


class Kernel:
    """Stands for a loaded kernel."""

    def __init__(self, builder: str, config: KernelConfig) -> None:
        self.function, self.shared_bytes = resolve_name(builder)(config), config.shared_bytes


def kernel_of_config(
    _device: Device, builder: str, config: KernelConfig, *, arguments: int, cluster: int = 1
) -> Kernel:
    return Kernel(builder, config)


class Launch:
    """Stands for launch.Launch."""

    def __init__(
        self,
        kernel: Kernel,
        grid: int,
        threads: int,
        arguments: Sequence[int],
        changing: Sequence[int],
        cluster: int = 1,
        overlaps: bool = False,
    ) -> None:
        self.kernel, self.grid, self.threads, self.cluster = kernel, grid, threads, cluster
        self.arguments, self.changing = arguments, changing

    def __call__(self, values: Sequence[int], _stream: int) -> None:
        arguments = list(self.arguments)
        for index, value in zip(self.changing, values, strict=True):
            arguments[index] = value
        given = tuple(np.int64(each) for each in arguments)
        simulated.launch(self.kernel.function, self.grid, self.threads, self.cluster, self.kernel.shared_bytes, given)


@pytest.fixture(autouse=True)
def in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans run as Python, on a device of one multiprocessor, in small blocks."""
    device = Device(0, (9, 0), 1, 232448)
    monkeypatch.setattr(planning, "kernel_of_config", kernel_of_config)
    monkeypatch.setattr(planning, "Launch", Launch)
    monkeypatch.setattr(planning, "device_of", lambda _call: device)
    monkeypatch.setattr(planning, "_THREADS", 64)
    monkeypatch.setattr(planning, "_BATCHES", 1)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Groups that a block, or a cluster, has at once; two passes."""
    if request.param == "clusters":
        for name in ("_CLUSTERS", "_CLUSTERS_OF_LINES"):
            monkeypatch.setattr(planning, name, (2, 4))
    if request.param == "passes":
        monkeypatch.setattr(planning, "_whole", lambda *_: None)
    return request.param


def run(
    operator: str, inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray], attributes: dict[str, Any],
    layout: str, monkeypatch: pytest.MonkeyPatch, in_place: str = "", start: int = 0,
) -> dict[str, np.ndarray]:  # fmt: skip
    """outputs: arrays of their shapes and types. The data, which has the rank of X, gets the layout."""
    X = inputs["input" if operator.startswith("Instance") else "X"]
    rank = X.ndim
    axes = (0, *range(2, rank), 1) if layout == "lines" else tuple(range(rank))

    def held(each: np.ndarray) -> Held:
        return hold(each, axes=axes, offset=start) if each.shape == X.shape else hold(each)

    read = {name: held(each) for name, each in inputs.items()}
    write = {name: held(each) for name, each in outputs.items()}
    for name, each in read.items():
        if name != in_place:
            each.memory.freeze()
    for each in write.values():
        each.memory.poison()
    if in_place:
        write[next(iter(write))] = read[in_place]
    N, C = X.shape[:2]
    groups = attributes.get("groups", attributes.get("num_groups", C))
    sizes = {"N": N, "C": C, "spatial": X.shape[2:], "G": groups}
    given, wanted = ({name: each.tensor for name, each in of.items()} for of in (read, write))
    pairs = frozenset({(in_place, next(iter(write)))} if in_place else ())
    plan = planning.plan(Call(operator, given, wanted, attributes, sizes, pairs, "cuda:0", Policy()))
    buffer = Guarded((max(1, plan.scratch),), np.uint8)
    monkeypatch.setattr(launches_plan, "scratch", lambda *_: (0, buffer.address))
    plan(tuple(each.address for each in read.values()), tuple(each.address for each in write.values()), 0)
    for each in (*read.values(), *write.values()):
        each.memory.check()
    buffer.check()
    return {name: np.array(each.array) for name, each in write.items()}


def drawn(shape: tuple[int, ...], groups: int, dtype: str, parameter: str, saved: str, offset: float) -> dict[str, Any]:
    random = np.random.default_rng(0)
    wide = random.standard_normal(shape) + offset
    X = wide.astype(dtype)
    grouped = X.astype(np.float64).reshape(shape[0], groups, -1)
    arrays = {"dY": random.standard_normal(shape).astype(dtype), "X": X}
    arrays["mean"] = grouped.mean(2).astype(saved)
    arrays["inv_std"] = (1 / np.sqrt(grouped.var(2) + 1e-5)).astype(saved)
    arrays |= {name: random.standard_normal(shape[1]).astype(parameter) for name in ("gamma", "beta")}
    return arrays


def check_gradient(
    shape: tuple[int, ...], groups: int, dtype: str, layout: str, monkeypatch: pytest.MonkeyPatch,
    activation: str = "silu", parameter: str = "", saved: str = "", more: tuple[str, ...] = (), offset: float = 0.0,
    without: tuple[str, ...] = (), wanted: tuple[str, ...] = (), **how: Any,
) -> None:  # fmt: skip
    random = np.random.default_rng(1)
    arithmetic = d if dtype == d else f
    inputs = drawn(shape, groups, dtype, parameter or arithmetic, saved or arithmetic, offset)
    shapes = {"sample_scale": shape[:2], "sample_shift": shape[:2], "residual_grad": shape}
    inputs |= {name: random.standard_normal(shapes[name]).astype(dtype) for name in more}
    inputs = {name: each for name, each in inputs.items() if name not in without}
    attributes = {"groups": groups, "activation": activation, "activation_alpha": 0.2, "channels_last": 0}
    expected, of = reference("GroupNormGrad", inputs, attributes), terms("GroupNormGrad", inputs, attributes)
    if offset:
        wide = inputs["X"].astype(np.float64)
        mean = (
            inputs["mean"].astype(np.float64).repeat(shape[1] // groups, 1).reshape(*shape[:2], *[1] * (len(shape) - 2))
        )
        of = terms("GroupNormGrad", {**inputs, "X": wide - mean, "mean": 0 * inputs["mean"]}, attributes)
    names = wanted or ("dX", "dgamma", "dbeta", "sample_scale_grad", "sample_shift_grad")
    kinds: dict[str, str] = dict.fromkeys(("dgamma", "dbeta"), parameter or arithmetic)
    outputs = {name: np.zeros(expected[name].shape, kinds.get(name, dtype)) for name in names}
    found = run("GroupNormGrad", inputs, outputs, attributes, layout, monkeypatch, **how)
    for name, each in found.items():
        assert_within_terms(each, expected[name], of[name])


def check_output(
    shape: tuple[int, ...], groups: int, dtype: str, layout: str, monkeypatch: pytest.MonkeyPatch,
    activation: str = "silu", parameter: str = "", more: tuple[str, ...] = (), offset: float = 0.0, **how: Any,
) -> None:  # fmt: skip
    random = np.random.default_rng(1)
    arithmetic = d if dtype == d else f
    all_of_them = drawn(shape, groups, dtype, parameter or arithmetic, arithmetic, offset)
    inputs = {"X": all_of_them["X"], "scale": all_of_them["gamma"], "bias": all_of_them["beta"]}
    inputs |= {name: random.standard_normal(shape[:2]).astype(dtype) for name in more}
    attributes = {"num_groups": groups, "activation": activation, "activation_alpha": 0.2, "epsilon": 1e-5}
    outputs = {"Y": np.zeros(shape, dtype)}
    outputs |= {name: np.zeros((shape[0], groups), arithmetic) for name in ("mean", "inv_std")}
    expected = reference("GroupNormalization", inputs, attributes)
    found = run("GroupNormalization", inputs, outputs, attributes, layout, monkeypatch, **how)
    size = np.abs(inputs["X"].astype(np.float64)).reshape(shape[0], groups, -1).mean(2)
    assert_close("GroupNormalization", "mean", found["mean"], expected["mean"], size)
    assert_close("GroupNormalization", "inv_std", found["inv_std"], expected["inv_std"])
    if not offset:
        assert_close("GroupNormalization", "Y", found["Y"], expected["Y"])


@pytest.mark.parametrize(("way", "layout", "dtype"), pairwise(WAYS, LAYOUTS, (b, h, f, d)), indirect=["way"])
def test_every_type(way: str, layout: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_gradient((2, 12, 5, 8), 3, dtype, layout, monkeypatch)
    check_output((2, 12, 5, 8), 3, dtype, layout, monkeypatch)
    if dtype in (b, h):
        check_gradient((2, 12, 5, 8), 3, dtype, layout, monkeypatch, parameter=dtype, saved=dtype)
        check_output((2, 12, 5, 8), 3, dtype, layout, monkeypatch, parameter=dtype)


@pytest.mark.parametrize(
    ("way", "layout", "shape"),
    pairwise(WAYS, LAYOUTS, [(3, 8), (2, 6, 5), (1, 10, 7, 7), (2, 16, 3, 4, 5), (1, 24, 300)]),
    indirect=["way"],
)
def test_every_shape(way: str, layout: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for groups in (1, 2, shape[1]) if shape[0] > 1 else (1, shape[1]):
        check_gradient(shape, groups, b, layout, monkeypatch)
        check_output(shape, groups, f, layout, monkeypatch)


def test_a_line_of_more_vectors_than_a_block_has_threads(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for groups in (1, 2):
        check_gradient((1, 520, 9), groups, b, "lines", monkeypatch)
        check_output((1, 520, 9), groups, f, "lines", monkeypatch)


@pytest.mark.parametrize(
    ("way", "layout", "activation"),
    pairwise(WAYS, LAYOUTS, ["none", "relu", "leaky_relu", "silu", "gelu"]),
    indirect=["way"],
)
def test_every_activation_with_numbers_of_samples(
    way: str, layout: str, activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ("sample_scale", "sample_shift")
    check_gradient((2, 8, 3, 8), 2, f, layout, monkeypatch, activation, more=(*more, "residual_grad"))
    check_gradient((2, 8, 3, 8), 2, d, layout, monkeypatch, activation, more=more)
    check_output((2, 8, 3, 8), 2, f, layout, monkeypatch, activation, more=more)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_single_outputs_and_missing_parameters(way: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("dX", "dgamma", "dbeta", "sample_scale_grad", "sample_shift_grad"):
        check_gradient((2, 8, 3, 8), 2, f, layout, monkeypatch, wanted=(name,))
    check_gradient((2, 8, 3, 8), 2, f, layout, monkeypatch, without=("gamma", "beta"), wanted=("dX",))


@pytest.mark.parametrize(
    ("way", "layout", "sum_of"),
    pairwise(WAYS, LAYOUTS, [("elements", False, d), ("elements", True, b), ("channels", True, f)]),
    indirect=["way"],
)
def test_the_norm_is_of_the_rounded_sum_with_skip_and_bias(
    way: str, layout: str, sum_of: tuple[str, bool, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    skip, biased, dtype = sum_of
    everything = ["Y", "S", "mean", "inv_std"]
    for shape, wanted, in_place in [
        *(((2, 12, 5, 8), wanted, "") for wanted in (everything, ["Y"], ["S"])),
        ((1, 12, 7, 7), everything, "X"),
    ]:
        random, arithmetic = np.random.default_rng(0), d if dtype == d else f
        inputs = {"X": (random.standard_normal(shape) + 3).astype(dtype)}
        inputs |= {name: random.standard_normal(shape[1]).astype(arithmetic) for name in ("gamma", "beta")}
        inputs["skip"] = (random.standard_normal(shape if skip == "elements" else shape[:2]) + 30).astype(dtype)
        if biased:
            inputs["bias"] = random.standard_normal(shape[1]).astype(dtype)
        attributes = {"groups": 3, "activation": 1, "channels_last": 0, "epsilon": 1e-5}
        expected = reference("SkipGroupNorm", inputs, attributes)
        outputs = {n: np.zeros(expected[n].shape, dtype if n in ("Y", "S") else arithmetic) for n in wanted}
        if in_place:  # the first of the outputs is over X
            outputs = dict(sorted(outputs.items(), key=lambda each: each[0] != "S"))
        found = run("SkipGroupNorm", inputs, outputs, attributes, layout, monkeypatch, in_place=in_place)
        for name, each in found.items():
            assert_close("SkipGroupNorm", name, each, expected[name])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_output_may_be_written_over_the_input(way: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_output((48, 8, 3, 8), 2, f, layout, monkeypatch, in_place="X")


@pytest.mark.parametrize(
    ("way", "layout", "in_place"), pairwise(WAYS, LAYOUTS, ["dY", "X", "residual_grad"]), indirect=["way"]
)
def test_in_place(way: str, layout: str, in_place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_gradient((2, 8, 3, 8), 2, f, layout, monkeypatch, more=("residual_grad",), in_place=in_place)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [b, f])
def test_arrays_that_begin_between_vectors(way: str, layout: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for start in (1, 2):
        check_gradient((2, 8, 3, 8), 2, dtype, layout, monkeypatch, start=start)
        check_output((2, 8, 3, 8), 2, dtype, layout, monkeypatch, start=start)


@pytest.mark.parametrize(("way", "layout", "dtype"), pairwise(WAYS, LAYOUTS, (f, d, b)), indirect=["way"])
def test_a_mean_far_above_the_deviation(way: str, layout: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_gradient((2, 8, 20, 8), 2, dtype, layout, monkeypatch, "none", offset=1000.0)
    check_output((2, 8, 20, 8), 2, dtype, layout, monkeypatch, offset=1000.0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_group_does_not_see_the_next_ones_data(way: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, groups = (2, 10, 7, 8), 2  # five channels a group: some rows of threads have none
    inputs = drawn(shape, groups, b, f, f, 0.0)
    attributes = {"groups": groups, "activation": "silu", "activation_alpha": 0.2, "channels_last": 0}
    expected = reference("GroupNormGrad", inputs, attributes)["dX"]
    inputs["X"] = np.where(np.arange(20).reshape(2, 10, 1, 1) < 5, inputs["X"], np.asarray(np.nan, b)).astype(b)
    found = run("GroupNormGrad", inputs, {"dX": np.zeros(shape, b)}, attributes, layout, monkeypatch)["dX"]
    of = terms("GroupNormGrad", inputs, attributes)["dX"]
    assert_within_terms(found[:1, :5], expected[:1, :5], of[:1, :5])
