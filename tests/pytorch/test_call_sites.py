"""Call sites in Inductor's code give plans what the operators give them, and recognise nothing else.

There need not be a GPU: tensors on the CPU are taken for its own, and no plan computes anything. What Inductor writes
is run on the CPU.
"""

from __future__ import annotations

import copy
import ctypes
import gc
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
from helpers.compiled_models import Block
from helpers.elsewhere import Plan, Planner, take_for_a_gpus
from helpers.seen import Seen
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import gradkern
import gradkern.torch
from gradkern import plan_cache
from gradkern.cuda.recording import Recording
from gradkern.dispatch import run
from gradkern.torch import direct
from gradkern.torch.compile_backend import call_sites
from gradkern.torch.compile_backend.call_sites import CallSite
from gradkern.torch.compile_backend.dynamo_graph import rewriting
from gradkern.torch.compile_backend.inductor_graphs import passes
from gradkern.torch.direct import OpCall
from gradkern.torch.native import records, shim, sites
from gradkern.torch.native.recording import Unrepeatable

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
assert rewriting  # by which, and by the passes, all operators are defined
assert passes


def random(*shape: int, last: bool = False) -> torch.Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))
    return made.contiguous(memory_format=torch.channels_last) if last else made


def image(last: bool = True) -> torch.Tensor:
    return random(2, 4, 8, 6, last=last)


def of_images(count: int) -> list[torch.Tensor]:
    return [torch.rand(4) + 0.5 for _ in range(count)]


CALLS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "batch_norm_act_": lambda: (image(), *of_images(4), image(), 0.1, 1e-5, "relu", 0.0),
    "batch_norm_act_forward": lambda: (image(), *of_images(4), None, 0.1, 1e-5, "leaky_relu", 0.1),
    "batch_norm_act_backward": lambda: (
        *(image(), None, image(), image(), of_images(1)[0], None),
        *(*of_images(2), "relu", 0.0, [True, False, True, True]),
    ),
    "depthwise_conv_forward": lambda: (image(), random(4, 1, 3, 3), None, [1, 1], [1, 1], [1, 1]),
    "depthwise_conv_backward": lambda: (
        *(image(), image(), random(4, 1, 3, 3)),
        *([1, 1], [1, 1], [1, 1], [True, True, False]),
    ),
    "conv_weight_gradient": lambda: (image(), image(), random(4, 4, 3, 3), [1, 1], [1, 1], [1, 1], 1),
    "add_layer_norm_forward": lambda: (random(6, 8), random(6, 8), torch.rand(8), torch.rand(8), 1e-6, "float32"),
    "add_rms_norm_forward": lambda: (random(6, 8), random(6, 8), torch.rand(8), 1e-6, "float32"),
    "add_layer_norm_backward": lambda: (
        *(random(6, 8), random(6, 8), random(6, 8), torch.rand(8), torch.rand(6), torch.rand(6)),
        "float32",
        [True, True, False, True, False],
    ),
    "add_rms_norm_backward": lambda: (
        *(random(6, 8).bfloat16(), random(6, 8), random(6, 8), torch.rand(8), torch.rand(6)),
        "bfloat16",
        [True, True, False, True],
    ),
    "bias_gelu_forward": lambda: (random(6, 8), torch.rand(8), "tanh"),
    "bias_gelu_backward": lambda: (random(6, 8), random(6, 8), torch.rand(8), "none", [True, True]),
}


class Site:
    """A call site of an operator, and arguments for it."""

    def __init__(self, name: str) -> None:
        self.arguments = CALLS[name]()
        self.operator: Any = getattr(torch.ops.gradkern, name).default
        self.site = CallSite(name, tuple([... if isinstance(each, torch.Tensor) else each for each in self.arguments]))
        self.asked = 0
        ask = self.site._ask

        def counted(*arguments: Any) -> Any:
            self.asked += 1
            return ask(*arguments)

        self.site._ask = counted

    def __call__(self, *tensors: torch.Tensor) -> Any:
        """What Inductor's code does."""
        native = self.site.native.call
        if native is None or call_sites.count_modes():
            return self.site(*tensors)
        return native(*tensors, *self.memory(*tensors))

    def memory(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """For the results."""
        with FakeTensorMode() as mode:
            given = iter([mode.from_tensor(each) for each in tensors])
            made = self.operator(*[next(given) if each is ... else each for each in self.site._arguments])
        return [torch.empty_strided(each.shape, each.stride(), dtype=each.dtype) for each in every(made)]

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [each for each in self.arguments if isinstance(each, torch.Tensor)]

    def misses(self, *tensors: torch.Tensor) -> int:
        """1 where the call was new to the site, 0 where it was recognised."""
        before = self.asked
        self(*(tensors or self.tensors))
        return self.asked - before


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch, empty_plan_cache: None) -> Planner:
    made = take_for_a_gpus(monkeypatch)
    monkeypatch.setattr(direct, "shortcuts", run.shortcuts)
    return made


@pytest.fixture
def norm(planner: Planner) -> Site:
    site = Site("batch_norm_act_")
    assert [site.misses() for _ in range(4)] == [1, 1, 0, 0]  # planned, read, recognised
    return site


class Repeatable(Plan):
    """A plan of one launch that machine code can repeat: a C function notes the addresses that it is given."""

    REPEATABLE = True

    def __init__(self) -> None:
        super().__init__()
        self.launched: list[list[int]] = []
        self._called = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_int64))(self._launch)
        self.function: Any = ctypes.cast(self._called, ctypes.c_void_p).value
        self.block: Any = None

    def __call__(self, *arguments: Any) -> None:
        read, written, stream = arguments
        if isinstance(stream, Recording):
            addresses = (*read, *written)
            self.block = [0] * (10 + len(addresses)), list(range(10, 10 + len(addresses))), []
            stream.add(self, addresses)
        else:
            super().__call__(*arguments)

    def _launch(self, words: Any) -> int:
        self.launched.append(words[10 : len(self.block[0])])
        return 0


def every(results: Any) -> tuple[torch.Tensor, ...]:
    return (results,) if isinstance(results, torch.Tensor) else tuple(results)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_site_gives_the_plan_what_the_operator_does(planner: Planner, name: str) -> None:
    site = Site(name)
    expected = every(site.operator(*site.arguments))
    (plan,) = planner.plans
    read, written, stream = plan.runs[-1]
    assert [site.misses() for _ in range(3)] == [1, 0, 0]
    found = every(site(*site.tensors))
    assert len(planner.plans) == 1
    assert (plan.runs[-1][0], plan.runs[-1][2]) == (read, stream)
    again, used = plan.runs[-1][1], set[int]()
    for one, other in zip(found, expected, strict=True):
        assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
        if one.numel():
            place = written.index(other.data_ptr())
            used.add(place)
            assert again[place] == one.data_ptr() != other.data_ptr()
    left = [(written[place], again[place]) for place in range(len(written)) if place not in used]
    given = [each.data_ptr() for each in site.tensors]
    assert all(one == other and one in given for one, other in left)  # what is written in place


@pytest.mark.skipif(bool(shim.unavailable("CPU")), reason=shim.unavailable("CPU") or "available")
@pytest.mark.parametrize("name", CALLS)
def test_machine_code_gives_the_plan_what_the_call_site_does(planner: Planner, name: str) -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-python is not installed")
    planner.made = Repeatable
    site = Site(name)
    assert [site.misses() for _ in range(2)] == [1, 1]  # planned, read
    expected = every(site(*site.tensors))  # recognised
    (plan,) = planner.plans
    assert isinstance(plan, Repeatable)
    call = site.site._ask(*site.arguments)
    assert isinstance(call, OpCall)
    if call.operator.searched:  # whether TF32 is allowed has no C function
        for _ in range(4):
            site(*site.tensors)
        assert not plan.launched
        return
    before, launched = len(plan.runs), len(plan.launched)
    found = every(site(*site.tensors))
    assert (len(plan.runs), len(plan.launched)) == (before, launched + 1)
    read, written, _ = plan.runs[-1]
    addresses, places = plan.launched[-1], {each.data_ptr() for each in site.tensors}
    assert tuple(addresses[: len(read)]) == read
    kept = [place for place, each in enumerate(written) if each in places]  # written in place
    assert [addresses[len(read) + place] for place in kept] == [written[place] for place in kept]
    made = [each.data_ptr() for each in found if each.numel()]
    assert {*made} <= {*addresses[len(read) :]} - places
    for one, other in zip(found, expected, strict=True):
        assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
    with Seen() as mode:  # and a dispatch mode sees the operator
        site(*site.tensors)
    assert site.operator in mode.operators
    other = [each.clone() if each.dim() < 2 else torch.cat([each, each]) for each in site.tensors]
    launched = len(plan.launched)
    with gradkern.policy(deterministic=True):
        site(*site.tensors)
    if "norm" not in name:
        assert every(site(*other))[0].shape[0] == 2 * expected[0].shape[0]
    assert len(plan.launched) == launched
    site(*site.tensors)
    assert len(plan.launched) == launched + 1


@pytest.mark.skipif(bool(shim.unavailable("CPU")), reason=shim.unavailable("CPU") or "available")
@pytest.mark.parametrize("name", ["bias_gelu_forward", "add_layer_norm_backward"])
def test_machine_code_fills_the_memory_that_it_is_given_and_keeps_nothing(planner: Planner, name: str) -> None:
    planner.made = Repeatable
    site = Site(name)
    assert [site.misses() for _ in range(3)] == [1, 1, 0]
    native, memory = site.site.native.call, site.memory(*site.tensors)
    assert native is not None
    wrong = [each.double() for each in site.tensors]
    objects = [*site.tensors, *memory, *wrong]

    def steps(count: int) -> None:
        for _ in range(count):
            found = every(native(*site.tensors, *memory))
            assert [one is other for one, other in zip(found, memory, strict=True)] == [True] * len(memory)
            site.site.native.by_python = lambda *tensors, memory: [*map(id, tensors)]
            assert native(*wrong, *memory) == [*map(id, wrong)] != native(*site.tensors)
            site.site.native.by_python = broken
            with pytest.raises(gradkern.ProviderError, match="a launch failed"):
                native(*wrong, *memory)

    steps(1)
    before = [sys.getrefcount(each) for each in objects]
    steps(100)
    assert [sys.getrefcount(each) for each in objects] == before


def broken(*_: Any, **__: Any) -> None:
    raise gradkern.ProviderError("a launch failed")


@pytest.mark.skipif(bool(shim.unavailable("CPU")), reason=shim.unavailable("CPU") or "available")
@pytest.mark.parametrize("name", CALLS)
def test_python_fills_the_same_memory_where_machine_code_leaves_a_call(planner: Planner, name: str) -> None:
    """As in a capture, whose memory lasts."""
    planner.made = Repeatable
    site = Site(name)
    assert [site.misses() for _ in range(3)] == [1, 1, 0]
    memory, asked, native = tuple(site.memory(*site.tensors)), site.asked, site.site.native
    for record in native._records:
        record.withdraw()
    answers = [site.site(*site.tensors, memory=memory)]
    if native.call is not None:  # as for float32 convolutions
        answers.append(native.call(*site.tensors, *memory))
    for found in answers:
        wanted = [(one, other) for one, other in zip(every(found), memory, strict=True) if other.numel()]
        assert wanted
        assert all(one is other for one, other in wanted)
    assert site.asked == asked


@pytest.mark.skipif(bool(shim.unavailable("CPU")), reason=shim.unavailable("CPU") or "available")
def test_python_answers_where_tensors_have_their_handles_elsewhere(
    planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shim, "_place_of_handle", lambda tensor: None)
    planner.made = Repeatable
    caches = shim.handle_in_object, sites._records
    for each in caches:
        each.cache_clear()
    try:
        site = Site("bias_gelu_forward")
        assert [site.misses() for _ in range(4)] == [1, 1, 0, 0]
        assert site.site.native.call is None
    finally:
        for each in caches:
            each.cache_clear()


@pytest.mark.skipif(bool(shim.unavailable("CPU")), reason=shim.unavailable("CPU") or "available")
def test_sizes_that_come_and_go_are_soon_left_to_python(planner: Planner) -> None:
    planner.made = Repeatable
    site, weight = Site("bias_gelu_forward"), torch.rand(8)
    for n in range(1, 100):
        for _ in range(2 + 2 * (n == 1)):
            found = site(torch.zeros(n, 8), weight)
            assert found.shape == (n, 8)
        if n < 30:
            assert site.site.native.call is not None
    assert site.site.native.call is None
    assert planner.plans[0].launched  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.skipif(bool(shim.unavailable("CPU")), reason=shim.unavailable("CPU") or "available")
@pytest.mark.parametrize("repeatable", [True, False])
def test_machine_code_runs_a_plan_until_a_search_has_found_another(planner: Planner, repeatable: bool) -> None:
    first_kind: Any = type("First", (Repeatable,), {"provisional": True, "REPEATABLE": repeatable})
    planner.made = first_kind
    site = Site("bias_gelu_forward")
    for _ in range(6):
        site(*site.tensors)
    first: Any = planner.plans[0]
    (prepared,) = plan_cache.entries()
    assert prepared.provisional
    assert (len(first.launched), len(first.runs)) == ((3, 3) if repeatable else (0, 6))
    second: Any = Repeatable()
    prepared.renew(second)
    for _ in range(5):
        site(*site.tensors)
    assert (len(second.launched), len(second.runs)) == (4, 1)
    assert len(first.launched) == 3 * repeatable
    assert len(first.runs) == 6 - 3 * repeatable


@pytest.mark.skipif(bool(shim.unavailable("CPU")), reason=shim.unavailable("CPU") or "available")
def test_sites_that_are_gone_make_room_for_others(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST", 8)
    planner.made = Repeatable
    x, bias = torch.zeros(3, 8), torch.rand(8)
    gc.collect()  # those of other tests
    gc.freeze()  # all that PyTorch and other tests have made takes a second to look at, in each of 50 collections

    def launched(site: Site) -> int:
        before = sum(len(each.launched) for each in planner.plans if isinstance(each, Repeatable))
        site(x, bias)
        return sum(len(each.launched) for each in planner.plans if isinstance(each, Repeatable)) - before

    first = Site("bias_gelu_forward")
    assert [launched(first) for _ in range(4)] == [0, 0, 0, 1]
    for _ in range(50):
        each = Site("bias_gelu_forward")
        assert [launched(each) for _ in range(4)][-1] == 1
        del each
        gc.collect()
    assert launched(first) == 1


def test_other_tensors_make_another_plan_and_both_are_known(norm: Site, planner: Planner) -> None:
    x, *others, residual = norm.tensors
    smaller = [x[:1].clone(memory_format=torch.channels_last), *others, residual[:1].contiguous()]
    smaller[-1] = smaller[-1].contiguous(memory_format=torch.channels_last)
    first = norm(*norm.tensors)[0]
    assert [norm.misses(*smaller) for _ in range(3)] == [1, 1, 0]
    assert norm(*smaller)[0].shape == (1, *first.shape[1:])
    assert not norm.misses()
    assert len(planner.plans) == 2
    double = [each.double() for each in norm.tensors]
    assert norm.misses(*double)
    assert norm.misses(x.contiguous(), *others, residual)
    shifted = torch.empty(5)[1:].copy_(others[0])  # whose address is no multiple of 16
    assert norm.misses(x, shifted, *others[1:], residual)
    assert norm.misses(x, *others, x)  # one tensor twice
    assert not norm.misses()


def test_shapes_that_come_and_go_do_not_pile_up(norm: Site) -> None:
    from gradkern.torch.compile_backend.call_sites import _MOST

    for count in range(3, 3 + 2 * _MOST):
        more = random(count, 4, 8, 6, last=True)
        tensors = [more, *norm.tensors[1:5], more.clone()]
        assert [norm.misses(*tensors) for _ in range(3)] == [1, 1, 0]
    assert len(norm.site._known.entries()) == _MOST
    assert [norm.misses() for _ in range(2)] == [1, 0]


def test_what_is_in_force_is_asked_for_at_every_call(norm: Site, planner: Planner) -> None:
    with gradkern.policy(deterministic=True):
        assert norm.misses()
    assert not norm.misses()
    with torch.backends.cudnn.flags(enabled=torch.backends.cudnn.enabled, deterministic=True):
        assert [norm.misses() for _ in range(2)] == [1, 0]
    assert not norm.misses()
    plans = [plan.runs for plan in planner.plans]
    assert len(plans) == 2
    planned = len(planner.plans[0].runs)
    plan_cache.clear()
    assert norm.misses()
    assert len(planner.plans) == 3
    assert len(planner.plans[0].runs) == planned


def test_a_plan_that_is_renewed_is_the_one_that_runs(norm: Site) -> None:
    (prepared,) = plan_cache.entries()
    other: Any = Plan()
    prepared.renew(other)
    assert not norm.misses()
    assert len(other.runs) == 1


def test_what_goes_wrong_in_a_plan_names_the_operator(norm: Site) -> None:
    other: Any = type("Broken", (Plan,), {"__call__": broken})()
    plan_cache.entries()[0].renew(other)
    with pytest.raises(gradkern.ProviderError, match="BatchNormalization: a launch failed"):
        norm(*norm.tensors)


def test_calls_are_counted_as_those_of_the_operator_are(norm: Site) -> None:
    before = plan_cache.statistics().hits
    norm(*norm.tensors)
    assert plan_cache.statistics().hits == before + 1


def test_a_dispatch_mode_sees_the_operator(norm: Site, planner: Planner) -> None:
    with Seen() as mode:
        results = norm(*norm.tensors)
    assert norm.operator in mode.operators
    assert len(results) == 3
    assert not norm.misses()


def test_results_that_lie_elsewhere_than_the_code_takes_them_to_be_are_an_error() -> None:
    x, w = random(6, 8), torch.rand(8)
    sites = [CallSite("bias_gelu_forward", (..., ..., "none"), (((6, 8), strides),)) for strides in ((8, 1), (1, 6))]
    assert torch.equal(sites[0](x, w), torch.ops.gradkern.bias_gelu_forward(x, w, "none"))
    with pytest.raises(AssertionError, match="bias_gelu_forward"):
        sites[1](x, w)


def test_versions_of_pytorch_that_were_not_tried_keep_the_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    import_module("torch._inductor.codegen.wrapper")  # it keeps the table that is there when it is imported
    from torch._inductor.codegen import custom_extern_kernel_codegen as codegen

    known: dict[str, Any] = {}
    monkeypatch.setattr(codegen, "CUSTOM_EXTERN_KERNEL_CODEGEN", known)
    monkeypatch.setattr(call_sites, "tensor_guards", lambda: None)
    call_sites.write_call_sites.__wrapped__()
    assert not known
    monkeypatch.undo()
    monkeypatch.setattr(codegen, "CUSTOM_EXTERN_KERNEL_CODEGEN", known)
    call_sites.write_call_sites.__wrapped__()
    assert "torch.ops.gradkern.batch_norm_act_.default" in known


def compiled(model: nn.Module, **options: Any) -> Any:
    made: Any = {"gradkern": True, "fx_graph_cache": False}
    return torch.compile(model, backend="gradkern", options=made, **options)


def steps(model: nn.Module, run: Any, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """All that steps with these inputs compute, a second backward pass and one without gradients among it."""
    found: list[torch.Tensor] = []
    for x in inputs:
        model.zero_grad()
        y = run(x)
        y.sin().mean().backward(retain_graph=True)
        found += [each.grad.clone() for each in model.parameters() if each.grad is not None]
        y.cos().mean().backward()
        with torch.no_grad():
            found += [y, run(x)]
        found += [each.grad.clone() for each in model.parameters() if each.grad is not None]
        found += [each.clone() for each in model.buffers()]
        found += [torch.tensor(each._version) for each in model.buffers()]
    model.eval()
    found.append(run(inputs[0]))
    model.train()
    return found


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of Inductor's own imports
@pytest.mark.parametrize("dynamic", [False, True])
def test_inductors_code_computes_the_same_bits_by_call_sites(monkeypatch: pytest.MonkeyPatch, dynamic: bool) -> None:
    from torch._functorch import config
    from torch._inductor.codegen.custom_extern_kernel_codegen import CUSTOM_EXTERN_KERNEL_CODEGEN
    from torch._inductor.utils import run_and_get_code

    torch.manual_seed(0)
    plain: Any = Block(4, 4, "in place")
    inputs = [random(count, 4, 5, 5) for count in ((3, 6, 7) if dynamic else (3,))]
    found: dict[bool, tuple[list[torch.Tensor], str]] = {}
    for by_sites in (True, False):
        torch.compiler.reset()
        model = copy.deepcopy(plain)
        run = compiled(model, fullgraph=True, dynamic=dynamic)
        if not by_sites:
            for name in [each for each in CUSTOM_EXTERN_KERNEL_CODEGEN if "gradkern" in each]:
                monkeypatch.delitem(CUSTOM_EXTERN_KERNEL_CODEGEN, name)
        with config.patch(donated_buffer=False):  # or a graph cannot be retained
            results, codes = run_and_get_code(steps, model, run, *inputs)
        found[by_sites] = results, "".join(codes)
    (ours, code), (theirs, other) = found[True], found[False]
    assert code.count(" = CallSite('batch_norm_act_', ") == other.count("= torch.ops.gradkern.batch_norm_act_.default(")
    assert " = CallSite('batch_norm_act_backward', " in code
    assert "= torch.ops.gradkern." not in code
    assert "CallSite" not in other
    assert len(ours) == len(theirs)
    for one, each in zip(ours, theirs, strict=True):
        assert torch.equal(one, each)
    torch.compiler.reset()


def test_more_results_than_machine_code_has_room_for_are_pythons() -> None:
    plan: Any = Repeatable()
    made: Any = [None] * 9
    with pytest.raises(Unrepeatable, match="more results"):
        sites._steps(plan, (random(2),), sites.Places([0], [*range(1, 10)], made, [*range(9)]))


class Images(nn.Module):
    """A norm of a sum that gives images to a pool, as Swin's last, or to a convolution, as those of hybrid models."""

    def __init__(self, end: nn.Module) -> None:
        super().__init__()
        self.inner, self.norm, self.end = nn.Linear(8, 8), nn.LayerNorm(8), end

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x + self.inner(x)
        return self.end(self.norm(total).permute(0, 3, 1, 2)).mean((2, 3)) + total.mean((1, 2))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of Inductor's own imports
@pytest.mark.parametrize(
    ("end", "dynamic"),  # Inductor compiles no such convolution of images whose sizes are open
    [(nn.AdaptiveAvgPool2d(1), False), (nn.AdaptiveAvgPool2d(1), True), (nn.Conv2d(8, 8, 1), False)],
)
def test_norms_get_rows_where_images_follow(monkeypatch: pytest.MonkeyPatch, end: nn.Module, dynamic: bool) -> None:
    torch.compiler.reset()
    given: list[tuple[torch.Tensor, ...]] = []
    call = CallSite.__call__

    def noted(site: CallSite, *tensors: torch.Tensor) -> Any:
        given.append(tensors)
        return call(site, *tensors)

    monkeypatch.setattr(CallSite, "__call__", noted)
    model, x = Images(copy.deepcopy(end)), random(2, 6, 5, 8)
    expected = torch.autograd.grad(model(x).sin().sum(), list(model.parameters()))
    compiled(model, dynamic=dynamic)(x).sin().sum().backward()
    assert len(given) == 2
    assert all(each.is_contiguous() for tensors in given for each in tensors)
    for each, other in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(each.grad, other)
    torch.compiler.reset()
