"""torch.compile(model, backend="gradkern"): what is rewritten, that it computes what eager does, and what is left."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest
import torch
from helpers import compiled_models
from helpers.compiled_models import Block, Transformer
from helpers.page_faults import at_depths
from torch import nn
from torch.nn import functional

import gradkern.torch
from gradkern.errors import ArgumentError
from gradkern.torch.compile_backend import findings
from gradkern.torch.compile_backend.dynamo_graph import add_norm as add_norm_operators
from gradkern.torch.compile_backend.dynamo_graph import batch_norm as batch_norm_operators
from gradkern.torch.compile_backend.dynamo_graph import cross_entropy as cross_entropy_operators
from gradkern.torch.compile_backend.dynamo_graph import depthwise_conv as conv_operators
from gradkern.torch.compile_backend.dynamo_graph import fusion
from gradkern.torch.compile_backend.dynamo_graph import group_norm as group_norm_operators
from gradkern.torch.compile_backend.dynamo_graph import linear_gelu as bias_gelu_operators
from gradkern.torch.compile_backend.gates import gates_of
from gradkern.torch.compile_backend.operators import DEFINITIONS
from gradkern.torch.direct import Direct

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread", "compiled_anew")]

RELU, ADD_RELU = "batch_norm + relu", "batch_norm + add + relu"


def rewritten(graph_module: Any, inputs: Any, gates: Any = True) -> Any:
    """The backend's first stage with autograd's graphs as they are: nothing is compiled."""
    from torch._dynamo.backends.debugging import aot_eager

    from gradkern.torch.compile_backend.dynamo_graph.rewriting import rewrite

    rewrite(graph_module, gates_of(gates))
    return aot_eager(graph_module, inputs)


def steps(model: Any, run: Any, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    """Outputs, gradients and buffers of a step with each of the inputs, by name."""
    found: dict[str, torch.Tensor] = {}
    for place, x in enumerate(inputs):
        x = x.detach().requires_grad_(x.is_floating_point())
        model.zero_grad()
        y = run(x)
        y.float().sin().mean().backward()
        tensors = {"y": y, **({"dx": x.grad} if x.grad is not None else {})}
        tensors |= {f"d {name}": each.grad for name, each in model.named_parameters()}
        tensors |= dict(model.named_buffers())
        found |= {f"{name} {place}": each.detach().clone() for name, each in tensors.items() if each is not None}
    return found


def check(model: nn.Module, *inputs: torch.Tensor, **options: Any) -> tuple[Counter[str], Counter[str]]:
    """Compare with eager in float64, where only a mistake can tell. Returns what was taken and why others were left."""
    model = model.double()
    inputs = tuple(each.double() if each.is_floating_point() else each for each in inputs)
    expected = steps(eager := copy.deepcopy(model), eager, *inputs)
    compiled = torch.compile(model, backend=rewritten, **options)
    for name, each in steps(model, compiled, *inputs).items():
        torch.testing.assert_close(each, expected[name], rtol=1e-9, atol=1e-11, msg=lambda text, n=name: f"{n}: {text}")
    return taken(), Counter(each.reason for each in findings.findings() if each.reason)


def call_sites(codes: list[str], name: str) -> list[tuple[Any, ...]]:
    """The arguments of an operator's call sites in Inductor's code, ... for each tensor."""
    lines = [line.partition(" = CallSite")[2] for code in codes for line in code.splitlines()]
    return [arguments for known, arguments, _ in map(eval, filter(None, lines)) if known == name]


def taken() -> Counter[str]:
    return Counter(each.fusion for each in findings.findings() if not each.reason)


def images(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("form", ["modules", "functions", "in place", "methods"])
def test_residual_blocks_compute_what_eager_does_however_they_are_written(form: str) -> None:
    model = nn.Sequential(Block(4, 4, form), Block(4, 6, form))
    found, left = check(model, images(3, 4, 5, 5), images(3, 4, 5, 5) + 1)
    assert found == {RELU: 2, ADD_RELU: 2, "batch_norm": 1}
    assert not left


def test_batch_norm_and_silu_or_an_addition_alone_are_one_operator() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = nn.BatchNorm1d(5), nn.BatchNorm1d(5), nn.BatchNorm1d(5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = functional.silu(self.first(x), inplace=True)
            y = y + self.second(y * y)
            return functional.silu(self.third(y) + x)

    found, left = check(Net(), images(7, 5), images(7, 5) + 1)
    assert found == {"batch_norm + silu": 1, "batch_norm + add": 2}
    assert not left


def test_leaky_relu_is_taken_however_it_is_written_unless_its_slope_is_negative() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.BatchNorm2d(3) for _ in range(7)])
            self.act = nn.LeakyReLU(0.1, inplace=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.act(self.norms[0](x)) * 2
            y = functional.leaky_relu(self.norms[1](x)) * 2
            y = functional.leaky_relu(self.norms[2](y) + x, negative_slope=0.3) * 2
            z = self.norms[3](y)
            z += x
            z = self.act(z) * 2
            z = functional.leaky_relu_(self.norms[4](z), 0) * 2
            z = functional.leaky_relu(self.norms[5](z), -0.2) * 2
            return functional.leaky_relu(self.norms[6](z) + y, -0.2)

    found, left = check(Net(), images(2, 3, 4, 5), images(2, 3, 4, 5) + 1)
    leaky = {"batch_norm + leaky_relu": 3, "batch_norm + add + leaky_relu": 2}
    assert found == {**leaky, "batch_norm": 1, "batch_norm + add": 1}
    assert not left


@pytest.mark.parametrize("last", [False, True])
def test_autocast_is_as_near_to_float64_as_eager(last: bool) -> None:
    form: Any = torch.channels_last if last else torch.contiguous_format
    torch.manual_seed(0)  # one error in a hundred is more than twice eager's by chance, as eager's is more than ours
    model: Any = nn.Sequential(Block(8, 8, "in place"), Block(8, 8, "in place"))
    model = model.to(memory_format=form)
    inputs = [(images(4, 8, 6, 6) + shift).contiguous(memory_format=form) for shift in (0, 1)]
    exact = steps(double := copy.deepcopy(model).double(), double, *[each.double() for each in inputs])
    errors = []
    for backend in (None, rewritten):
        each = copy.deepcopy(model)
        run = each if backend is None else torch.compile(each, backend=backend)
        with torch.autocast("cpu", torch.bfloat16):
            results = steps(each, run, *inputs)
        errors.append({name: float((results[name] - exact[name]).abs().max()) for name in exact})
    assert taken() == {RELU: 2, ADD_RELU: 1, "batch_norm": 1}  # the first block adds its input, which is float32
    for name, ours in errors[1].items():
        scale = float(exact[name].abs().max())
        assert ours <= 2 * errors[0][name] + 2**-9 * scale, name


@pytest.mark.parametrize("parameters", [torch.bfloat16, torch.float32])
def test_gradients_of_16_bits_behind_an_addition_are_nearer_to_float64_than_eagers(parameters: torch.dtype) -> None:
    """Eager rounds the norm before the addition, and the sum before ReLU, so that its mask is another near zero."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.norm(x[0]) + x[1]).float()

    model, x = Net().to(parameters), images(2, 32, 16, 14, 14).bfloat16()
    exact = steps(double := copy.deepcopy(model).double(), double, x.double())
    eager = steps(twin := copy.deepcopy(model), twin, x)
    found = steps(model, torch.compile(model, backend=rewritten), x)
    assert taken() == {ADD_RELU: 1}
    for name in ("dx 0", "d norm.weight 0", "d norm.bias 0"):
        error, eagers = ((each[name].double() - exact[name]).norm() for each in (found, eager))
        assert error < 0.5 * eagers, name


class Depthwise(nn.Module):
    """Convolutions of a channel each, and others."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.plain = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.strided = nn.Conv2d(4, 4, (3, 2), (2, 1), (1, 0), (1, 2), groups=4, bias=False)
        self.line = nn.Conv1d(4, 4, 3, padding=1, groups=4)
        self.same = nn.Conv2d(4, 4, 3, padding="same", groups=4)
        self.dense = nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.strided(self.plain(x).sin()).sin()
        return self.line(self.dense(self.same(y)).flatten(2))


def test_depthwise_convolutions_are_one_operator_each(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(Depthwise(), images(3, 4, 7, 6))[1] == {"it is not on a GPU": 4}
    torch.compiler.reset()
    gradkern.torch.forget()
    monkeypatch.setattr(fusion, "_ON_EVERY_DEVICE", True)
    found, left = check(Depthwise(), images(3, 4, 7, 6), images(3, 4, 7, 6) + 1)
    assert found == {"depthwise conv": 3}
    assert left == {"its padding is no number": 1}


class Grouped(nn.Module):
    """As the positions' embedding of wav2vec 2.0, six channels a group along two axes, and what is neither."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.positions = nn.utils.parametrizations.weight_norm(nn.Conv1d(8, 12, 4, padding=2, groups=4), dim=2)
        self.image, self.line = nn.Conv2d(12, 12, (1, 3), groups=3), nn.Conv1d(12, 6, 3, stride=2, dilation=2, groups=2)
        self.dense, self.six = nn.Conv1d(12, 12, 1), nn.Conv2d(12, 12, (3, 1), padding=(1, 0), groups=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.dense(self.positions(x).sin()).unsqueeze(2)
        return self.line(self.six(self.image(y)).squeeze(2))


@pytest.mark.parametrize("autocast", [False, True])
def test_convolutions_in_groups_are_one_operator_each(monkeypatch: pytest.MonkeyPatch, autocast: bool) -> None:
    monkeypatch.setattr(fusion, "_ON_EVERY_DEVICE", True)
    model, x = Grouped(), images(3, 8, 17)
    exact = steps(double := copy.deepcopy(model).double(), double, x.double())
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found = steps(model, torch.compile(model, backend=rewritten), x)
    assert taken() == {"grouped conv": 3}
    for name, each in found.items():
        assert (each - exact[name]).norm() <= (2e-2 if autocast else 1e-5) * exact[name].norm(), name


@pytest.mark.gpu
def test_convolutions_in_groups_on_a_gpu_are_as_near_to_float64_as_eagers() -> None:
    model, x = Grouped(), images(3, 8, 17)
    exact = steps(double := copy.deepcopy(model).double(), double, x.double())
    model, x = model.cuda(), x.cuda()
    compiled = torch.compile(model, backend="gradkern", options={"gradkern": True})
    with torch.autocast("cuda", torch.bfloat16):
        eager = steps(twin := copy.deepcopy(model), twin, x)
        gradkern.torch.tune(lambda: steps(model, compiled, x))
        found = steps(model, compiled, x)
    assert taken()["grouped conv"] == 3
    for name, each in exact.items():
        error, bound = ((of[name].cpu().double() - each).norm() for of in (found, eager))
        assert error <= 1.5 * bound + 1e-3 * each.norm(), name


def test_depthwise_convolutions_under_autocast_have_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "_ON_EVERY_DEVICE", True)
    model, x = Depthwise(), images(3, 4, 7, 6).contiguous(memory_format=torch.channels_last)
    exact = steps(double := copy.deepcopy(model).double(), double, x.double())
    with torch.autocast("cpu", torch.bfloat16):
        found = steps(model, torch.compile(model, backend=rewritten), x)
    assert taken() == {"depthwise conv": 3}
    for name, each in found.items():
        assert each.dtype == (torch.bfloat16 if name == "y 0" else torch.float32)
        assert (each - exact[name]).norm() <= 2e-2 * exact[name].norm(), name


ACTIVATIONS = {
    "relu6": [nn.ReLU6(), nn.ReLU6(inplace=True), nn.Hardtanh(0, 6)],
    "hardswish": [nn.Hardswish(), nn.Hardswish(inplace=True)],
    "elu": [nn.ELU(), nn.ELU(0.4, inplace=True)],
    "gelu": [nn.GELU()],
    "": [nn.Hardtanh(), nn.ELU(-0.5), nn.Softplus(), nn.GELU("tanh")],
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_behind_batch_norms_are_taken_with_them(name: str) -> None:
    each = [nn.Sequential(nn.BatchNorm2d(4), activation) for activation in ACTIVATIONS[name]]
    model = nn.Sequential(*each)
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.normal_(norm.weight, 3.0, 2.0)  # beyond where they bend
    found, left = check(model, images(3, 4, 7, 6))
    assert (found, left) == ({f"batch_norm + {name}" if name else "batch_norm": len(each)}, {})


def test_inductor_knows_the_operators_before_it_meets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it writes down what their arguments are computed from, before PyTorch 2.13 even if nobody reads the log: for
    minutes where residuals lead through many layers.
    """
    from torch._inductor import graph, lowering

    for name in list(DEFINITIONS):
        lowering.lowerings.pop(getattr(torch.ops.gradkern, name).default, None)
    monkeypatch.setattr(graph, "make_fallback", lambda operator, *_, **__: pytest.fail(f"{operator} is not known"))
    gradkern.torch.forget()
    x = torch.randn(4, 64, requires_grad=True)
    layers: Any = nn.Sequential(*(Residual(64) for _ in range(2)))
    torch.compile(layers, backend="gradkern", options={"gradkern": True})(x).sum().backward()
    assert len(gradkern.torch.report().compiled) > 1
    made = cross_entropy_operators.CROSS_ENTROPY
    assert lowering._maybe_layout_constraints[made] is lowering.constrain_to_fx_strides


class Residual(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(features), nn.Linear(features, features)

    def forward(self, x: Any) -> Any:
        y = x + self.linear(x)
        return y + self.norm(y)


def test_what_is_no_training_is_left_alone() -> None:
    model, x = Block(4, 4, "modules"), images(2, 4, 3, 3)
    model.eval()
    found, _ = check(model, x)
    assert found == {}
    model.float().train()
    with torch.no_grad():
        torch.compile(copy.deepcopy(model), backend=rewritten)(x)
    reasons = {each.reason for each in findings.findings()}
    assert reasons == {"it is not in training", "no gradient of it is wanted"}


class Odd(nn.Module):
    """Batch norms that are not quite what can be taken."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.BatchNorm2d(3, affine=False)
        self.untracked = nn.BatchNorm2d(3, track_running_stats=False)
        self.one, self.two, self.three = nn.BatchNorm2d(3), nn.BatchNorm2d(3), nn.BatchNorm2d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.plain(x) + self.untracked(x)
        y = x * 2
        first = y[:1]
        y += self.one(x)  # writes what `first` sees
        y = y + first
        z = self.two(y) + y.mean((2, 3), keepdim=True)  # no addition of tensors alike
        t = self.three(z)
        u = z * 3
        v = t + u
        u.mul_(2)  # between the addition and the ReLU
        return torch.relu(v) + u


def test_what_cannot_be_taken_is_left_with_the_reason() -> None:
    found, left = check(Odd(), images(2, 3, 4, 4))
    assert found == {"batch_norm": 2, "batch_norm + add": 1}
    unproven = "mul_ writes in between what it reads"  # of the ReLU alone
    assert left == {"it has no weight and bias": 1, "it has no running statistics": 1, unproven: 1}


class Branches(nn.Module):
    """Sums of batch norms as FastViT and GhostNet write them: into what was computed for that."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.BatchNorm2d(4) for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one, two, three, four = self.norms
        identity = one(x)
        y = two(x * 2)
        y += three(x * 3)  # in between, but before `identity` is added
        y += identity
        y = functional.relu(y)
        z = torch.cat([x, y], 1)[:, 2:6]
        z = z.contiguous()
        z += four(y)
        return functional.gelu(z)


def test_an_addition_into_a_sum_that_nothing_else_sees_is_taken_with_the_norm() -> None:
    found, left = check(Branches(), images(2, 4, 3, 5), images(3, 4, 3, 5))
    assert (found, left) == ({"batch_norm + add": 4, "batch_norm + add + relu": 2, "batch_norm": 2}, {})


class Tokens(nn.Module):
    """Batch norms of tokens as LeViT has them."""

    def __init__(self) -> None:
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(4, 4, bias=False) for _ in range(4)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(4) for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def layer(place: int, x: torch.Tensor) -> torch.Tensor:
            y = self.linears[place](x)
            return self.norms[place](y.flatten(0, 1)).reshape_as(y)

        x = x.flatten(2).transpose(1, 2)  # not contiguous
        x = x + layer(0, x)
        x = (x * 2).contiguous()
        x = functional.relu(layer(1, x) + x)
        return layer(2, functional.hardswish(layer(3, x))).unflatten(1, (3, -1))


def test_a_reshape_of_tokens_stands_in_no_ones_way() -> None:
    found, left = check(Tokens(), images(2, 4, 3, 5), images(3, 4, 3, 5))
    assert found == {"batch_norm": 4, "batch_norm + hardswish": 2, "batch_norm + add + relu": 2}
    assert left == {}


def test_transformers_compute_what_eager_does() -> None:
    tokens = [torch.randint(11, (2, 4), generator=torch.Generator().manual_seed(each)) for each in (1, 2)]
    found, left = check(Transformer(8, nn.LayerNorm), *tokens)
    assert found == {"add + layer_norm": 4, "linear + gelu": 2}
    assert left == {"it adds no two tensors of one shape": 1, "it is not on a GPU": 1}  # a norm, the embedding
    gradkern.torch.forget()
    torch.compiler.reset()  # or Dynamo takes epsilon, another one now, for an input first
    found, left = check(Transformer(8, lambda width: nn.RMSNorm(width, eps=1e-6)), *tokens)
    assert found == {"add + rms_norm": 4, "linear + gelu": 2}


def test_under_autocast_a_float32_sum_with_a_branch_of_16_bits_is_taken_with_its_norm() -> None:
    model = Transformer(8, nn.LayerNorm)
    tokens = torch.randint(11, (2, 4), generator=torch.Generator().manual_seed(1))
    exact = steps(double := copy.deepcopy(model).double(), double, tokens)
    with torch.autocast("cpu", torch.bfloat16):
        for name, each in steps(model, torch.compile(model, backend=rewritten), tokens).items():
            torch.testing.assert_close(each.double(), exact[name], rtol=0.1, atol=0.02)
    assert taken() == {"add + layer_norm": 4, "linear + gelu": 2}


def test_a_batch_of_another_size_is_one_graph_more() -> None:
    sizes = [images(size, 4, 5, 5) for size in (3, 5, 6, 7)]
    found, _ = check(Block(4, 4, "modules"), *sizes)
    assert found == {RELU: 2, ADD_RELU: 2}  # the first size, and every other


def test_checkpointed_blocks_are_rewritten_and_count_once() -> None:
    from torch.utils.checkpoint import checkpoint

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block(4, 4, "in place")

        def forward(self, x: torch.Tensor) -> Any:
            if not torch.compiler.is_compiling():  # eager's would run the forward pass twice, and count twice
                return self.block(x) * 2
            return checkpoint(self.block, x, use_reentrant=False) * 2  # pyright: ignore[reportOptionalOperand]

    found, _ = check(Net(), images(3, 4, 5, 5), images(3, 4, 5, 5) + 1)
    assert found == {RELU: 1, ADD_RELU: 1}


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of Inductor's own imports
def test_a_linear_layer_between_convolutions_keeps_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor lays tensors of four axes near a convolution out as images: a GELU's last axis has to stay innermost."""
    from torch._inductor.utils import run_and_get_code

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 3)
            self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.first(x).permute(0, 2, 3, 1)
            return self.last(self.down(functional.gelu(self.up(y))).permute(0, 3, 1, 2))

    seen: list[torch.Tensor] = []

    def watched(own: Any) -> Any:
        def called(needs: Any, tensors: Any, *more: Any) -> Any:
            seen.extend(tensors[:-1])
            return own(needs, tensors, *more)

        for name in ("shortcut", "dispatched"):
            setattr(called, name, getattr(own, name))
        return called

    for table in (bias_gelu_operators._GELU, bias_gelu_operators.GELU_GRAD):
        monkeypatch.setitem(table, "none", watched(table["none"]))
    model: Any = Mixed()
    model.to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    expected = steps(model, copy.deepcopy(model), x)
    compiled = torch.compile(model, backend="gradkern", options={"gradkern": True, "fx_graph_cache": False})
    found, codes = run_and_get_code(steps, model, compiled, x)
    for name, each in found.items():
        if not name.startswith("d "):
            torch.testing.assert_close(each, expected[name], rtol=1e-4, atol=1e-5)
    assert taken() == {"linear + gelu": 1}
    assert call_sites(codes, "bias_gelu_forward")  # not the one that enters autograd
    assert not call_sites(codes, "bias_gelu")
    assert not any("bias_gelu.default(" in code for code in codes)
    assert len(seen) == 3  # the product, and the gradient with it
    assert all(each.stride()[-1] == 1 and each.is_contiguous() for each in seen)


@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
def test_a_view_may_be_between_an_addition_and_the_norm_of_its_rows(kind: Any) -> None:
    """As between Swin's windows and its tokens: of the view alone, or with others that read it."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.turned = kind(6), kind(6), kind(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            tokens = (x + x.sin()).reshape(2, 20, 6)
            tokens = tokens + self.first(tokens)
            y = self.second(tokens.view(2, 4, 5, 6))
            return y * 2 + tokens.view(y.shape) + self.turned((x + 1).mT.reshape(2, 30, 4)).mean()

    found, left = check(Net(), images(2, 4, 5, 6), images(2, 4, 5, 6) + 1)
    assert found == {f"add + {'layer_norm' if kind is nn.LayerNorm else 'rms_norm'}": 2}
    assert not left


def test_the_operators_keep_pytorchs_rules_also_of_inputs_with_gaps() -> None:
    """Such as a half of an image's channels that lie innermost, and tokens that were an image: results lie where
    Inductor is told that they do.
    """
    half = images(2, 8, 3, 3).to(memory_format=torch.channels_last)[:, :4].requires_grad_()
    tokens = images(2, 6, 5).mT[:, 1:].requires_grad_()
    of_channels, of_width = torch.rand(4) + 0.5, torch.rand(6) + 0.5
    calls: list[tuple[Any, tuple[Any, ...]]] = [
        *[
            (
                batch_norm_operators.FORWARD,
                (half, *[of_channels] * 2, *torch.rand(2, 4), half.detach(), 0.1, 1e-5, activation, 0.2),
            )
            for activation in ("relu", "leaky_relu")
        ],
        (add_norm_operators.LAYER_NORM, (tokens, tokens.detach(), of_width, of_width, 1e-5, "float32")),
        (add_norm_operators.RMS_NORM, (tokens, tokens.detach(), of_width, 1e-5, "float32")),
        (bias_gelu_operators.BIAS_GELU, (tokens, of_width, "none")),
        (conv_operators.DEPTHWISE_CONV, (half, images(4, 1, 3, 3), of_channels, [1, 1], [1, 1], [1, 1])),
        (
            conv_operators.CONV_WEIGHT_GRADIENT,
            (half.detach(), half.detach(), images(4, 4, 3, 3), [1, 1], [1, 1], [1, 1], 1),
        ),
        (
            group_norm_operators.GROUP_NORM,
            (half, of_channels, of_channels, torch.rand(2, 4), torch.rand(2, 4), 2, 1e-5, "silu", 0.0),
        ),
        (
            cross_entropy_operators.CROSS_ENTROPY,
            (tokens[:, 0].detach().requires_grad_(), torch.tensor([1, 3]), None, "mean", -100, 0.1),
        ),
        (torch.ops.gradkern.BiasGelu, (tokens.detach(), of_width)),
    ]
    for operator, arguments in calls:
        torch.library.opcheck(operator, arguments)


def test_small_tensors_are_left_by_default() -> None:
    model, x = Block(4, 4, "modules"), images(2, 4, 3, 3)
    torch.compile(model, backend=lambda graph, inputs: rewritten(graph, inputs, None))(x)
    assert {each.reason for each in findings.findings()} == {"fewer than 1048576 bytes"}
    assert "compiled batch_norm + relu: fewer than 1048576 bytes" in str(gradkern.torch.report())


def test_a_model_without_anything_to_fuse_can_be_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of convolutions and instance norms, which searches do not concern either."""
    monkeypatch.setattr(findings, "_graphs", [0])
    model = torch.compile(nn.Sequential(nn.Conv1d(3, 4, 2), nn.InstanceNorm1d(4)), backend=rewritten)
    with pytest.raises(gradkern.ProviderError, match="no model is compiled"):
        gradkern.torch.tune(lambda: None)
    assert gradkern.torch.tune(lambda: model(torch.rand(2, 3, 5)).shape) == (2, 4, 4)


def test_gates_are_told_apart_from_mistakes() -> None:
    x = torch.empty(4, dtype=torch.float64)
    assert not gates_of({"batch_norm": 32}).reason("batch_norm", x)
    assert gates_of({"batch_norm": 33}).reason("batch_norm", x) == "fewer than 33 bytes"
    assert gates_of({"batch_norm": False}).reason("batch_norm", x) == "switched off"
    assert gates_of(True).reason("linear + gelu", x[:0]) == "it is empty"
    with pytest.raises(ArgumentError, match=r"option gradkern has 'batchnorm' \(did you mean batch_norm "):
        gates_of({"batchnorm": 1})
    with pytest.raises(ArgumentError, match=r"option gradkern has -1 for 'batch_norm'; expected bytes, True or False$"):
        gates_of({"batch_norm": -1})
    for wrong in (-1, ["batch_norm"], 0.5):
        with pytest.raises(ArgumentError, match=r"option gradkern is .*; expected bytes, True or False, or a dict of"):
            gates_of(wrong)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of Inductor's own imports
def test_inductor_folds_sums_of_gradients_and_writes_statistics_in_place() -> None:
    """With all three stages; another library's pass over the same graph is called, too."""
    from torch._inductor.utils import run_and_get_code

    seen: list[Any] = []
    model = nn.Sequential(nn.BatchNorm2d(4), Block(4, 4, "in place"))
    inputs = [images(3, 4, 5, 5), images(3, 4, 5, 5) + 1]
    expected = steps(eager := copy.deepcopy(model).double(), eager, *[each.double() for each in inputs])
    options = {"gradkern": True, "joint_custom_pre_pass": seen.append, "fx_graph_cache": False}
    compiled = torch.compile(model, backend="gradkern", options=options)
    found, codes = run_and_get_code(steps, model, compiled, *inputs)
    for name, each in found.items():
        torch.testing.assert_close(each, expected[name].to(each.dtype), rtol=1e-4, atol=1e-5)
    assert len(seen) == 1
    assert len(call_sites(codes, "batch_norm_act_")) == 3
    assert not call_sites(codes, "batch_norm_act")
    seconds = [arguments[1] for arguments in call_sites(codes, "batch_norm_act_backward")]
    assert seconds.count(None) == len(seconds) - 1


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of Inductor's own imports
def test_a_sum_that_inductor_computes_with_an_addend_is_not_folded() -> None:
    """Behind a squeeze and excitation the one gradient is a product, the other the same for a whole channel."""
    from torch._inductor.utils import run_and_get_code

    class Excited(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.excite = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = functional.silu(self.norm(x))
            return y * self.excite(y.mean((2, 3), keepdim=True)).sigmoid()

    model, x = Excited(), images(3, 4, 5, 5)
    expected = steps(eager := copy.deepcopy(model).double(), eager, x.double())
    compiled = torch.compile(model, backend="gradkern", options={"gradkern": True, "fx_graph_cache": False})
    found, codes = run_and_get_code(steps, model, compiled, x)
    for name, each in found.items():
        torch.testing.assert_close(each, expected[name].to(each.dtype), rtol=1e-4, atol=1e-5)
    assert [arguments[1] for arguments in call_sites(codes, "batch_norm_act_backward")] == [None]


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of Inductor's own imports
def test_what_a_batch_norms_gradient_reads_lies_as_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind an average over positions, where Inductor would lay the gradient out in C order."""
    given: list[tuple[Any, ...]] = []
    call = Direct.__call__

    def recorded(self: Direct, needs: Any, tensors: Any, *more: Any) -> Any:
        given.append(tensors)
        return call(self, needs, tensors, *more)

    monkeypatch.setattr(Direct, "__call__", recorded)

    class Averaged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.last = nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.norm(self.conv(x)).relu().mean((2, 3)))

    model: Any = Averaged()
    model.to(memory_format=torch.channels_last)
    x = images(3, 4, 7, 6).contiguous(memory_format=torch.channels_last)
    expected = steps(eager := copy.deepcopy(model).double(), eager, x.double())
    compiled = torch.compile(model, backend="gradkern", options={"gradkern": True, "fx_graph_cache": False})
    found = steps(model, compiled, x)
    for name, each in found.items():
        torch.testing.assert_close(each, expected[name].to(each.dtype), rtol=1e-4, atol=1e-5)
    grad, read = given[-1][:2]
    assert grad.shape == read.shape == (3, 8, 5, 4)
    assert read.is_contiguous(memory_format=torch.channels_last)
    assert grad.stride() == read.stride()


def test_calls_of_a_graph_map_no_memory_each_whatever_the_depth_of_the_stack() -> None:
    """See gradkern.system.data_stack."""
    library = torch.library.Library("depth", "DEF")
    library.define("copy(Tensor x) -> Tensor")
    library.impl("copy", lambda x: x.clone(), "CompositeExplicitAutograd")
    torch.library.register_fake("depth::copy", torch.empty_like, lib=library)
    calls = 120

    def copies(x: torch.Tensor) -> torch.Tensor:
        for _ in range(calls):
            x = torch.ops.depth.copy(x)
        return x

    x = torch.ones(4)
    compiled = torch.compile(copies, backend="gradkern")
    torch.testing.assert_close(compiled(x), x)
    assert max(at_depths(lambda: compiled(x), apart=256)) < calls / 2


@pytest.mark.slow
def test_a_second_process_finds_all_in_its_caches(tmp_path: Any) -> None:
    counts = [compiled_models.in_a_process(tmp_path) for _ in range(2)]
    first, second = counts
    assert first["found"] == second["found"] == {RELU: 1, ADD_RELU: 1}
    assert first["hits"] == 0
    assert second["hits"] >= 1
    assert second["misses"] == 0
    assert first["gradients"] == second["gradients"]
