"""torch.compile(model, backend="gradkern"): a bias's gradient out of the backward pass of the norm behind it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.compiled_models import Transformer
from torch import nn
from torch.nn import functional

from gradkern.torch.compile_backend.dynamo_graph.add_norm import BACKWARDS
from gradkern.torch.compile_backend.inductor_graphs import joint_graph

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread", "compiled_anew")]

NORMS = [nn.LayerNorm, lambda width: nn.RMSNorm(width, eps=1e-6)]


class Backend:
    """The backend's first stage and this pass, over graphs that run as they are. taken: of how many sums it took."""

    def __init__(self) -> None:
        self.taken = 0

    def __call__(self, graph_module: Any, inputs: Any) -> Any:
        from functorch.compile import default_partition
        from torch._dynamo.backends.common import aot_autograd
        from torch._functorch._aot_autograd.utils import make_boxed_func

        from gradkern.torch.compile_backend.dynamo_graph.rewriting import rewrite
        from gradkern.torch.compile_backend.gates import gates_of

        def partition(joint: Any, *more: Any, **named: Any) -> Any:
            before = sums(joint.graph)
            joint_graph.take_bias_gradients(joint.graph)
            joint.graph.lint()
            joint.recompile()
            self.taken += before - sums(joint.graph)
            return default_partition(joint, *more, **named)

        def as_it_is(module: Any, _: Any) -> Any:
            return make_boxed_func(module)

        rewrite(graph_module, gates_of(True))
        return aot_autograd(fw_compiler=as_it_is, partition_fn=partition)(graph_module, inputs)


def sums(graph: Any) -> int:
    return len(graph.find_nodes(op="call_function", target=torch.ops.aten.sum.dim_IntList))


def gradients(model: nn.Module, run: Any, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    run(*inputs).double().sin().mean().backward()
    return {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}


def check(model: nn.Module, *inputs: torch.Tensor) -> int:
    """Gradients are eager's in float64. Returns how many sums were taken."""
    model = model.double()
    expected = gradients(eager := copy.deepcopy(model), eager, *inputs)
    backend = Backend()
    found = gradients(model, torch.compile(model, backend=backend), *inputs)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    return backend.taken


def tokens() -> torch.Tensor:
    return torch.randint(11, (2, 4), generator=torch.Generator().manual_seed(1))


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


@pytest.mark.parametrize("norm", NORMS)
def test_layers_that_end_in_the_residual_have_their_biases_gradients_from_norms(norm: Callable[..., Any]) -> None:
    assert check(Transformer(8, norm), tokens()) == 2  # those of `down`; behind those of `mix` are other sums


class Stream(nn.Module):
    """Linear layers into a residual stream; `seen` looks at the stream before the norm."""

    def __init__(self, norm: Callable[..., Any], seen: Callable[..., Any], layers: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(layers)])
        self.norms = nn.ModuleList([norm(6) for _ in range(layers)])
        self.seen = seen

    def forward(self, x: torch.Tensor) -> Any:
        y, found = x, 0.0
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + layer(functional.gelu(y))
            y = norm(x)
            found = found + self.seen(x)
        return y + found


@pytest.mark.parametrize("shape", [(5, 6), (3, 4, 6), (2, 3, 2, 6), (1, 6)])
def test_a_sum_over_all_rows_is_taken_of_any_number_of_axes(shape: tuple[int, ...]) -> None:
    assert check(Stream(nn.LayerNorm, lambda _: 0.0), rows(*shape)) == 3


@pytest.mark.parametrize("norm", NORMS)
def test_gradients_of_the_stream_itself_go_into_the_sums(norm: Callable[..., Any]) -> None:
    assert check(Stream(norm, torch.cos), rows(3, 4, 6)) == 3


def test_a_gradient_that_is_changed_on_its_way_is_summed_by_itself() -> None:
    class Scaled(Stream):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer, norm in zip(self.layers, self.norms, strict=True):
                x = norm(x + 2 * layer(x))
            return x

    assert check(Scaled(nn.LayerNorm, lambda _: 0.0), rows(5, 6)) == 0


def test_sums_over_some_rows_or_over_columns_are_left() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.places, self.norm = nn.Parameter(rows(4, 6)), nn.LayerNorm(6)
            self.rows, self.all = nn.Parameter(rows(3, 4, 1)), nn.Parameter(rows(1, 1, 1))
            self.bias, self.other = nn.Parameter(rows(6)), nn.Parameter(rows(1, 1, 6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            added = sum(each.expand(3, 4, 6) for each in (self.places, self.rows, self.all, self.bias, self.other))
            return self.norm(x.sin() + added)

    assert check(Positions(), rows(3, 4, 6)) == 2


class Shifted(nn.Module):
    """Parameters of one gradient, of one shape and of two, before a norm."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.other, self.norm = nn.Linear(6, 6), nn.Linear(6, 6), nn.LayerNorm(6)
        self.shift = nn.Parameter(torch.zeros(6))
        self.first, self.second = nn.Parameter(torch.zeros(1, 1, 6)), nn.Parameter(torch.zeros(1, 1, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer(x) + self.first + self.second + self.shift + self.other(x) + x)


def check_memory(model: nn.Module, run: Any) -> None:
    """No two gradients share memory: two steps, after which they are scaled in place."""
    expected = copy.deepcopy(model)
    for each, called in ((expected, expected), (model, run)):
        each.zero_grad()
        for _ in range(2):
            called(rows(3, 4, 6).to(next(each.parameters()).dtype)).sin().sum().backward()
        nn.utils.clip_grad_norm_(each.parameters(), 0.1)
    found = {name: each.grad for name, each in model.named_parameters()}
    torch.testing.assert_close(found, {name: each.grad for name, each in expected.named_parameters()})
    memory = {each.grad.untyped_storage().data_ptr() for each in model.parameters() if each.grad is not None}
    assert len(memory) == len(found)


def test_gradients_that_are_one_sum_have_memory_of_their_own() -> None:
    backend, model = Backend(), Shifted().double()
    check_memory(model, torch.compile(model, backend=backend))
    assert backend.taken == 5


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of Inductor's own imports
def test_inductor_keeps_the_memory_of_gradients_apart() -> None:
    model = Shifted()
    check_memory(model, torch.compile(model, backend="gradkern", options={"gradkern": True}))


class Biased(torch.autograd.Function):
    """x + bias, with the bias's gradient added up and left in the bias's own type."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        ctx.dtype = bias.dtype
        return x + bias.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return grads[0], grads[0].sum(0, dtype=ctx.dtype)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # Dynamo does
@pytest.mark.parametrize(
    ("bias", "data", "parameter", "taken"),
    [
        (torch.bfloat16, torch.bfloat16, torch.bfloat16, 1),
        (torch.bfloat16, torch.bfloat16, torch.float32, 1),
        (torch.float32, torch.bfloat16, torch.float32, 1),
        (torch.float32, torch.bfloat16, torch.bfloat16, 0),  # the norm's backward pass would round the sum
        (torch.float32, torch.float32, torch.float32, 1),
    ],
)
def test_sums_are_of_the_types_they_were(
    bias: torch.dtype, data: torch.dtype, parameter: torch.dtype, taken: int
) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias, self.weight = nn.Parameter(rows(64).to(bias)), nn.Parameter(rows(64).to(parameter))
            self.shift = nn.Parameter(rows(64).to(parameter))

        def forward(self, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            total = z + Biased.apply(x, self.bias)
            return functional.layer_norm(total, (64,), self.weight, self.shift, 1e-5)

    model, inputs = Net(), [rows(300, 64).to(data), rows(64, 300).T.contiguous().to(data)]
    exact = gradients(wide := copy.deepcopy(model).double(), wide, *[each.double() for each in inputs])
    backend = Backend()
    found = gradients(model, torch.compile(model, backend=backend), *inputs)
    assert backend.taken == taken
    for name, each in found.items():
        assert each.dtype == getattr(model, name).dtype
        assert (each.double() - exact[name]).norm() <= 1e-2 * exact[name].norm(), name


def test_batches_of_other_sizes_are_one_graph_more() -> None:
    backend, model = Backend(), Stream(nn.LayerNorm, torch.cos, 1).double()
    compiled = torch.compile(model, backend=backend)
    for size in (3, 5, 7, 9):
        torch.testing.assert_close(gradients(model, compiled, rows(size, 6)), gradients(model, model, rows(size, 6)))
    assert backend.taken == 2  # of the first size, and of every other


@pytest.mark.parametrize("backward", BACKWARDS)
@pytest.mark.parametrize("parameter", [torch.float64, torch.float32])
def test_the_operators_give_the_sum_on_request(backward: Any, parameter: torch.dtype) -> None:
    data = torch.float64 if parameter == torch.float64 else torch.bfloat16
    grad, added, total = (rows(3, 4, 5 + place)[..., :5].to(data).contiguous() for place in range(3))
    statistics = [rows(3, 4).abs().to(parameter) for _ in range(len(backward._schema.arguments) - 6)]
    arguments = grad, added, total, rows(5).to(parameter), *statistics, str(data).removeprefix("torch.")
    count = len(backward._schema.returns)
    dx, *_, found, branch = backward(*arguments, [True] * count)
    assert branch.equal(dx)
    near = 1e-12 if parameter == torch.float64 else 2e-2  # or dx is rounded
    torch.testing.assert_close(found, dx.sum((0, 1), dtype=parameter), rtol=near, atol=near)
    assert backward(*arguments, [True] * (count - 2) + [False] * 2)[-2].numel() == 0
    for mask in ([True] * count, [False] * (count - 2) + [True, False], [False] * (count - 1) + [True]):
        torch.library.opcheck(backward, (*arguments, mask), test_utils="test_faketensor")


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of Inductor's own imports
def test_inductors_code_has_the_sum_from_the_norms_call() -> None:
    from torch._inductor.utils import run_and_get_code

    model = Transformer(8, nn.LayerNorm)
    expected = gradients(eager := copy.deepcopy(model).double(), eager, tokens())
    compiled = torch.compile(model, backend="gradkern", options={"gradkern": True, "fx_graph_cache": False})
    found, codes = run_and_get_code(gradients, model, compiled, tokens())
    for name, each in found.items():
        torch.testing.assert_close(each.double(), expected[name], rtol=1e-4, atol=1e-5)
    lines = [line for code in codes for line in code.splitlines() if "CallSite('add_layer_norm_backward'" in line]
    assert sum("[True, True, True, True, False]" in line for line in lines) == 2
    assert sum("[True, True, True, False, False]" in line for line in lines) == 2
