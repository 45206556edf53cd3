"""torch.compile(model, backend="gradkern"): calls become one only where nothing can tell, as far as it can be proven.

Every case is compared with eager in float64: results and their strides, gradients, which there are none of where eager
has none, parameters and buffers.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.backends.debugging import aot_eager
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from gradkern.torch.compile_backend import findings
from gradkern.torch.compile_backend.dynamo_graph import fusion, proof
from gradkern.torch.compile_backend.dynamo_graph.rewriting import rewrite
from gradkern.torch.compile_backend.gates import gates_of

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread", "compiled_anew")]

Tensor = torch.Tensor
BN, BN_ADD, BN_RELU, BN_ADD_RELU = "batch_norm", "batch_norm + add", "batch_norm + relu", "batch_norm + add + relu"
LN, RMS, GELU, IN_RELU = "add + layer_norm", "add + rms_norm", "linear + gelu", "instance_norm + relu"
LAST_3D = "channels_last_3d"


def rewritten(graph_module: Any, inputs: Any) -> Any:
    """The backend's first stage with autograd's graphs as they are: nothing is compiled."""
    rewrite(graph_module, gates_of(True))
    return aot_eager(graph_module, inputs)


def random(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


class Net(nn.Module):
    """Of every kind of layer one; `body` is what is computed."""

    def __init__(self, body: Callable[..., Any]) -> None:
        super().__init__()
        self.body = body
        self.bn, self.ln, self.rms = nn.BatchNorm1d(4, momentum=0.5), nn.LayerNorm(4), nn.RMSNorm(4, eps=1e-6)
        self.linear, self.instance = nn.Linear(4, 4), nn.InstanceNorm1d(4, affine=True)
        self.first, self.second = nn.Conv3d(4, 4, 1), nn.Conv3d(4, 4, 1)
        self.double()
        for each in self.parameters():
            each.data = random(*each.shape).abs() + 0.5

    def forward(self, *inputs: Tensor) -> Any:
        return self.body(self, *inputs)


def step(model: nn.Module, run: Any, shapes: Any) -> dict[str, Any]:
    """All that a step computes and leaves behind, by name."""
    inputs = [random(*each).requires_grad_() for each in shapes]
    torch.manual_seed(1)  # of dropout
    y = run(*inputs)
    results = y if isinstance(y, tuple) else (y,)
    sum((each.sin() * random(*each.shape)).sum() for each in results if each.requires_grad).backward()  # pyright: ignore
    named = {f"dx {place}": each.grad for place, each in enumerate(inputs)}
    named |= {f"d {name}": each.grad for name, each in model.named_parameters()}
    named |= {name: each.detach() for name, each in (*model.named_parameters(), *model.named_buffers())}
    for place, each in enumerate(results):
        named |= {f"y {place}": each.detach(), f"strides {place}": each.stride()}
    return named


def check(body: Callable[..., Any], *shapes: tuple[int, ...]) -> Counter[str]:
    """Compare with eager. Returns what is taken."""
    model = Net(body)
    expected = step(eager := copy.deepcopy(model), eager, shapes)
    found = step(model, torch.compile(model, backend=rewritten), shapes)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)
    return Counter(each.fusion for each in findings.findings() if not each.reason)


def reasons() -> set[str]:
    return {each.reason for each in findings.findings() if each.reason}


ROWS, LINES, VOLUME = (5, 4), (2, 4, 5), (2, 4, 3, 3, 3)

_library = torch.library.Library("gradkern_tests", "DEF")
_library.define("double_(Tensor(a!) x) -> ()")
_library.impl("double_", lambda x: x.mul_(2).size() and None, "CompositeExplicitAutograd")
torch.library.register_fake("gradkern_tests::double_", lambda x: None, lib=_library)


def in_a_checkpoint(x: Tensor, a: Tensor) -> None:
    def body(y: Tensor) -> Tensor:
        x.mul_(2)
        return y + 1

    checkpoint(body, a, use_reentrant=False) if torch.compiler.is_compiling() else body(a)


WRITES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "an overload": lambda x, a: torch.ops.aten.mul_.Tensor(x, a),
    "a packet of overloads": lambda x, a: torch.ops.aten.mul_(x, a),
    "a method with underscores": lambda x, a: x.__imul__(2),
    "a custom operator": lambda x, a: torch.ops.gradkern_tests.double_(x),
    "embedding with max_norm": lambda x, a: functional.embedding(torch.tensor([0, 1]), x, max_norm=0.1),
    "embedding with max_norm by its place": lambda x, a: functional.embedding(torch.tensor([0, 1]), x, None, 0.1),
    "statistics of an instance norm": lambda x, a: functional.instance_norm(a.T[None].clone(), x[0], x[1].abs_()),
    "statistics of a batch norm": lambda x, a: functional.batch_norm(a, x[0], x[1].abs_(), training=True),
    "many tensors at once": lambda x, a: torch._foreach_mul_([x], 2.0),  # pyright: ignore[reportPrivateImportUsage]
    "out": lambda x, a: torch.add(a, 1, out=x),
    "an item": lambda x, a: x.__setitem__(0, 1.0),
    "a view": lambda x, a: x[:, 0].zero_(),
    "a view of another shape": lambda x, a: x.view(-1)[3:7].copy_(a[0]),
    "data": lambda x, a: x.data.add_(1),
    "in place by its place": lambda x, a: functional.dropout(x, 1.0, True, True),
    "in place by its name": lambda x, a: functional.relu(x, inplace=True),
    "a checkpoint": in_a_checkpoint,
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_no_batch_norm_moves_past_a_write_of_what_it_reads(write: Callable[..., Any]) -> None:
    def body(net: Net, a: Tensor, b: Tensor) -> Tensor:
        residual = b * 1
        total = net.bn(a) + residual
        write(residual.detach(), a.detach())
        return torch.relu(total) + residual

    assert check(body, ROWS, ROWS) == {BN_ADD: 1}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_no_layer_norm_moves_past_a_write_of_the_sum(write: Callable[..., Any]) -> None:
    def body(net: Net, a: Tensor, b: Tensor) -> Tensor:
        total = a + b
        write(total.detach(), a.detach())
        return net.ln(total)

    assert check(body, ROWS, ROWS) == {}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_writes_of_other_tensors_hinder_nothing(write: Callable[..., Any]) -> None:
    def body(net: Net, a: Tensor, b: Tensor) -> Tensor:
        other = b * 3
        total = net.bn(a) + b
        hidden = net.linear(a)
        write(other.detach(), (a * 2).detach())
        return torch.relu(total) + functional.gelu(hidden) + other

    assert check(body, ROWS, ROWS) == {BN_ADD_RELU: 1, GELU: 1}


def changed(parameter: Tensor, by_data: bool) -> None:
    if by_data:
        parameter.data.add_(1.0)
    else:
        with torch.no_grad():
            parameter.add_(1.0)


@pytest.mark.parametrize("by_data", [False, True])
@pytest.mark.parametrize(
    ("layer", "shape", "name", "parts", "taken"),
    [
        (lambda net, x: net.bn(x), ROWS, "bn", (functional.relu,), {BN: 1}),
        (lambda net, x: net.bn(x), ROWS, "bn", (lambda y: y + 1.0, functional.relu), {BN: 1}),
        (lambda net, x: net.instance(x), LINES, "instance", (functional.relu,), {"instance_norm": 1}),
        (lambda net, x: net.linear(x), ROWS, "linear", (functional.gelu,), {}),
    ],
)
def test_nothing_moves_past_a_write_of_its_bias(
    layer: Any, shape: Any, name: str, parts: Any, taken: Any, by_data: bool
) -> None:
    def body(net: Net, x: Tensor) -> Tensor:
        y = layer(net, x)
        changed(getattr(net, name).bias, by_data)
        for part in parts:
            y = part(y)
        return y

    assert check(body, shape) == taken


def test_a_weight_that_is_written_before_its_norm_keeps_that_where_it_is() -> None:
    def body(net: Net, a: Tensor, b: Tensor) -> Tensor:
        total = a + b
        changed(net.ln.weight, False)
        return net.ln(total)

    assert check(body, ROWS, ROWS) == {}


@pytest.mark.parametrize("by_data", [False, True])
@pytest.mark.parametrize(
    ("layer", "shape", "names", "taken"),
    [
        (lambda net, x: functional.gelu(net.linear(x)), ROWS, ["linear.bias"], {}),
        (lambda net, x: functional.relu(net.bn(x)), ROWS, ["bn.bias"], {BN: 1}),
        (lambda net, x: net.bn(x), ROWS, ["bn.bias"], {BN: 1}),  # of which it saves nothing
        (lambda net, x: functional.relu(net.bn(x) + x), ROWS, ["bn.bias"], {BN_ADD_RELU: 1}),
        (lambda net, x: functional.relu(net.instance(x)), LINES, ["instance.weight", "instance.bias"], {}),
    ],
)
def test_no_call_saves_what_is_written_later(layer: Any, shape: Any, names: Any, taken: Any, by_data: bool) -> None:
    """Eager allows it: it saves other tensors for these layers' gradients, or copies."""

    def body(net: Net, x: Tensor) -> Tensor:
        y = layer(net, x)
        for name in names:
            changed(net.get_parameter(name), by_data)
        return y

    assert check(body, shape) == taken


def test_an_input_that_eager_copies_may_be_written_later() -> None:
    def body(net: Net, x: Tensor) -> Tensor:
        x = x.mT.contiguous().mT * 1
        y = functional.relu(net.instance(x))
        x.mul_(2.0)
        return y

    assert check(body, LINES) == {}


def test_a_sum_of_16_bits_may_be_written_behind_a_norm_that_is_spelled_out() -> None:
    """Which saves what it has made of the sum, in 32 bits."""

    def body(net: Net, a: Tensor, b: Tensor) -> Tensor:
        weight = net.rms.weight.bfloat16()
        total = a.bfloat16() + b.bfloat16()
        wide = total.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        y = weight * wide.to(torch.bfloat16)
        total += 1
        return (y + total).double()

    assert check(body, ROWS, ROWS) == {}
    assert reasons() == {"iadd writes later what its gradient is computed from"}


STATISTICS: dict[str, tuple[Callable[..., Any], dict[str, int]]] = {
    "shared": (lambda net, a: functional.relu(net.bn(a) + net.bn(2 * a)), {BN: 1, BN_ADD_RELU: 1}),
    "read": (lambda net, a: [y := net.bn(a), net.bn.running_mean.clone(), functional.relu(y)][1:], {BN: 1}),
    "read by a view": (lambda net, a: [y := net.bn(a), net.bn.running_var[:2] * 2, functional.relu(y)][1:], {BN: 1}),
    "read in evaluation": (
        lambda net, a: [
            y := net.bn(a),
            functional.batch_norm(2 * a, net.bn.running_mean, net.bn.running_var, net.bn.weight),
            functional.relu(y),
        ][1:],
        {BN: 1},
    ),
    "written": (lambda net, a: [y := net.bn(a), net.bn.running_mean.data.add_(1.0), functional.relu(y)][2], {BN: 1}),
    "saved before in evaluation": (
        lambda net, a: [net.bn.eval()(a), net.bn.train()(2 * a).relu()],
        {BN_RELU: 1},
    ),
    "saved before in training": (
        lambda net, a: [
            functional.batch_norm(a, net.bn.running_mean, net.bn.running_var, None, None, True),
            functional.relu(net.bn(2 * a)),
        ],
        {BN_RELU: 1},
    ),
    "saved before by a product": (
        lambda net, a: [net.bn.running_mean * net.linear.bias, functional.relu(net.bn(2 * a))],
        {BN_RELU: 1},
    ),
}


@pytest.mark.parametrize("case", STATISTICS)
def test_everybody_sees_the_running_statistics_of_that_moment(case: str) -> None:
    run, taken = STATISTICS[case]

    def body(net: Net, a: Tensor) -> Any:
        found = run(net, a)
        return tuple(found) if isinstance(found, list) else found

    assert check(body, ROWS) == taken


def no_grad_sum(norm: str) -> Callable[..., Any]:
    def body(net: Net, a: Tensor, b: Tensor) -> Tensor:
        with torch.no_grad():
            total = a + b
        return getattr(net, norm)(total)

    return body


@torch.no_grad()
def decorated(a: Tensor, b: Tensor) -> Tensor:
    return a + b


def bn_sum(net: Net, a: Tensor, b: Tensor) -> Tensor:
    y = net.bn(a)
    with torch.no_grad():
        y = y + b
    return torch.relu(y) + a


def bn_relu(net: Net, a: Tensor, b: Tensor) -> Tensor:
    y = net.bn(a) + b
    with torch.no_grad():
        z = torch.relu(y)
    return z + a


def spelled_norm(net: Net, a: Tensor, b: Tensor) -> Tensor:
    x = (a + b).to(torch.float64)
    with torch.no_grad():
        squares = x.pow(2).mean(-1, keepdim=True)
    return net.rms.weight * (x * torch.rsqrt(squares + 1e-6)).to(torch.float64)


def spelled_gelu(net: Net, a: Tensor, b: Tensor) -> Tensor:
    x = net.linear(a)
    with torch.no_grad():
        cubes = torch.pow(x, 3.0)
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * cubes))) + b


def conv_1d_view(net: Net, a: Tensor, b: Tensor) -> Tensor:
    x = torch.addmm(net.linear.bias, a.view(-1, 4), net.linear.weight)
    with torch.no_grad():
        x = x.view(5, 4)
    return functional.gelu(x) * b


def nested(net: Net, a: Tensor, b: Tensor) -> Tensor:
    with torch.no_grad():
        with torch.enable_grad():
            total = a + b
        other = total * 2
    return net.ln(total) + other


def region_between(net: Net, a: Tensor, b: Tensor) -> Tensor:
    total = a + b
    with torch.no_grad():
        other = a.mean()
    return net.ln(total) * other


@pytest.mark.parametrize(
    ("body", "taken"),
    [
        (no_grad_sum("ln"), {}),
        (no_grad_sum("rms"), {}),
        (lambda net, a, b: net.ln(decorated(a, b)), {}),
        (bn_sum, {BN: 1}),
        (bn_relu, {BN_ADD: 1}),
        (spelled_norm, {}),
        (spelled_gelu, {}),
        (conv_1d_view, {}),
        (nested, {LN: 1}),
        (region_between, {LN: 1}),
    ],
)
def test_what_becomes_one_call_has_one_grad_mode(body: Callable[..., Any], taken: dict[str, int]) -> None:
    assert check(body, ROWS, ROWS) == taken


@torch.compiler.allow_in_graph
def opaque(x: Tensor) -> Tensor:
    return x.sin()


def test_what_nobody_knows_is_not_moved_past() -> None:
    def body(net: Net, a: Tensor, b: Tensor) -> Tensor:
        total = a + b
        return net.ln(total) * opaque(b) + functional.relu(net.bn(a))

    def between(net: Net, a: Tensor, b: Tensor) -> Tensor:
        total = a + b
        other = opaque(b)
        return net.ln(total) * other

    assert check(body, ROWS, ROWS) == {LN: 1, BN_RELU: 1}
    torch.compiler.reset()
    findings.clear()
    assert check(between, ROWS, ROWS) == {}
    assert reasons() == {"what opaque does in between is not known"}


FUNCTIONS: dict[str, Callable[[Net, Tensor, Tensor], Any]] = {
    "grad": lambda net, a, b: torch.func.grad(lambda x: net.ln(x + b).sin().sum())(a),
    "vjp": lambda net, a, b: torch.func.vjp(lambda x: net.rms(x + b), a)[1](b)[0],
    "vmap": lambda net, a, b: torch.func.vmap(lambda x, y: net.ln(x + y))(a, b),
    "vmap of grad": lambda net, a, b: torch.func.vmap(torch.func.grad(lambda x, y: net.ln(x + y).sin().sum()))(a, b),
    "jacrev": lambda net, a, b: torch.func.jacrev(lambda x: net.ln(x + b))(a).sum((0, 1)),
    "grad of gelu": lambda net, a, b: torch.func.grad(lambda x: functional.gelu(net.linear(x)).sum())(a),
    "vmap of gelu": lambda net, a, b: torch.func.vmap(lambda x: functional.gelu(net.linear(x)))(a),
    "instance norm": lambda net, a, b: torch.func.grad(lambda x: net.instance(x.T[None]).relu().sin().sum())(a),
    "what it closes over": lambda net, a, b: torch.func.grad(
        lambda x: (functional.gelu(net.linear(b)) * net.ln(b + b.sin()) * x).sin().sum()
    )(a),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_transforms_of_torch_func_are_left_alone(case: str) -> None:
    def body(net: Net, a: Tensor, b: Tensor) -> Tensor:
        return FUNCTIONS[case](net, a, b) + functional.gelu(net.linear(a)) * net.ln(a + b)

    assert check(body, ROWS, ROWS) == {GELU: 1, LN: 1}


def test_results_have_eagers_strides() -> None:
    """On which, among others, the mask of a dropout depends."""

    def body(net: Net, a: Tensor, b: Tensor) -> Any:
        permuted = net.bn(a.mT)
        added = functional.relu(net.bn(a.mT.contiguous()) + b.mT)
        stream = a + b
        turned = a.mT.contiguous().mT + b  # as attention gives it
        normed = net.rms(a.mT.contiguous().mT * 2 + b)
        return functional.dropout(permuted, 0.5), added, net.ln(stream), net.ln(turned), turned, normed

    assert check(body, (3, 5, 4), (3, 5, 4)) == {BN_ADD_RELU: 1, LN: 1}
    assert reasons() == {"its input is neither contiguous nor channels last", "one of the two is not contiguous"}


VOLUMES: dict[str, tuple[Callable[[Net, Tensor], Any], int]] = {
    "an item": (lambda net, y: [y.__setitem__(0, 1.0), net.second(y)][1], 0),
    "a slice": (lambda net, y: [y.__setitem__((slice(None), 0), 0.0), net.second(y)][1], 0),
    "a view": (lambda net, y: [y[:, 0].zero_(), net.second(y)][1], 0),
    "a view that is read later": (lambda net, y: [v := y[:, 0], y.mul_(2.0), net.second(y) + v.mean()][2], 0),
    "many tensors at once": (lambda net, y: [torch._foreach_mul_([y], 2.0), net.second(y)][1], 0),  # pyright: ignore
    "a method that is not known": (lambda net, y: [y.clamp_(-1, 1), net.second(y)][1], 0),
    "a custom operator": (lambda net, y: [torch.ops.gradkern_tests.double_(y.detach()), net.second(y)][1], 0),
    "two results of one memory": (lambda net, y: (net.second(y), y, y[:, 0]), 0),
    "in place, order and all": (lambda net, y: net.second(y.relu_()) + y, 1),
    "into what has channels first": (lambda net, y: [z := y.detach().sin() * 1, z.add_(y), net.second(z) + z][2], 0),
}


@pytest.mark.parametrize("case", VOLUMES)
def test_no_write_goes_into_a_copy_in_another_order(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "_ON_EVERY_DEVICE", True)
    run, taken = VOLUMES[case]
    assert check(lambda net, x: run(net, net.first(x)), VOLUME)[LAST_3D] == taken


def test_the_work_of_a_proof_grows_as_the_graph_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each addition in place asked for the memory of the whole graph."""
    asked: list[Any] = []
    memory = proof.memory
    monkeypatch.setattr(proof, "memory", lambda arguments: [asked.append(arguments), memory(arguments)][1])

    def of(layers: int) -> int:
        def body(net: Net, a: Tensor) -> Tensor:
            for _ in range(layers):
                y = a * 0.5
                y += net.bn(a.sin())
                a = functional.relu(y)
            return a

        asked.clear()
        assert {*check(body, (3, 4, 5))} == {BN_ADD_RELU}
        return len(asked)

    assert of(12) < 2.5 * of(6)
