"""ConvGrad whole on a GPU: every source in one search, every type, layout and policy against float64, guarded."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.capture import Capture
from helpers.conv_gemm import Shape, lying, per_axis, tensor
from helpers.guarded import OnDevice
from helpers.reference import reference
from helpers.searches import keep_searches_in
from helpers.tolerance import CONV_NORM, assert_close

from gradkern.call import Call
from gradkern.errors import ProviderError
from gradkern.ops.conv import resolve
from gradkern.policy import Policy

pytestmark = pytest.mark.gpu

NHWC = ("nhwc", "nhwc", "nhwc")
EXACT = Policy("exhaustive", allow_tf32=False)
ALL = ("dX", "dW", "dB")
SHAPES = [
    Shape(4, 1, 32, 48, (14, 15), (3, 3), begin=(1, 1), end=(1, 1)),
    Shape(4, 1, 32, 48, (14, 15), (3, 3), begin=(1, 1), end=(1, 1), layouts=NHWC),
    Shape(4, 1, 24, 40, (14, 14), (1, 1)),
    Shape(4, 1, 24, 40, (14, 14), (1, 1), layouts=NHWC),
    Shape(3, 1, 24, 40, (15, 14), (1, 1), strides=(2, 2)),
    Shape(3, 1, 24, 16, (15, 14), (3, 3), strides=(2, 2), begin=(2, 0), end=(1, 1)),  # asymmetric pads
    Shape(3, 4, 8, 16, (13, 11), (3, 2), dilations=(2, 1), begin=(2, 1), end=(2, 0)),
    Shape(3, 32, 1, 1, (15, 14), (5, 5), begin=(2, 2), end=(2, 2)),  # depthwise
    Shape(3, 32, 1, 1, (15, 14), (5, 5), begin=(2, 2), end=(2, 2), layouts=NHWC),
    Shape(3, 16, 1, 2, (15, 14), (3, 3), strides=(2, 2), begin=(1, 1), end=(1, 1)),  # two filters a channel
    Shape(3, 1, 1, 8, (15, 14), (3, 3)),  # one channel
    Shape(3, 1, 5, 7, (3, 4), (3, 4)),  # a kernel as large as the image
    Shape(3, 1, 5, 7, (2, 3), (3, 4), begin=(1, 1), end=(1, 0)),  # and larger
    Shape(3, 1, 5, 7, (9, 9), (2, 2), strides=(4, 3)),  # elements that no tap sees
    Shape(4, 1, 32, 24, (301,), (3,), dilations=(4,), begin=(8,), end=(0,)),
    Shape(4, 16, 1, 1, (301,), (4,), begin=(1,), end=(2,)),
    Shape(2, 1, 16, 24, (6, 11, 9), (3, 3, 3), begin=(1, 1, 1), end=(1, 1, 1)),
    Shape(2, 1, 16, 24, (6, 11, 9), (3, 3, 3), begin=(1, 1, 1), end=(1, 1, 1), layouts=NHWC),
    Shape(3, 1, 12, 10, (9, 8), (3, 3), layouts=("gaps", "gaps", "gaps")),
    Shape(3, 1, 12, 10, (9, 8), (3, 3), layouts=("nhwc", "nchw", "nchw")),
    Shape(3, 4, 24, 24, (13, 11), (3, 3), begin=(1, 1), end=(1, 1), layouts=NHWC),  # groups that become wider ones
]


@pytest.fixture(autouse=True)
def quick_searches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Short searches, kept in a folder of the test's own; what they warn about is not what is tested."""
    from gradkern.ops.conv.cuda import plan as conv

    keep_searches_in(tmp_path, monkeypatch)
    monkeypatch.setattr(conv, "choose", partial(conv.choose, seconds=1.0))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="gradkern: .* not used, as it is wrong", category=RuntimeWarning)
        yield


class Run:
    """One call in guarded memory on the GPU, and the float64 answer."""

    def __init__(
        self,
        shape: Shape,
        dtype: str = "float32",
        outputs: tuple[str, ...] = ALL,
        policy: Policy = EXACT,
        offset: int = 0,
        empty: bool = False,
        seed: int = 1,
    ) -> None:
        random = np.random.default_rng(seed)
        strides, dilations = per_axis(shape.strides, shape, 1), per_axis(shape.dilations, shape, 1)
        begin, end = per_axis(shape.begin, shape, 0), per_axis(shape.end, shape, 0)
        sizes = zip(shape.spatial, shape.kernel, strides, dilations, begin, end, strict=True)
        out = tuple((size + b + e - (k - 1) * d - 1) // s + 1 for size, k, s, d, b, e in sizes)
        images = 0 if empty else shape.images
        channels, filters = shape.group * shape.channels, shape.group * shape.filters
        shapes = {
            "dY": (images, filters, *out),
            "X": (images, channels, *shape.spatial),
            "W": (filters, shape.channels, *shape.kernel),
            "dB": (filters,),
        }
        layouts = dict(zip(("dY", "X", "W"), shape.layouts, strict=True)) | {"dB": "nchw"}
        where = {"dY": "dY", "X": "X", "W": "W", "dX": "X", "dW": "W", "dB": "dB"}
        self.host = {
            name: lying(shapes[like], dtype, layouts[like], offset)
            for name, like in where.items()
            if name in ("dY", "X", "W", *outputs)
        }
        for name in ("dY", "X", "W"):
            self.host[name][1][...] = random.standard_normal(shapes[name]).astype(dtype)
            self.host[name][0].freeze()
        attributes = {"strides": strides, "dilations": dilations, "group": shape.group, "pads": (*begin, *end)}
        inputs = {name: self.host[name][1].copy() for name in ("dY", "X", "W")}
        self.expected = reference("ConvGrad", inputs, attributes)
        axes = {"N": images, "C": channels, "M": filters, "C_per_group": shape.channels}
        axes |= {"spatial": shape.spatial, "kernel": shape.kernel, "out": out}
        described = {name: tensor(array, each.address) for name, (each, array) in self.host.items()}
        self.call = Call(
            operator="ConvGrad",
            inputs={name: described[name] for name in ("dY", "X", "W")},
            outputs={name: described[name] for name in outputs},
            attributes=resolve(axes, {"auto_pad": "NOTSET", "kernel_shape": None, **attributes}),
            axes=axes,
            in_place=frozenset(),
            device="cuda:0",
            policy=policy,
        )
        from gradkern.cuda.device import activate, get_device

        with activate(get_device(0)):
            self.there = {name: OnDevice(each) for name, (each, _) in self.host.items()}

    def __call__(self, plan: Any, stream: int = 0) -> None:
        inputs, outputs = (
            tuple(self.there[name].address for name in side) for side in (self.call.inputs, self.call.outputs)
        )
        plan(inputs, outputs, stream)

    def poison(self, stream: int = 0) -> None:
        """So that what a call before wrote is there no more, on the stream."""
        from gradkern.cuda.device import activate, get_device

        with activate(get_device(0)):
            for name in self.call.outputs:
                self.there[name].poison(stream)

    def results(self) -> dict[str, np.ndarray]:
        """The outputs, after a look at all guards."""
        from gradkern.cuda.device import activate, get_device

        with activate(get_device(0)):
            for each in self.there.values():
                each.fetch()
        return {name: self.host[name][1].copy() for name in self.call.outputs}

    def check(self, tf32: bool = False) -> None:
        for name, result in self.results().items():
            if tf32:
                assert np.linalg.norm(result - self.expected[name]) <= 1e-3 * np.linalg.norm(self.expected[name]), name
            else:
                assert_close("ConvGrad", name, result, self.expected[name])


def planned(run: Run) -> Any:
    from gradkern.ops.conv.cuda.plan import plan

    return plan(run.call)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_all_gradients_of_every_shape_type_and_layout(shape: Shape, dtype: str) -> None:
    run = Run(shape, dtype, outputs=ALL[:2] if "gaps" in shape.layouts else ALL)  # dB is refused for dY with gaps
    plan = planned(run)
    run(plan)
    run.check()
    if "gaps" not in shape.layouts:  # which cuDNN does not take
        unconfirmed = {name: found.rejected for name, found in plan.results.items() if not found.confirmed}
        assert not unconfirmed or unconfirmed.keys() == {"dB"}


def test_arrays_with_gaps_have_all_gradients() -> None:
    torch = pytest.importorskip("torch")
    from gradkern import run

    dY, X = (torch.randn((3, 8, 9, 14), device="cuda")[..., ::2] for _ in range(2))
    W = torch.randn((8, 8, 3, 3), device="cuda")
    results = run("ConvGrad", dY, X, W, pads=[1, 1, 1, 1], policy=EXACT)
    inputs = {name: each.cpu().numpy() for name, each in (("dY", dY), ("X", X), ("W", W))}
    expected = reference("ConvGrad", inputs, {"pads": (1, 1, 1, 1)})
    for name, each in results._asdict().items():
        assert_close("ConvGrad", name, each.cpu().numpy(), np.asarray(expected[name]))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[7]], ids=str)
def test_each_gradient_alone(shape: Shape, name: str) -> None:
    run = Run(shape, outputs=(name,))
    run(planned(run))
    run.check()


@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[3], SHAPES[8]], ids=str)
def test_arrays_may_begin_at_any_element(shape: Shape) -> None:
    run = Run(shape, "float16", offset=1)
    run(planned(run))
    run.check()


@pytest.mark.parametrize("search", ["exhaustive", "heuristic", "default", "background"])
@pytest.mark.parametrize("tf32", [False, True])
def test_every_policy(search: Any, tf32: bool) -> None:
    for shape in (SHAPES[0], SHAPES[2], SHAPES[7]):
        run = Run(shape, policy=Policy(search=search, allow_tf32=tf32))
        run(planned(run))
        run.check(tf32)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_deterministic_gradients_repeat_their_bits(dtype: str) -> None:
    for shape in (SHAPES[1], SHAPES[8], SHAPES[16]):
        run = Run(shape, dtype, policy=Policy("exhaustive", deterministic=True))
        plan = planned(run)
        run(plan)
        first = run.results()
        for _ in range(5):
            run.poison()
            run(plan)
            for name, again in run.results().items():
                assert again.tobytes() == first[name].tobytes(), name


def test_no_workspace_at_all() -> None:
    run = Run(SHAPES[0], policy=replace(EXACT, workspace_limit=0), outputs=("dX", "dW"))
    plan = planned(run)
    assert plan.scratch == 0
    run(plan)
    run.check()


def test_without_images_the_sums_are_zero() -> None:
    run = Run(SHAPES[0], empty=True)
    plan = planned(run)
    run(plan)
    results = run.results()
    assert (results["dX"].size, results["dW"].any(), results["dB"].any()) == (0, False, False)


def test_every_ranked_kernel_can_be_pinned() -> None:
    search = planned(Run(SHAPES[0], outputs=("dX",)))
    for row in search.results["dX"].ranking[:8]:
        run = Run(SHAPES[0], outputs=("dX",), policy=replace(EXACT, kernel=row.name))
        plan = planned(run)
        assert plan.kernel == f"dX: {row.name}"
        run(plan)
        run.check()


def test_large_workspaces_are_lent_by_pytorch_for_the_time_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    torch.cuda.init()
    monkeypatch.setattr("gradkern.search.plan.LARGE", 0)
    names = [row.name for row in planned(Run(SHAPES[0], outputs=("dW",))).results["dW"].ranking]
    runs = [Run(SHAPES[0], outputs=("dW",), policy=replace(EXACT, kernel=name)) for name in names[:12]]
    with_workspaces = [(run, plan) for run in runs if (plan := planned(run)).scratch]
    assert with_workspaces
    for run, plan in with_workspaces:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run(plan)
        assert torch.cuda.max_memory_allocated() >= before + plan.scratch
        assert torch.cuda.memory_allocated() == before
        run.check()


def test_a_kept_search_is_used_without_a_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradkern.search.bench import CudaBench

    run = Run(SHAPES[1], "float16")
    first = planned(run)

    def refuse(*_: Any) -> None:
        raise AssertionError("searched again")

    monkeypatch.setattr(CudaBench, "__init__", refuse)
    again = planned(run)
    assert again.kernel == first.kernel
    run(again)
    run.check()


def test_a_warm_call_can_be_captured_and_replayed() -> None:
    from helpers.driver import driver

    from gradkern.cuda.device import activate, get_device

    run = Run(SHAPES[0])
    with activate(get_device(0)):
        plan, capture = planned(run), Capture()
        run(plan, capture.stream)
        driver.cuStreamSynchronize(capture.stream)
        with capture:
            run(plan, capture.stream)
        capture.replay(times=2, before=run.poison)
        run.check()


@pytest.mark.parametrize("mode", ["GLOBAL", "THREAD_LOCAL"])
@pytest.mark.parametrize("source", ["cudnn", "gemm", "depthwise"])
def test_the_first_call_of_a_thread_can_be_captured_with_a_plan_of_another(
    source: str, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes the thread's handle and the stream's scratch memory."""
    from gradkern.cuda.device import activate, get_device
    from gradkern.ops.conv.cuda import plan as conv

    every = conv._sources
    monkeypatch.setattr(conv, "_sources", lambda *given: [each for each in every(*given) if each.name == source])
    for library in ("cudnn.device", "cublas.library"):
        handles = import_module(f"gradkern.{library}").handle.__self__
        monkeypatch.setattr(handles, "_idle", {})
    policy = Policy("default", allow_tf32=False)
    run = Run(SHAPES[7] if source == "depthwise" else SHAPES[0], outputs=("dX", "dW"), policy=policy)
    plan = planned(run)

    def first() -> Capture:
        with activate(get_device(0)), Capture(mode=mode) as capture:
            run(plan, capture.stream)
        return capture

    with ThreadPoolExecutor(1) as thread:
        capture = thread.submit(first).result()
    with activate(get_device(0)):
        capture.replay(times=2, before=run.poison)
        run.check()


def test_a_cold_call_in_a_capture_says_to_warm_it() -> None:
    from gradkern.cuda.device import activate, get_device

    run = Run(SHAPES[0], outputs=("dX",))
    with activate(get_device(0)):
        capture = Capture()
        with pytest.raises(ProviderError, match="call once before the capture to warm it"), capture:
            planned(run)


def test_every_stream_has_a_workspace_of_its_own() -> None:
    from helpers.driver import driver

    from gradkern.cuda.device import activate, check, get_device

    with activate(get_device(0)):
        streams = [int(check(driver.cuStreamCreate(1), "creating a stream")) for _ in range(2)]
        runs = [Run(SHAPES[0], seed=seed) for seed in (1, 2)]
        plan = planned(runs[0])
        for _ in range(20):
            for run, stream in zip(runs, streams, strict=True):
                run.poison(stream)
                run(plan, stream)
        for run in runs:
            run.check()


@pytest.mark.parametrize(("dtype", "filters"), [("bfloat16", 64), ("float16", 128)])
def test_long_sums_of_16_bits_are_right_and_need_no_copies(dtype: str, filters: int) -> None:
    """Sums of 401,408 products, of which candidates differ by more than the bound: float64 tells which are right."""
    from gradkern import prepare

    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype)
    shapes = (128, filters, 56, 56), (128, 256, 56, 56), (filters, 256, 1, 1)
    dY, X, W = (
        torch.randn(shape, device="cuda").to(kind).contiguous(memory_format=torch.channels_last) for shape in shapes
    )
    plan = prepare("ConvGrad", dY, X, W, outputs=["dW"], policy={"search": "exhaustive"})
    assert "copies" not in plan.kernel
    exact: Any = sum(torch.einsum("mhw,chw->mc", y.double(), x.double()) for y, x in zip(dY, X, strict=True))
    dW = plan(dY, X, W).dW[:, :, 0, 0].double()
    assert (dW - exact).norm() <= CONV_NORM[dtype] * exact.norm()


@pytest.mark.slow
def test_more_than_2_to_the_31_elements() -> None:
    """1x1 on 2^31 elements and some, in float16: the last image alone gives the last image's dX."""
    from gradkern import run

    torch = pytest.importorskip("torch")
    X = torch.randn((33, 64, 1024, 1024), device="cuda", dtype=torch.float16)
    W = torch.randn((16, 64, 1, 1), device="cuda", dtype=torch.float16)
    dY = torch.randn((33, 16, 1024, 1024), device="cuda", dtype=torch.float16)
    grads = run("ConvGrad", dY, X, W, outputs=["dX", "dW"])
    last = torch.einsum("mhw,mc->chw", dY[-1].double(), W[:, :, 0, 0].double())
    assert (grads.dX[-1].double() - last).norm() <= CONV_NORM["float16"] * last.norm()
    dW: Any = sum(torch.einsum("mhw,chw->mc", y.double(), x.double()) for y, x in zip(dY, X, strict=True))
    assert (grads.dW[:, :, 0, 0].double() - dW).norm() <= CONV_NORM["float16"] * dW.norm()
