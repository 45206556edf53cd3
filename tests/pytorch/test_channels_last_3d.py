"""torch.compile(model, backend="gradkern") of 3-D convolutions: the order in memory, and that nothing else changes."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
import torch._inductor.lowering  # which PyTorch's decomposition of max_pool3d asks for without importing it
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func  # pyright: ignore[reportPrivateImportUsage]
from torch._inductor.decomposition import select_decomp_table
from torch.nn import functional

from gradkern.torch.compile_backend import findings
from gradkern.torch.compile_backend.dynamo_graph import fusion
from gradkern.torch.compile_backend.dynamo_graph.rewriting import rewrite
from gradkern.torch.compile_backend.gates import gates_of
from gradkern.torch.compile_backend.inductor_graphs import each_graph

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread", "compiled_anew")]
NAME = "channels_last_3d"
LAST: Any = torch.channels_last_3d
BATCH = 16  # from which on a CPU's convolutions of float32 keep channels last in one thread, as all of cuDNN's do


@pytest.fixture(autouse=True)
def _on_every_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "_ON_EVERY_DEVICE", True)


class Level(nn.Module):
    def __init__(self, channels: int, width: int, norm: Callable[[int], nn.Module], stride: int = 1) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv3d(channels, width, 3, stride, 1), norm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.leaky_relu(self.norm(self.conv(x)), inplace=True)


class UNet(nn.Module):
    """Two levels, with what lies between convolutions in such networks."""

    def __init__(self, norm: Callable[[int], nn.Module], end: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.top, self.down = Level(1, 4, norm), Level(4, 6, norm, 2)
        self.up, self.join, self.head = nn.ConvTranspose3d(6, 4, 2, 2), Level(8, 4, norm), nn.Conv3d(4, 3, 1)
        self.end = end

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        top = self.top(x)
        return self.end(self.head(self.join(torch.cat([self.up(self.down(top)), top], 1))))


def instance(width: int) -> nn.Module:
    return nn.InstanceNorm3d(width, affine=True)


def step(model: nn.Module, run: Any, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Output, gradients and buffers of a step."""
    x = x.detach().requires_grad_()
    y = run(x)
    y.sin().sum().backward()
    assert x.grad is not None
    gradients = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    return {"y": y.detach(), "dx": x.grad, **gradients, **dict(model.named_buffers())}


def check(model: nn.Module, x: torch.Tensor, compiled: Callable[[Any, Any], Any]) -> None:
    """Compare with eager, in float64, where only a mistake can tell; strides of the output too."""
    model, x = model.double(), x.double()
    eager = copy.deepcopy(model)
    expected, found = step(eager, eager, x), step(model, torch.compile(model, backend=compiled), x)
    assert found.keys() == expected.keys()
    for name, each in found.items():
        torch.testing.assert_close(each, expected[name], rtol=1e-9, atol=1e-9, msg=lambda text, n=name: f"{n}: {text}")
    assert found["y"].stride() == expected["y"].stride()


class Traced:
    """The backend, up to the graphs that Inductor would get, which run as they are: they are kept."""

    def __init__(self, instance_norm: bool = False, gates: Any = None) -> None:
        self._gates = gates or {NAME: True, "instance_norm": instance_norm}
        self.graphs: list[Any] = []

    def __call__(self, graph_module: Any, inputs: Any) -> Any:
        rewrite(graph_module, gates_of(self._gates))

        def kept(traced: Any, _: Any) -> Any:
            each_graph.agree_on_strides(traced.graph)
            traced.recompile()
            self.graphs.append(traced)
            return make_boxed_func(traced.forward)

        return aot_autograd(fw_compiler=kept, decompositions=select_decomp_table())(graph_module, inputs)

    def with_channels_first(self) -> list[str]:
        """What has channels first, other than what the graphs are given."""
        found = []
        for each in self.graphs:
            for node in each.graph.nodes:
                value = node.meta.get("val")
                volume = isinstance(value, torch.Tensor) and value.dim() == 5 and min(value.shape[1:]) > 1
                if volume and node.op != "placeholder" and not value.is_contiguous(memory_format=LAST):
                    found.append(str(node.target))
        return found


def reasons() -> list[str]:
    return [each.reason for each in findings.findings() if each.fusion == NAME]


NORMS = [instance, nn.InstanceNorm3d, nn.BatchNorm3d, lambda width: nn.GroupNorm(2, width)]


@pytest.mark.parametrize("norm", NORMS)
def test_numbers_are_those_of_eager(norm: Any) -> None:
    torch.manual_seed(0)
    check(UNet(norm, nn.Identity()), torch.randn(2, 1, 6, 8, 10), Traced())
    assert reasons() == [""]


@pytest.mark.parametrize("instance_norm", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_all_between_3d_convolutions_has_channels_last(norm: Any, instance_norm: bool) -> None:
    torch.manual_seed(0)
    traced, model = Traced(instance_norm), UNet(norm, nn.Identity())
    step(model, torch.compile(model, backend=traced), torch.randn(BATCH, 1, 6, 8, 10))
    # the output comes back to the order that it has in eager; what is cut from a gradient of cat is copied
    assert sorted(traced.with_channels_first()) == ["aten.clone.default", "aten.slice.Tensor", "aten.slice.Tensor"]


@pytest.mark.parametrize("norm", NORMS)
def test_a_convolution_behind_a_norm_gets_channels_last_whatever_the_norm_gives(norm: Any) -> None:
    """On a GPU Inductor's instance and group norms give channels first, and what is behind them would have that."""
    ordered: dict[str, bool] = {}

    def rewritten(graph_module: Any, inputs: Any) -> Any:
        rewrite(graph_module, gates_of({NAME: True, "instance_norm": False}))
        for node in graph_module.graph.nodes:
            if node.target in (torch.conv3d, torch.conv_transpose3d):
                ordered[str(node)] = node.args[0].kwargs.get("memory_format") is LAST
        return graph_module

    torch.manual_seed(0)
    step(model := UNet(norm, nn.Identity()), torch.compile(model, backend=rewritten), torch.randn(BATCH, 1, 6, 8, 10))
    assert list(ordered.values()) == [True, *[norm is not nn.BatchNorm3d] * 4]


ENDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "view": lambda y: y.view(y.shape[0], -1),
    "flatten": lambda y: y.flatten(1),
    "stack": lambda y: torch.stack([y, y * 2]),
    "max_pool": lambda y: functional.max_pool3d(y, 2),
    "mean": lambda y: y.mean((2, 3, 4)),
    "cast": lambda y: y.float().to(torch.float64) * 2,
}


@pytest.mark.parametrize("end", ENDS)
def test_what_reads_the_last_convolution_finds_the_order_of_eager(end: str) -> None:
    torch.manual_seed(0)
    check(UNet(instance, ENDS[end]), torch.randn(2, 1, 4, 6, 8), Traced())
    assert reasons() == [""]


class Twice(nn.Module):
    """Two convolutions, and a function between them."""

    def __init__(self, between: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.one, self.other, self.between = nn.Conv3d(2, 3, 3), nn.Conv3d(3, 2, 1), between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.other(self.between(self.one(x)))


def test_inputs_and_outputs_with_channels_last_keep_them() -> None:
    torch.manual_seed(0)
    traced, model = Traced(), cast(Any, Twice(torch.relu)).to(memory_format=LAST)
    x = torch.randn(BATCH, 2, 5, 6, 7).to(memory_format=LAST)
    assert model(x).is_contiguous(memory_format=LAST)
    step(model, torch.compile(model, backend=traced), x)
    assert reasons() == [""]
    assert not traced.with_channels_first()
    assert not any("clone" in str(node.target) for each in traced.graphs for node in each.graph.nodes)


RESIZED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "trilinear": lambda y: functional.interpolate(y, scale_factor=2, mode="trilinear"),
    "nearest": lambda y: functional.interpolate(y, scale_factor=2),
    "replicated": lambda y: functional.pad(y, (0, 1, 0, 1, 1, 0), "replicate"),
    "average": lambda y: functional.avg_pool3d(y, 2),
    "squeeze-excite": lambda y: y * functional.adaptive_avg_pool3d(y, 1).flatten(1)[:, :, None, None, None].sigmoid(),
}


@pytest.mark.parametrize("between", RESIZED)
def test_what_resizes_volumes_keeps_channels_last(between: str) -> None:
    """As monai's SegResNet, BasicUNet, DenseNet and SENet do between convolutions."""
    torch.manual_seed(0)
    check(Twice(RESIZED[between]), torch.randn(2, 2, 6, 7, 8), Traced())
    traced, model = Traced(), Twice(RESIZED[between])
    step(model, torch.compile(model, backend=traced), torch.randn(BATCH, 2, 6, 7, 8))
    assert reasons() == ["", ""]
    assert "aten.convolution.default" not in traced.with_channels_first()


def _written(y: torch.Tensor) -> torch.Tensor:
    y.view(-1).mul_(2)
    return y


@pytest.mark.parametrize(
    ("between", "reason"),
    [
        (lambda y: y.contiguous() + 1, "of contiguous it is not known that it keeps the order"),
        (lambda y: y.permute(0, 1, 4, 3, 2), "of permute it is not known that it keeps the order"),
        (_written, "what view gives is written into"),
    ],
)
def test_what_changes_the_order_back_or_could_tell_is_left(between: Any, reason: str) -> None:
    torch.manual_seed(0)
    check(Twice(between), torch.randn(2, 2, 5, 6, 7), Traced())
    assert reasons() == [reason]


def test_one_convolution_alone_and_running_statistics_are_left() -> None:
    torch.manual_seed(0)
    check(nn.Conv3d(2, 3, 3), torch.randn(2, 2, 5, 6, 7), Traced())
    assert not reasons()
    check(
        UNet(lambda width: nn.InstanceNorm3d(width, track_running_stats=True), nn.Identity()),
        torch.randn(2, 1, 4, 6, 8),
        Traced(),
    )
    assert reasons() == [""]


DEFAULTS: Any = {"linear + gelu": True}
"""What leaves the gates of volumes and their norms as they are."""


def test_by_default_large_volumes_and_their_instance_norms_are_taken() -> None:
    torch.manual_seed(0)
    model, traced = UNet(instance, nn.Identity()), Traced(gates=DEFAULTS)
    check(model, torch.randn(2, 1, 48, 32, 32), traced)
    found = [(each.fusion, each.reason) for each in findings.findings()]
    assert found == [(NAME, ""), *[("instance_norm + leaky_relu", "")] * 3]


def keeps_order(dtype: torch.dtype) -> bool:
    """Whether PyTorch's convolutions on this CPU do: in bfloat16 those without AVX-512 return channels first."""
    x = torch.randn(1, 8, 4, 4, 4, dtype=dtype).to(memory_format=LAST)
    return functional.conv3d(x, torch.randn(8, 8, 3, 3, 3, dtype=dtype)).is_contiguous(memory_format=LAST)


class WithoutBias(nn.GroupNorm):
    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return functional.group_norm(input, self.num_groups, self.weight)


@pytest.mark.parametrize("autocast", [False, True])
def test_by_default_large_volumes_and_their_group_norms_are_taken(autocast: bool) -> None:
    torch.manual_seed(0)
    model, traced = UNet(lambda width: nn.GroupNorm(2, width), nn.Identity()), Traced(gates=DEFAULTS)
    x = torch.randn(BATCH, 1, 24, 24, 24)
    exact = step(double := copy.deepcopy(model).double(), double, x.double())
    compiled = torch.compile(model, backend=traced)

    def run(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            return compiled(x).float()

    found = step(model, run, x)
    fusions = Counter(each.fusion for each in findings.findings() if not each.reason)
    assert fusions == {NAME: 1, "group_norm + leaky_relu": 2}  # the norm of the small volumes is Inductor's
    if keeps_order(torch.bfloat16 if autocast else torch.float32):
        first = {*traced.with_channels_first()} - {"prims.convert_element_type.default"}  # of filters
        assert first == {"aten.clone.default", "aten.slice.Tensor"}  # as in the test of all volumes above
    for name, each in exact.items():
        assert (found[name] - each).norm() <= (0.1 if autocast else 1e-3) * each.norm() + 1e-6, name


@pytest.mark.parametrize(
    ("norm", "reason"),
    [
        (
            lambda width: WithoutBias(2, width),
            "off by default: Inductor's group norms are slow with channels last, and of one its types differ",
        ),
        (
            lambda width: nn.InstanceNorm3d(width, track_running_stats=True),
            "off by default: Inductor's instance norms are slow with channels last, and of one it has "
            "running statistics",
        ),
    ],
)
def test_by_default_volumes_whose_norms_inductor_computes_are_left(norm: Any, reason: str) -> None:
    torch.manual_seed(0)
    check(UNet(norm, nn.Identity()), torch.randn(2, 1, 32, 32, 32), Traced(gates=DEFAULTS))
    assert reasons() == [reason]


def test_only_16_bits_on_a_gpu_are_turned_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "_ON_EVERY_DEVICE", False)
    check(Twice(torch.relu), torch.randn(2, 2, 5, 6, 7), Traced())
    assert reasons() == ["it is not on a GPU"]


def test_16_bits_are_as_near_to_float64_as_eager_though_the_mean_is_large() -> None:
    torch.manual_seed(0)
    model = UNet(instance, nn.Identity())
    x = torch.randn(2, 1, 6, 8, 10) + 5
    eager, exact = copy.deepcopy(model), copy.deepcopy(model).double()

    def cast_by(run: Any) -> Any:
        def autocast(x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return run(x).float()

        return autocast

    expected = step(exact, exact, x.double())
    theirs, ours = step(eager, cast_by(eager), x), step(model, cast_by(torch.compile(model, backend=Traced())), x)
    assert reasons() == [""]
    for name, each in expected.items():
        error, bound = ((found[name].double() - each).norm() for found in (ours, theirs))
        assert error <= 2 * bound + 1e-3 * each.norm(), name


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_on_a_gpu_inductors_steps_are_as_near_to_float64_as_eagers(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fusion, "_ON_EVERY_DEVICE", False)
    torch.manual_seed(0)
    model = UNet(instance, nn.Identity()).cuda()
    x = torch.randn(2, 1, 32, 48, 64, device="cuda")
    eager, exact = copy.deepcopy(model), copy.deepcopy(model).double()

    def cast_by(run: Any) -> Any:
        def autocast(x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cuda", dtype):
                return run(x).float()

        return autocast

    expected = step(exact, exact, x.double())
    run = torch.compile(model, backend="gradkern")
    theirs, ours = step(eager, cast_by(eager), x), step(model, cast_by(run), x)
    assert reasons() == [""]
    for name, each in expected.items():
        error, bound = ((found[name].double() - each).norm() for found in (ours, theirs))
        assert error <= 2 * bound + 1e-3 * each.norm(), name


@pytest.mark.parametrize(
    "end",
    [
        lambda y: functional.adaptive_avg_pool3d(y, 1).flatten(1),
        lambda y: functional.adaptive_avg_pool3d(y, 2),
        lambda y: functional.interpolate(y, scale_factor=2),
        lambda y: y.permute(0, 1, 4, 3, 2),
    ],
)
def test_what_changes_the_order_behind_the_last_convolution_is_no_hindrance(end: Any) -> None:
    torch.manual_seed(0)
    check(UNet(nn.BatchNorm3d, end), torch.randn(2, 1, 4, 6, 8), Traced())
    assert reasons() == [""]
