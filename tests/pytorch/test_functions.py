"""Functions, modules and torch.ops.gradkern: PyTorch's numbers, types and second derivatives; and accelerate."""

from __future__ import annotations

import copy
import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from helpers.calls import run_any
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional

import gradkern
import gradkern.torch
from gradkern.errors import DeviceError
from gradkern.torch import InvertibleLayerNorm, LayerNorm, LinearGELU, RMSNorm, accelerate, operators
from gradkern.torch.functional import convolutions

pytestmark = pytest.mark.torch


def random(*shape: int, dtype: Any = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64).to(dtype).requires_grad_()


def same(ours: Any, theirs: Any, *leaves: torch.Tensor, **tolerance: Any) -> None:
    """Results and gradients agree."""
    one, other = ours(*leaves), theirs(*leaves)
    torch.testing.assert_close(one, other.to(one.dtype), **tolerance)
    upstream = torch.randn_like(one)
    grads = torch.autograd.grad(one, leaves, upstream)
    for mine, its in zip(grads, torch.autograd.grad(other, leaves, upstream.to(other.dtype)), strict=True):
        assert mine.dtype == its.dtype
        torch.testing.assert_close(mine, its, **tolerance)


FUNCTIONS = {
    "linear_gelu": (
        gradkern.torch.linear_gelu,
        lambda x, w, b: functional.gelu(functional.linear(x, w, b)),
        lambda: (random(2, 3, 4), random(5, 4), random(5)),
    ),
    "linear_gelu of one row": (
        gradkern.torch.linear_gelu,
        lambda x, w, b: functional.gelu(functional.linear(x, w, b)),
        lambda: (random(4), random(5, 4), random(5)),
    ),
    "linear_gelu with tanh": (
        lambda x, w, b: gradkern.torch.linear_gelu(x, w, b, "tanh"),
        lambda x, w, b: functional.gelu(functional.linear(x, w, b), approximate="tanh"),
        lambda: (random(6, 4), random(5, 4), random(5)),
    ),
    "layer_norm": (
        lambda x, w, b: gradkern.torch.layer_norm(x, (3, 4), w, b, 1e-3),
        lambda x, w, b: functional.layer_norm(x, (3, 4), w, b, 1e-3),
        lambda: (random(2, 3, 4), random(3, 4), random(3, 4)),
    ),
    "rms_norm": (
        lambda x, w: gradkern.torch.rms_norm(x, (5,), w, 1e-3),
        lambda x, w: functional.rms_norm(x, (5,), w, 1e-3),
        lambda: (random(2, 3, 5), random(5)),
    ),
}

FUNCTIONS |= {
    "conv2d": (
        lambda x, w, b: gradkern.torch.conv2d(x, w, b, 2, (1, 0)),
        lambda x, w, b: functional.conv2d(x, w, b, 2, (1, 0)),
        lambda: (random(2, 2, 3, 5), random(2, 2, 2, 3), random(2)),
    ),
    "conv2d with one number for both axes": (
        lambda x, w: gradkern.torch.conv2d(x, w, stride=[2], padding=(1,)),
        lambda x, w: functional.conv2d(x, w, stride=[2], padding=(1,)),
        lambda: (random(2, 2, 3, 4), random(2, 2, 2, 3)),
    ),
    "grouped conv1d": (
        lambda x, w: gradkern.torch.conv1d(x, w, dilation=2, groups=2),
        lambda x, w: functional.conv1d(x, w, dilation=2, groups=2),
        lambda: (random(2, 4, 7), random(2, 2, 2)),
    ),
    "depthwise conv2d": (
        lambda x, w, b: gradkern.torch.conv2d(x, w, b, (2, 1), (1, 0), groups=2),
        lambda x, w, b: functional.conv2d(x, w, b, (2, 1), (1, 0), groups=2),
        lambda: (random(2, 2, 3, 4), random(2, 1, 2, 3), random(2)),
    ),
    "batch_norm": (
        lambda x, w, b: gradkern.torch.batch_norm(x, None, None, w, b, True),
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, True),
        lambda: (random(3, 2, 4), random(2), random(2)),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_give_what_pytorchs_do(name: str) -> None:
    ours, theirs, make = FUNCTIONS[name]
    same(ours, theirs, *make())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_first_and_second_derivatives(name: str) -> None:
    ours, _, make = FUNCTIONS[name]
    leaves = make()
    assert torch.autograd.gradcheck(ours, leaves)
    assert torch.autograd.gradgradcheck(ours, leaves)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_only_needed_gradients_are_given(name: str) -> None:
    ours, theirs, make = FUNCTIONS[name]
    first, *others = make()
    frozen = [each.detach() for each in others]
    same(lambda x: ours(x, *frozen), lambda x: theirs(x, *frozen), first)
    same(lambda *rest: ours(first.detach(), *rest), lambda *rest: theirs(first.detach(), *rest), *others)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives_are_of_what_requires_grad_alone(name: str) -> None:
    ours, _, make = FUNCTIONS[name]
    first, *others = make()
    assert torch.autograd.gradgradcheck(lambda x: ours(x, *[each.detach() for each in others]), first)
    assert torch.autograd.gradgradcheck(lambda *rest: ours(first.detach(), *rest), others)


TRANSFORMED = {
    **{name: FUNCTIONS[name] for name in ("linear_gelu", "layer_norm", "rms_norm", "conv2d", "batch_norm")},
    "invertible_layer_norm": (
        lambda x, w, b: gradkern.torch.invertible_layer_norm(x, (5,), w, b, least=1e-9),
        lambda x, w, b: functional.layer_norm(x, (5,), w, b),
        lambda: (random(3, 5), random(5), random(5)),
    ),
    "batch_norm_act": (
        lambda x, w, b: gradkern.torch.batch_norm_act(x, None, None, w, b),
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, True).relu(),
        lambda: (random(3, 2, 4), random(2), random(2)),
    ),
    "layer_norm of a sum": (
        lambda x, w: gradkern.torch.layer_norm(x, (5,), w, residual=x)[0],
        lambda x, w: functional.layer_norm(x + x, (5,), w),
        lambda: (random(3, 5), random(5)),
    ),
}


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch.func.jvp's own
@pytest.mark.parametrize("name", TRANSFORMED)
def test_functions_are_transformed_as_pytorchs_are(name: str) -> None:
    ours, theirs, make = TRANSFORMED[name]
    x, *parameters = [each.detach() for each in make()]
    batch = torch.stack([x, 2 * x])
    for transformed in (
        lambda f: torch.func.grad(lambda x: f(x, *parameters).sin().sum())(x),
        lambda f: torch.vmap(lambda x: f(x, *parameters))(batch),
        lambda f: torch.vmap(torch.func.grad(lambda x: f(x, *parameters).sin().sum()))(batch),
        lambda f: torch.func.jvp(lambda x: f(x, *parameters), (x,), (torch.ones_like(x),))[1],
    ):
        torch.testing.assert_close(transformed(ours), transformed(theirs))


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")  # torch.func.linearize's own
@pytest.mark.filterwarnings("ignore:.torch.jit.(script|trace). is deprecated")
@pytest.mark.filterwarnings("ignore:Converting a tensor to a Python boolean::torch.nn.functional")  # batch_norm's own
@pytest.mark.parametrize("name", TRANSFORMED)
def test_functions_have_forward_mode_derivatives_and_are_traced_as_pytorchs_are(name: str) -> None:
    ours, theirs, make = TRANSFORMED[name]
    x, *parameters = [each.detach() for each in make()]

    def dual(f: Any) -> Any:
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(f(forward_ad.make_dual(x, x.cos()), *parameters)).tangent

    def linearized(f: Any) -> torch.Tensor:
        return torch.func.linearize(lambda x: f(x, *parameters), x)[1](x.cos())

    torch.testing.assert_close(dual(ours), dual(theirs))
    torch.testing.assert_close(linearized(ours), linearized(theirs))
    traced: Any = torch.jit.trace(ours, (x, *parameters))
    assert "PythonOp" not in str(traced.graph)
    torch.testing.assert_close(traced(2 * x, *parameters), theirs(2 * x, *parameters))


@pytest.mark.parametrize("name", TRANSFORMED)
def test_functions_of_tensors_that_stand_for_others_are_pytorchs(name: str) -> None:
    """Of two tensors at once, as DTensor is of a part: an operator without a rule for the class would fail."""
    from torch.testing._internal.two_tensor import TwoTensor

    ours, theirs, make = TRANSFORMED[name]
    x, *parameters = make()
    found = ours(TwoTensor(x.detach(), 2 * x.detach()).requires_grad_(), *parameters)
    torch.testing.assert_close(found.a, theirs(x, *parameters))
    torch.testing.assert_close(found.b, theirs(2 * x, *parameters))
    upstream = torch.randn_like(found.a)
    grads = torch.autograd.grad(found, parameters, TwoTensor(upstream, upstream))
    exact = torch.autograd.grad(theirs(x, *parameters), parameters, upstream)
    torch.testing.assert_close([each.a for each in grads], list(exact))  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize("kind", ["function", "module", "sum"])
def test_layer_norms_of_jagged_tensors_are_pytorchs(kind: str) -> None:
    parts, w, b = [random(3, 8), random(5, 8)], random(8), random(8)
    x: Any = torch.nested.nested_tensor([each.detach() for each in parts], layout=torch.jagged, requires_grad=True)
    module = LayerNorm(8).double()
    module.weight, module.bias = nn.Parameter(w), nn.Parameter(b)
    ours = {
        "function": lambda x: gradkern.torch.layer_norm(x, (8,), w, b),
        "module": module,
        "sum": lambda x: gradkern.torch.layer_norm(x, (8,), w, b, residual=x.detach())[0],
    }[kind]
    y: Any = ours(x)
    y.values().sin().sum().backward()
    rows = torch.cat(parts)
    functional.layer_norm(rows if kind != "sum" else rows + rows.detach(), (8,), w, b).sin().sum().backward()
    torch.testing.assert_close(x.grad.values(), torch.cat([each.grad for each in parts if each.grad is not None]))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_tensor_whose_storage_was_resized_is_refused_and_nothing_read(device: str) -> None:
    x, w, b = (torch.randn(size, device=device) for size in ((64, 32), (32,), (32,)))
    x = x.bfloat16().requires_grad_()
    x.untyped_storage().resize_(64)
    with pytest.raises(gradkern.ArgumentError, match=r"input X is a tensor .* storage was resized to 64 bytes"):
        gradkern.torch.layer_norm(x, (32,), w, b)


@pytest.mark.parametrize("norm", [gradkern.torch.batch_norm, gradkern.torch.batch_norm_act])
@pytest.mark.parametrize(("shape", "training"), [((), True), ((3,), True), ((), False)])
def test_batch_norms_of_tensors_without_channels_are_refused(norm: Any, shape: Any, training: bool) -> None:
    with pytest.raises(
        gradkern.ShapeError, match=rf"^{norm.__name__}: input has shape {re.escape(str(shape))}; expected"
    ):
        norm(torch.ones(shape), torch.zeros(3), torch.ones(3), torch.ones(3), torch.ones(3), training=training)


def test_exported_modules_are_saved_and_compute_the_same() -> None:
    kinds = gradkern.torch
    norms = [kinds.BatchNorm1d(4, activation="relu"), LayerNorm(6), RMSNorm(6), InvertibleLayerNorm(6)]
    model, x = nn.Sequential(kinds.Conv1d(3, 4, 3), *norms, LinearGELU(6, 5)).eval(), torch.randn(2, 3, 8)
    saved = io.BytesIO()
    torch.export.save(torch.export.export(model, (x,)), saved)
    saved.seek(0)
    torch.testing.assert_close(torch.export.load(saved).module()(x), model(x))


def test_norms_without_parameters_have_second_derivatives() -> None:
    assert torch.autograd.gradgradcheck(lambda x: gradkern.torch.layer_norm(x, (4,)), random(3, 4))
    assert torch.autograd.gradgradcheck(lambda x: gradkern.torch.rms_norm(x, (4,), eps=1e-3), random(3, 4))


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("residual", [False, True])
def test_norms_without_parameters_train_after_an_evaluation_in_inference_mode(name: str, residual: bool) -> None:
    columns = 13 + 2 * residual + (name == "rms_norm")  # of no other test: a first call fills the constants
    x, norm = random(3, columns), getattr(gradkern.torch, name)
    other = {"residual": torch.zeros_like(x)} if residual else {}
    with torch.inference_mode():
        norm(x.detach(), (columns,), eps=1e-3, **other)
    y = norm(x, (columns,), eps=1e-3, **other)
    (y[0] if residual else y).square().sum().backward()
    expected = x.detach().requires_grad_()
    getattr(torch.nn.functional, name)(expected, (columns,), eps=1e-3).square().sum().backward()
    torch.testing.assert_close(x.grad, expected.grad)


PAIRS = {
    "Conv1d": lambda kinds: (kinds.Conv1d(4, 6, 3, padding="same"), (2, 4, 7)),
    "Conv2d": lambda kinds: (kinds.Conv2d(4, 6, 3, 2, 1, groups=2), (2, 4, 7, 7)),
    "Conv3d": lambda kinds: (kinds.Conv3d(2, 3, 2, bias=False), (1, 2, 4, 4, 4)),
    "BatchNorm1d": lambda kinds: (kinds.BatchNorm1d(4), (5, 4)),
    "BatchNorm2d": lambda kinds: (kinds.BatchNorm2d(4, momentum=None), (5, 4, 3, 3)),
    "BatchNorm3d": lambda kinds: (kinds.BatchNorm3d(4, track_running_stats=False), (2, 4, 3, 3, 3)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_modules_train_as_pytorchs_do(name: str) -> None:
    (ours, shape), (theirs, _) = PAIRS[name](gradkern.torch), PAIRS[name](nn)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    batches = [torch.randn(shape) for _ in range(2)]
    for x in batches:
        for module in (ours, theirs):
            module(x).square().mean().backward()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)
    for (key, one), other in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, msg=key)
    torch.testing.assert_close(ours.eval()(batches[0]), theirs.eval()(batches[0]))


def test_modules_tell_shapes_of_tensors_without_memory() -> None:
    from torch._subclasses import FakeTensorMode

    kinds = gradkern.torch
    norms = [kinds.BatchNorm1d(2, activation="relu"), LayerNorm(4), RMSNorm(4)]
    model, x = nn.Sequential(kinds.Conv1d(3, 2, 1), *norms, LinearGELU(4, 5)), torch.randn(6, 3, 4)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert model(mode.from_tensor(x)).shape == (6, 2, 5)
    model = model.to("meta")
    model(x.to("meta")).sum().backward()
    assert all(each.grad is not None and each.grad.is_meta for each in model.parameters())


MIXED: dict[str, Callable[[Any, Any], Any]] = {
    "group_norm": lambda x, w: gradkern.torch.group_norm(x, 2, w, w),
    "cross_entropy": lambda x, w: gradkern.torch.cross_entropy(x, w.long()),
    "linear_cross_entropy": lambda x, w: gradkern.torch.linear_cross_entropy(x, w.expand(4, 4), torch.zeros(4).long()),
    "rotary_embedding": lambda x, w: gradkern.torch.rotary_embedding(x[None, None], w.expand(2, 4).T, w.expand(2, 4).T),
}


@pytest.mark.parametrize("name", MIXED)
def test_a_tensor_without_memory_among_others_is_refused(name: str) -> None:
    """PyTorch takes such a call for one on the device meta, whose results no kernel would write."""
    with pytest.raises(DeviceError, match=r"different devices: .* on cpu, .* on meta"):
        MIXED[name](torch.ones(4, 4), torch.ones(4, device="meta"))


def test_norms_without_parameters() -> None:
    x = random(3, 8)
    same(lambda x: gradkern.torch.layer_norm(x, (8,)), lambda x: functional.layer_norm(x, (8,)), x)
    same(lambda x: gradkern.torch.rms_norm(x, (8,)), lambda x: functional.rms_norm(x, (8,)), x)


@pytest.mark.parametrize("name", ["batch_norm", "conv2d", "layer_norm", "linear_gelu"])
def test_an_empty_batch_has_pytorchs_gradients(name: str) -> None:
    ours, theirs, make = FUNCTIONS[name]
    x, *parameters = make()
    same(ours, theirs, x.detach()[:0].requires_grad_(), *parameters)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_an_rms_norm_without_eps_has_that_of_pytorchs(dtype: Any) -> None:
    x, weight = (1e-3 * torch.randn(4, 8)).to(dtype), torch.ones(8, dtype=dtype)
    expected = functional.rms_norm(x, (8,), weight)
    torch.testing.assert_close(gradkern.torch.rms_norm(x, (8,), weight), expected)
    torch.testing.assert_close(RMSNorm(8, dtype=dtype)(x), expected)
    torch.testing.assert_close(gradkern.torch.rms_norm(x, (8,), weight, residual=torch.zeros_like(x))[0], expected)


@pytest.mark.parametrize(
    ("of_input", "of_weight"), [("float64", "float32"), ("float32", "float64"), ("float16", "bfloat16")]
)
def test_parameters_of_types_that_no_operator_has_together_are_converted(of_input: str, of_weight: str) -> None:
    x, weight = random(4, 8, dtype=getattr(torch, of_input)), random(8, dtype=getattr(torch, of_weight))
    for ours, theirs in (
        (gradkern.torch.layer_norm, functional.layer_norm),
        (gradkern.torch.rms_norm, functional.rms_norm),
    ):
        same(
            lambda x, weight, ours=ours: ours(x, (8,), weight, eps=1e-5),
            lambda x, weight, theirs=theirs: theirs(x, (8,), weight.to(x.dtype), eps=1e-5),
            x,
            weight,
            rtol=2e-2 if x.dtype is torch.float16 else 1e-5,
            atol=1e-2 if x.dtype is torch.float16 else 1e-5,
        )


def test_a_linear_layer_without_a_bias() -> None:
    x, weight = random(3, 8), random(5, 8)
    same(gradkern.torch.linear_gelu, lambda x, weight: functional.gelu(functional.linear(x, weight)), x, weight)


def test_numbers_of_numpy_are_strides_too() -> None:
    x, weight = random(1, 2, 7, 7), random(3, 2, 3, 3)
    strides: tuple[Any, ...] = np.int64(2), (np.int64(2), np.int32(1))
    for stride in strides:
        same(
            lambda x, weight, stride=stride: gradkern.torch.conv2d(x, weight, stride=stride),
            lambda x, weight, stride=stride: functional.conv2d(x, weight, stride=stride),
            x,
            weight,
        )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_norms_take_16_bits_with_parameters_of_float32(dtype: Any) -> None:
    x, weight, bias = random(4, 32, dtype=dtype), random(32, dtype=torch.float32), random(32, dtype=torch.float32)
    for ours, theirs, leaves in (
        (gradkern.torch.layer_norm, functional.layer_norm, (x, weight, bias)),
        (gradkern.torch.rms_norm, functional.rms_norm, (x, weight)),
    ):
        y = ours(x, (32,), *leaves[1:], eps=1e-5)
        assert y.dtype is dtype
        upstream = torch.randn_like(y)
        wide = [each.detach().double().requires_grad_() for each in leaves]
        expected = theirs(wide[0], (32,), *wide[1:], eps=1e-5)
        places: dict[str, Any] = {"rtol": 1e-2, "atol": 2e-2}
        torch.testing.assert_close(y.double(), expected, **places)
        exact = torch.autograd.grad(expected, wide, upstream.double())
        for one, other, leaf in zip(torch.autograd.grad(y, leaves, upstream), exact, leaves, strict=True):
            assert one.dtype == leaf.dtype
            torch.testing.assert_close(one.double(), other, **places)


def test_the_invertible_norm_keeps_its_output_alone() -> None:
    x, weight, bias = random(3, 8), random(8), random(8)
    weight.data += weight.detach().sign()
    ours = lambda x, w, b: gradkern.torch.invertible_layer_norm(x, (8,), w, b)  # noqa: E731
    same(ours, lambda x, w, b: functional.layer_norm(x, (8,), w, b), x, weight, bias)
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda each: kept.append(each) or each, lambda each: each):
        ours(x, weight, bias)
    assert not any(each.data_ptr() == x.data_ptr() for each in kept)


def test_weights_near_zero_act_as_if_they_were_a_little_away() -> None:
    x, bias = random(3, 8), random(8)
    weight = torch.zeros(8, dtype=torch.float64).requires_grad_()
    y = gradkern.torch.invertible_layer_norm(x, (8,), weight, bias, least=1e-2)
    torch.testing.assert_close(y, functional.layer_norm(x, (8,), torch.full_like(weight, 1e-2), bias))
    grads = torch.autograd.grad(y.square().sum(), (x, weight, bias))
    assert all(each.isfinite().all() for each in grads)
    assert grads[1].abs().min() > 0


def test_the_invertible_norm_says_that_it_has_no_second_derivative() -> None:
    x, weight, bias = random(3, 8), random(8), random(8)
    y = gradkern.torch.invertible_layer_norm(x, (8,), weight, bias).sum()
    with pytest.raises(RuntimeError, match="has no second derivative; use layer_norm"):
        torch.autograd.grad(y, x, create_graph=True)


# --- torch.ops.gradkern ---------------------------------------------------------------------------------------------


def operands(name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs of the first example in the contract's order, None for those that it leaves out before another."""
    from gradkern.contract.samples import inputs_of

    operator = gradkern.operators()[name]
    import numpy as np

    example = operator.examples[0]
    inputs = inputs_of(operator, operator.combinations[0], example, np.random.default_rng(0))
    attributes = {key: list(value) if isinstance(value, tuple) else value for key, value in example.attributes.items()}
    names = [each.name for each in operator.inputs if each.memory != "host"]  # those come by name
    last = max(n for n, each in enumerate(names) if each in inputs)
    given = [inputs.get(each) for each in names[: last + 1]]
    return tuple(None if each is None else torch.from_numpy(each) for each in given), attributes


@pytest.mark.parametrize("name", gradkern.operators())
def test_every_operator_of_the_registry_is_one_of_pytorchs(name: str) -> None:
    inputs, attributes = operands(name)
    found = getattr(torch.ops.gradkern, name)
    results = found(*inputs, **attributes)
    names = [each.name for each in gradkern.operators()[name].inputs if each.memory != "host"]
    called = run_any(name, **dict(zip(names, inputs, strict=False)), **attributes)
    expected = [getattr(called, each.name, None) for each in gradkern.operators()[name].outputs]
    for one, other in zip(results if isinstance(results, tuple) else (results,), expected, strict=True):
        assert one.numel() == 0 if other is None else torch.equal(one, other)
    torch.library.opcheck(found, inputs, attributes)


def test_where_a_size_follows_from_several_inputs_they_are_refused_before_there_is_data() -> None:
    x, gamma, beta = (torch.empty(shape, device="meta") for shape in ((2, 8, 3, 3), (7,), (8,)))
    with pytest.raises(gradkern.ShapeError, match=r"^GroupNormalization: input scale .*: axis 0 .* is 7; expected 8"):
        torch.ops.gradkern.GroupNormalization(x, gamma, beta, num_groups=2, outputs="Y,mean,inv_std")


def test_outputs_that_are_not_wanted_are_empty() -> None:
    inputs, attributes = operands("ConvGrad")
    results = torch.ops.gradkern.ConvGrad(*inputs, **attributes, outputs="dW")
    assert [each.numel() > 0 for each in results] == [False, True, False]


def test_a_gradient_of_a_gradient_operator_is_refused_in_words() -> None:
    inputs, attributes = operands("LayerNormalizationGrad")
    with pytest.raises(RuntimeError, match="LayerNormalizationGrad has no gradient"):
        torch.ops.gradkern.LayerNormalizationGrad(inputs[0].requires_grad_(), *inputs[1:], **attributes)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # Dynamo does it
def test_functions_are_traced_whole() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.linear = LayerNorm(8), LinearGELU(8, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(self.norm(x))

    torch.manual_seed(0)
    model, x = Model(), torch.randn(4, 8)
    torch.compiler.reset()
    compiled: Any = torch.compile(model, backend="aot_eager", fullgraph=True)
    grads = []
    for run in (model, compiled):
        model.zero_grad()
        run(x).square().sum().backward()
        grads.append([each.grad.clone() for each in model.parameters() if each.grad is not None])
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # Dynamo does it
@pytest.mark.parametrize(("kind", "shape"), [("1d", (5, 4)), ("2d", (3, 4, 3, 2)), ("3d", (2, 4, 3, 2, 2))])
def test_batch_norms_are_traced_whole_and_heed_the_policy_of_every_step(
    kind: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    policies: list[Any] = []

    def run(name: str, *inputs: Any, policy: Any, **named: Any) -> Any:
        policies.append((name, policy.deterministic))
        return run_any(name, *inputs, policy=policy, **named)

    monkeypatch.setattr(operators, "run", run)
    ours, theirs = (getattr(kinds, f"BatchNorm{kind}")(4).double() for kinds in (gradkern.torch, nn))
    torch.compiler.reset()
    compiled: Any = torch.compile(ours, backend="aot_eager", fullgraph=True)
    for deterministic in (False, True, False):
        x = torch.randn(shape, dtype=torch.float64)
        grads = []
        for module in (compiled, theirs):
            leaf = x.clone().requires_grad_()
            with gradkern.policy(deterministic=deterministic):
                module(leaf).pow(3).sum().backward()
            grads.append(leaf.grad)
        torch.testing.assert_close(*grads)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    assert policies == [("BatchNormalizationGrad", each) for each in (False, True, False)]


# --- accelerate -------------------------------------------------------------------------------------------------------


class Strange(nn.LayerNorm):
    """Somebody's own."""


def block() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.LayerNorm(8),
        nn.Linear(8, 16),
        nn.GELU("tanh"),
        nn.Sequential(nn.Linear(16, 16, bias=False), nn.GELU()),
        nn.RMSNorm(16),
        nn.Linear(16, 4),
        Strange(4),
    )


def step(model: nn.Module) -> list[torch.Tensor]:
    model.zero_grad()
    model(torch.randn(3, 8, generator=torch.Generator().manual_seed(0))).square().sum().backward()
    return [each.grad.clone() for each in model.parameters() if each.grad is not None]


def test_accelerate_replaces_in_place_says_what_and_takes_it_back() -> None:
    model = block()
    state, expected, kinds = copy.deepcopy(model.state_dict()), step(model), [type(each) for each in model.modules()]
    done = accelerate(model)
    assert done.replaced == {"1": "Linear + GELU"}
    assert done.left == {"3.0": "it has no bias", "6": "its class is Strange"}
    assert "1: Linear + GELU" in str(done)
    for one, other in zip(step(model), expected, strict=True):
        torch.testing.assert_close(one, other)
    assert list(model.state_dict()) == list(state)
    model.load_state_dict(state, strict=True)
    block().load_state_dict(model.state_dict(), strict=True)
    assert isinstance(model[1], nn.Linear)
    done.undo()
    assert [type(each) for each in model.modules()] == kinds


def test_accelerated_models_are_copied_and_pickled() -> None:
    model = block()
    accelerate(model, autocast="input", invertible=False)
    expected = step(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        assert isinstance(other[0], LayerNorm)
        assert isinstance(other[4], RMSNorm)
        for one, grad in zip(step(other), expected, strict=True):
            torch.testing.assert_close(one, grad)


def test_tied_weights_stay_tied_and_hooks_are_called() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8), nn.GELU())
    model[2].weight = model[0].weight
    calls: list[str] = []
    model[2].register_forward_hook(lambda *_: calls.append("between"))
    done = accelerate(model)
    assert model[2].weight is model[0].weight
    assert done.left == {"2": "hooks look at what is between"}
    model(torch.randn(2, 8))
    assert calls == ["between"]


def test_a_filter_chooses() -> None:
    model = nn.Sequential(block(), block())
    done = accelerate(model, lambda module, name: not name.startswith("1"))
    assert set(done.replaced) == {"0.1"}


def test_invertible_norms_on_request() -> None:
    model = nn.Sequential(nn.LayerNorm(8), nn.LayerNorm(8, elementwise_affine=False))
    done = accelerate(model, invertible=True)
    assert isinstance(model[0], InvertibleLayerNorm)
    assert done.left == {"1": "it has no weight and bias to invert"}


def test_autocast_keeps_16_bits() -> None:
    model, x = nn.Sequential(nn.LayerNorm(8), nn.RMSNorm(8)), torch.randn(3, 8, dtype=torch.bfloat16)
    accelerate(model, autocast="input")
    with torch.autocast("cpu", torch.bfloat16):
        assert model(x).dtype is torch.bfloat16


@pytest.mark.parametrize("kind", ["Conv1d", "LinearGELU"])
def test_autocast_leaves_float64_as_it_is(kind: str) -> None:
    module, x = (
        (gradkern.torch.Conv1d(3, 2, 1), torch.randn(2, 3, 4))
        if kind == "Conv1d"
        else (LinearGELU(3, 2), torch.randn(2, 3))
    )
    with torch.autocast("cpu", torch.bfloat16):
        assert module(x).dtype is torch.bfloat16
        assert module.double()(x.double()).dtype is torch.float64


def test_accelerate_leaves_alone_what_it_has_replaced() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4), nn.RMSNorm(4))
    assert len(accelerate(model, autocast="input").replaced) == 3
    assert str(accelerate(model, autocast="input")) == "gradkern.torch: 0 modules replaced, 0 left"


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_accelerate_leaves_what_has_a_forward_of_its_own(place: int) -> None:
    """As libraries that offload weights put into some modules: half of a pair would be wrong."""
    model: Any = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.BatchNorm1d(4), nn.ReLU()).double()
    model[place].forward = lambda x, own=model[place].forward: own(x) + 1
    x = random(5, 4)
    expected = model(x)
    done = accelerate(model)
    assert "a forward of its own" in done.left[str(place)]
    assert str(place) not in done.replaced
    torch.testing.assert_close(model(x), expected)
    model.forward = lambda x: x
    done.undo()
    assert accelerate(model).replaced == {}


def test_accelerate_looks_into_a_model_that_is_to_be_compiled() -> None:
    model: Any = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.GELU()), backend="eager")
    done = accelerate(model)
    assert (done.replaced, done.left) == ({"_orig_mod.0": "Linear + GELU"}, {})
    torch.testing.assert_close(model(torch.ones(2, 4)), model._orig_mod(torch.ones(2, 4)))


def test_accelerate_leaves_what_hooks_of_the_backward_pass_look_at() -> None:
    model: Any = nn.Sequential(nn.Linear(4, 4), nn.GELU())
    seen: list[torch.Tensor] = []
    model[1].register_full_backward_hook(lambda _, of_input, __: seen.append(of_input[0]))
    assert accelerate(model).left == {"0": "hooks look at what is between"}
    x = torch.randn(3, 4)
    model(x).sum().backward()
    z = model[0](x).detach().requires_grad_()
    functional.gelu(z).sum().backward()
    torch.testing.assert_close(seen, [z.grad])


def test_what_has_become_something_else_is_not_undone() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4))
    done = accelerate(model, autocast="input")
    norm: Any = model[2]
    kind = type(norm)
    norm.__class__ = type("Sharded", (kind,), {})
    with pytest.raises(RuntimeError, match=r"^undo: 2 is a Sharded by now; expected LayerNorm"):
        done.undo()
    assert type(model) is not nn.Sequential
    norm.__class__ = kind
    done.undo()
    assert type(model) is nn.Sequential
    assert [type(each) for each in model] == [nn.Linear, nn.GELU, nn.LayerNorm]


def test_a_sharded_model_is_refused() -> None:
    class FSDPModule:
        pass

    class Sharded(FSDPModule, nn.Linear):
        pass

    with pytest.raises(RuntimeError, match="the model is wrapped by fully_shard; accelerate before it"):
        accelerate(Sharded(2, 2))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: LayerNorm(4, autocast="all"), "autocast is 'all'"),
        (lambda: LinearGELU(2, 2, bias=False), "LinearGELU: bias is False"),
        (lambda: LinearGELU(2, 2, approximate="erf"), 'approximate is \'erf\'; expected "none" or "tanh"'),
        (lambda: InvertibleLayerNorm(4, bias=False), "elementwise_affine or bias is False"),
        (lambda: InvertibleLayerNorm(4, least=0), "least is 0; expected a number above 0"),
        (lambda: gradkern.torch.BatchNorm1d(3)(torch.ones(1, 3)), "more than 1 value per channel"),
        (lambda: gradkern.torch.rms_norm(torch.ones(3, 8), (1,), torch.ones(1)), r"normalized_shape is \(1,\)"),
        (lambda: gradkern.torch.rms_norm(torch.ones(3, 8), (8,), torch.ones(1)), r"weight has shape \(1,\); expected"),
        (lambda: accelerate(nn.Linear(2, 2), autocast="all"), "accelerate: autocast is 'all'"),
    ],
)
def test_modules_and_functions_say_what_they_cannot_be(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()


X, SHAPE, EIGHT = torch.ones(4, 8, requires_grad=True), (8,), torch.ones(8)
WRONG: list[tuple[Any, Any, str]] = [
    (gradkern.ArgumentError, lambda norm: norm(X, 8, EIGHT), "normalized_shape is 8; expected a tuple"),
    (gradkern.ArgumentError, lambda norm: norm(X.detach().numpy(), SHAPE), "input is a ndarray; expected a tensor"),
    (gradkern.ArgumentError, lambda norm: norm(X, SHAPE, 1.0), "weight is a float; expected a tensor"),
    (gradkern.ArgumentError, lambda norm: norm(X, SHAPE, residual=1), "residual is a int; expected a tensor"),
    (gradkern.DTypeError, lambda norm: norm(X.int(), SHAPE), "input has type int32; expected float16, "),
    (gradkern.DTypeError, lambda norm: norm(X.to(torch.complex64), SHAPE), "input has type complex64"),
    (gradkern.ShapeError, lambda norm: norm(X, (7,), EIGHT), r"normalized_shape is \(7,\); .* input, \(4, 8\)"),
    (gradkern.ShapeError, lambda norm: norm(X, (), EIGHT), r"normalized_shape is \(\)"),
    (gradkern.ShapeError, lambda norm: norm(X, SHAPE, EIGHT[1:]), r"weight has shape \(7,\); expected \(8,\)"),
    (gradkern.ShapeError, lambda norm: norm(X, (7,), EIGHT, residual=X), r"normalized_shape is \(7,\)"),
]


@pytest.mark.parametrize("norm", [gradkern.torch.layer_norm, gradkern.torch.rms_norm])
@pytest.mark.parametrize(("error", "call", "text"), WRONG)
def test_norms_refuse_before_they_compute(norm: Any, error: Any, call: Any, text: str) -> None:
    with pytest.raises(error, match=f"^{norm.__name__}: {text}"):
        call(norm)


@pytest.mark.parametrize(
    ("error", "options", "text"),
    [
        (gradkern.ShapeError, {"bias": torch.ones(1)}, r"bias has shape \(1,\); expected \(5,\)"),
        (gradkern.ShapeError, {"weight": torch.ones(5, 7)}, r"weight has shape \(5, 7\); .* of input, \(4, 8\)"),
        (gradkern.ShapeError, {"weight": torch.ones(8)}, r"weight has shape \(8,\); expected two dimensions"),
        (gradkern.DTypeError, {"weight": torch.ones(5, 8).half()}, "weight has type float16; expected float32"),
        (gradkern.DTypeError, {"input": torch.ones(4, 8).int()}, "input has type int32"),
        (gradkern.ArgumentError, {"input": 3}, "input is a int; expected a tensor"),
        (gradkern.AttributeValueError, {"approximate": "erf"}, "approximate is 'erf'"),
    ],
)
def test_linear_gelu_refuses_before_it_computes(error: Any, options: dict[str, Any], text: str) -> None:
    given: dict[str, Any] = {"input": X, "weight": torch.ones(5, 8), "bias": torch.ones(5)}
    with pytest.raises(error, match=f"^linear_gelu: {text}"):
        gradkern.torch.linear_gelu(**given | options)


def test_accelerate_wants_a_model_and_a_function() -> None:
    wrong: Any = (5, "LayerNorm")
    with pytest.raises(gradkern.ArgumentError, match=r"^accelerate: model is a int; expected an nn.Module"):
        accelerate(wrong[0])
    with pytest.raises(gradkern.ArgumentError, match=r"^accelerate: filter is 'LayerNorm'; expected a function"):
        accelerate(nn.LayerNorm(8), wrong[1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_functions_under_autocast_have_gradients_outside_of_it(dtype: Any) -> None:
    """As training loops have it: backward is called after the block."""
    x, weight, bias = random(6, 4, dtype=dtype), random(5, 4, dtype=torch.float32), random(5, dtype=torch.float32)
    with torch.autocast("cpu", dtype):
        y = gradkern.torch.linear_gelu(x, weight, bias)
    assert y.dtype is dtype
    exact = [each.detach().double().requires_grad_() for each in (x, weight, bias)]
    expected = functional.gelu(functional.linear(*exact))
    torch.testing.assert_close(y.double(), expected, rtol=2e-2, atol=3e-2)
    found = torch.autograd.grad(y.sum(), (x, weight, bias))
    for one, other, leaf in zip(found, torch.autograd.grad(expected.sum(), exact), (x, weight, bias), strict=True):
        assert one.dtype is leaf.dtype
        torch.testing.assert_close(one.double(), other, rtol=2e-2, atol=6e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_an_invertible_norm_has_the_inputs_type_under_autocast_too(dtype: Any) -> None:
    model, x, upstream = nn.LayerNorm(16), random(6, 16, dtype=dtype), torch.randn(6, 16, dtype=torch.float64)
    assert accelerate(model, invertible=True).replaced == {"": "InvertibleLayerNorm"}
    with torch.autocast("cpu", dtype):
        y = model(x)
    assert y.dtype is dtype
    leaves = (x, model.weight, model.bias)
    exact = [each.detach().double().requires_grad_() for each in leaves]
    expected = torch.autograd.grad(functional.layer_norm(exact[0], (16,), exact[1], exact[2]), exact, upstream)
    for one, other, leaf in zip(torch.autograd.grad(y, leaves, upstream.to(dtype)), expected, leaves, strict=True):
        assert one.dtype is leaf.dtype
        torch.testing.assert_close(one.double(), other, rtol=2e-2, atol=6e-2)


def test_convolutions_that_gradkern_has_no_gradient_of_are_pytorchs() -> None:
    x, weight = random(2, 3, 5, 4), random(2, 3, 3, 3)
    for options in ({"padding": "same"}, {"padding": "valid"}):
        same(
            lambda x, w, options=options: gradkern.torch.conv2d(x, w, **options),
            lambda x, w, options=options: functional.conv2d(x, w, **options),
            x,
            weight,
        )
    same(gradkern.torch.conv2d, functional.conv2d, random(3, 5, 4), weight)
    wrong: Any
    for wrong, shown in ((1.5, r"1.5"), ((1.5, 2), r"\(1.5, 2\)"), ("ab", r"\('a', 'b'\)")):
        with pytest.raises(
            gradkern.ArgumentError, match=f"^conv2d: stride is {shown}; expected an integer, or a tuple"
        ):
            gradkern.torch.conv2d(x, weight, stride=wrong)
    with pytest.raises(RuntimeError, match="Expected 2D"):
        gradkern.torch.conv1d(x, weight)


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_the_forward_pass_of_a_depthwise_convolution_is_gradkerns(
    spatial: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is on a GPU."""
    monkeypatch.setattr(
        convolutions, "_own_forward", lambda x, weight, groups: convolutions.is_depthwise(weight, groups)
    )
    ours: Any = (gradkern.torch.conv1d, gradkern.torch.conv2d, gradkern.torch.conv3d)[spatial - 1]
    theirs: Any = (functional.conv1d, functional.conv2d, functional.conv3d)[spatial - 1]
    for bias in (True, False):
        leaves = random(2, 3, *(5, 4, 3)[:spatial]), random(3, 1, *(3, 2, 2)[:spatial]), *([random(3)] if bias else [])
        given = lambda function: lambda x, w, b=None: function(x, w, b, 2, 1, 1, 3)  # noqa: E731
        same(given(ours), given(theirs), *leaves)
        assert torch.autograd.gradgradcheck(given(ours), leaves)
    seen: list[str] = []
    monkeypatch.setattr(convolutions, "CONV", lambda *_: seen.append("Conv") or (torch.zeros(()),))
    ours(*leaves[:2], groups=3)
    ours(leaves[0], random(4, 3, *(3, 2, 2)[:spatial]))
    ours(leaves[0][:0], leaves[1], groups=3)
    assert seen == ["Conv"]


@pytest.mark.gpu
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_depthwise_convolutions_of_every_rank_on_a_gpu(spatial: int, last: bool) -> None:
    ours: Any = (gradkern.torch.conv1d, gradkern.torch.conv2d, gradkern.torch.conv3d)[spatial - 1]
    theirs: Any = (functional.conv1d, functional.conv2d, functional.conv3d)[spatial - 1]
    sizes = (4, 16, *(9, 10, 11)[:spatial]), (16, 1, *(3, 2, 3)[:spatial]), (16,)
    x, *parameters = (torch.randn(size, device="cuda") for size in sizes)
    x = x.movedim(1, -1).contiguous().movedim(-1, 1) if last else x
    leaves = x.requires_grad_(), *[each.requires_grad_() for each in parameters]
    exact = lambda x, w, b: theirs(x.double(), w.double(), b.double(), 2, 1, 1, 16)  # noqa: E731
    same(lambda x, w, b: ours(x, w, b, 2, 1, 1, 16), exact, *leaves, rtol=1e-4, atol=1e-4)


def test_accelerate_takes_depthwise_convolutions() -> None:
    model = nn.Sequential(
        nn.Conv2d(4, 4, 3, groups=4),
        nn.Conv2d(4, 8, 3, groups=4),
        nn.Conv1d(4, 4, 3, groups=4),
        nn.Conv2d(4, 4, 3),
        nn.Conv3d(4, 4, 3, groups=4),
    )
    done = accelerate(model)
    assert done.replaced == {"0": "Conv2d", "2": "Conv1d", "4": "Conv3d"}
    ours = gradkern.torch.Conv2d, nn.Conv2d, gradkern.torch.Conv1d, nn.Conv2d, gradkern.torch.Conv3d
    assert tuple(type(each) for each in model) == ours
    x = torch.randn(2, 4, 5, 5)
    first: Any = model[0]
    torch.testing.assert_close(first(x), functional.conv2d(x, first.weight, first.bias, groups=4))
    done.undo()
    assert {type(each) for each in model} == {nn.Conv1d, nn.Conv2d, nn.Conv3d}
