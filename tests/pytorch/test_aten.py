"""Each override against aten's own kernel in float64: types, ranks, orders in memory, masks, what may be missing."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
from helpers.tolerance import assert_close

import gradkern
import gradkern.torch
from gradkern.arrays.host import torch_as_numpy
from gradkern.torch.aten import TRANSLATIONS
from gradkern.torch.overrides.kernel import Kernel
from gradkern.torch.overrides.options import Options

pytestmark = pytest.mark.torch

BY_NAME = {each.name: each for each in TRANSLATIONS}
KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
NOW = Options.of(None, ("cpu",), 0, "raise", "now", True, False)  # machine code would answer all of the process
F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
MASKS = [mask for mask in product([True, False], repeat=3) if any(mask)]


def kernel_of(name: str, original: Any = None) -> Kernel:
    """The operator's kernel at the CPU key. `original` stands for PyTorch's, which on a CPU takes fewer types."""
    kernel = Kernel(BY_NAME[name], "CPU")
    kernel.override.original = original or (lambda keys, *args, **named: getattr(torch.ops.aten, name)(*args, **named))
    kernel.follow(NOW)
    return kernel


def wide(value: Any) -> Any:
    return value.detach().double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def in_float64(name: str, dtypes: Any) -> Any:
    """What PyTorch's CUDA kernel would answer: computed in float64, rounded to the types it would have."""

    def original(keys: Any, *args: Any, **named: Any) -> Any:
        results = FORMULAS.get(name, getattr(torch.ops.aten, name))(*map(wide, args), **named)
        results = results if isinstance(results, tuple) else (results,)
        types = dtypes(*args)
        return tuple(None if each is None else each.to(dtype) for each, dtype in zip(results, types, strict=True))

    return original


def rms_norm(grad: Any, x: Any, shape: Any, rstd: Any, weight: Any, mask: Any) -> Any:
    rows = tuple(range(x.dim() - len(shape)))
    columns = tuple(range(len(rows), x.dim()))
    xh, g = x * rstd, grad if weight is None else grad * weight
    dx = rstd * (g - xh * (g * xh).mean(columns, keepdim=True))
    return dx if mask[0] else None, (grad * xh).sum(rows) if mask[1] and rows else (grad * xh if mask[1] else None)


def cudnn_batch_norm(x: Any, grad: Any, weight: Any, mean: Any, var: Any, save: Any, inv: Any, eps: Any, _: Any) -> Any:
    return torch.ops.aten.native_batch_norm_backward(grad, x, weight, mean, var, save, inv, True, eps, [True] * 3)


def batch_norm_sums(grad: Any, x: Any, mean: Any, inv_std: Any, weight: Any, *asked: bool) -> Any:
    over = tuple(axis for axis in range(x.dim()) if axis != 1)
    apart = x - mean.view(-1, *[1] * (x.dim() - 2))
    dbias, sums = grad.sum(over), (grad * apart).sum(over)
    every = dbias, sums, sums * inv_std, dbias
    return tuple(each if wanted else None for each, wanted in zip(every, (asked[0], *asked), strict=True))


def batch_norm_from_sums(grad: Any, x: Any, mean: Any, inv_std: Any, weight: Any, *rest: Any) -> Any:
    sum_dy, sum_dy_xmu, count = rest
    total, wide = count.sum(), lambda each: each.view(-1, *[1] * (x.dim() - 2))
    slope = wide(inv_std**2 * sum_dy_xmu / total)
    dx = (grad - wide(sum_dy / total) - (x - wide(mean)) * slope) * wide(inv_std)
    return (dx if weight is None else dx * wide(weight),)


FORMULAS = {
    "_fused_rms_norm_backward": rms_norm,
    "cudnn_batch_norm_backward": cudnn_batch_norm,
    "batch_norm_backward_reduce": batch_norm_sums,  # these two have no kernel for CPUs
    "batch_norm_backward_elemt": batch_norm_from_sums,
}


def check(kernel: Kernel, *args: Any, taken: bool = True, terms: Any = None, **named: Any) -> tuple[Any, ...]:
    """The second answer to a call is gradkern's: like PyTorch's in all but the last bits. Returns it.

    PyTorch's may hold more than the mask asks for.
    """
    name = kernel.translation.name
    first = kernel.answer(KEYS, *args, **named)
    results = kernel.answer(KEYS, *args, **named)
    assert sum(each.taken.value for each in kernel.signatures()) == taken
    truth = FORMULAS.get(name, getattr(torch.ops.aten, name))(*map(wide, args), **named)
    first, results, truth = (each if isinstance(each, tuple) else (each,) for each in (first, results, truth))
    signature = kernel.signatures()[-1]
    names = {} if signature.description is None else {each.place: name for name, each in signature.description.outputs}
    for place, (theirs, ours, exact) in enumerate(zip(first, results, truth, strict=True)):
        if theirs is None or (taken and place not in names and ours is None):
            assert ours is None
            continue
        assert (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
        if place in names and taken:
            assert signature.description is not None
            assert_close(signature.description.op, names[place], torch_as_numpy(ours), exact.numpy(), terms)
    return results


def normal(*shape: int, dtype: Any = F32, grad: bool = False) -> Any:
    return torch.randn(shape).to(dtype).requires_grad_(grad)


def norm_arguments(
    shape: tuple[int, ...], axes: int, types: tuple[Any, Any, Any], mask: Any, weighted: bool = True
) -> Any:
    T, V, U = types
    x = normal(*shape, dtype=T, grad=True)
    rows, columns = shape[: len(shape) - axes], shape[len(shape) - axes :]
    weight = torch.nn.Parameter(normal(*columns, dtype=V)) if weighted else None
    bias = torch.nn.Parameter(normal(*columns, dtype=V)) if weighted else None
    over = tuple(range(len(rows), len(shape)))
    mean = x.detach().double().mean(over, keepdim=True).to(U)
    rstd = (x.detach().double().var(over, correction=0, keepdim=True) + 1e-5).rsqrt().to(U)
    return normal(*shape, dtype=T), x, list(columns), mean, rstd, weight, bias, list(mask)


# --- layer norms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((7,), 1), ((5, 9), 1), ((5, 9), 2), ((3, 4, 5), 1), ((3, 4, 5), 2), ((2, 3, 4, 5), 3), ((2, 3, 2, 4, 5), 2)],
)
def test_layer_norms_of_every_rank(shape: tuple[int, ...], axes: int) -> None:
    check(kernel_of("native_layer_norm_backward"), *norm_arguments(shape, axes, (F32, F32, F32), MASKS[0]))


@pytest.mark.parametrize("types", [(F64, F64, F64), (F16, F16, F32), (BF16, BF16, F32), (BF16, F32, F32)])
def test_layer_norms_of_every_type(types: tuple[Any, Any, Any]) -> None:
    dtypes = lambda g, x, s, m, r, w, b, mask: (x.dtype, w.dtype, w.dtype)  # noqa: E731
    kernel = kernel_of("native_layer_norm_backward", in_float64("native_layer_norm_backward", dtypes))
    check(kernel, *norm_arguments((6, 40), 1, types, MASKS[0]))


@pytest.mark.parametrize("mask", MASKS)
def test_layer_norms_give_what_the_mask_asks_for(mask: tuple[bool, ...]) -> None:
    results = check(kernel_of("native_layer_norm_backward"), *norm_arguments((6, 40), 1, (F32, F32, F32), mask))
    assert [each is not None for each in results] == list(mask)


def test_layer_norms_without_weight_and_bias() -> None:
    arguments = norm_arguments((6, 40), 1, (F32, F32, F32), (True, False, False), weighted=False)
    check(kernel_of("native_layer_norm_backward"), *arguments)


@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("mask", [(True, True, True), (True, False, False), (False, True, True)])
def test_statistics_of_16_bits_are_taken_as_pytorch_takes_them(
    dtype: Any, weighted: bool, mask: tuple[bool, ...]
) -> None:
    """Those of PyTorch's kernel for the CPU, whose data and parameters have 16 bits."""
    mask = mask if weighted else (True, False, False)
    _, mean, rstd = torch.ops.aten.native_layer_norm(normal(6, 40, dtype=dtype), [40], None, None, 1e-5)
    assert mean.dtype == rstd.dtype == dtype
    arguments = norm_arguments((6, 40), 1, (dtype, dtype, dtype), mask, weighted)
    check(kernel_of("native_layer_norm_backward"), *arguments)


@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("elementwise_affine", [True, False])
def test_models_of_16_bits_are_taken_on_the_cpu(
    overrides: Any, dtype: Any, axes: int, elementwise_affine: bool
) -> None:
    shape = [5, 6, 8]
    norm = torch.nn.LayerNorm(shape[-axes:], elementwise_affine=elementwise_affine).to(dtype)
    with torch.no_grad():
        for each in norm.parameters():
            each += torch.randn_like(each) / 4
    leaves = normal(*shape, dtype=dtype, grad=True), *norm.parameters()
    upstream = normal(*shape, dtype=dtype)
    exact = [each.detach().double().requires_grad_() for each in leaves]
    weight, bias = exact[1:] or (None, None)
    y = torch.nn.functional.layer_norm(exact[0], shape[-axes:], weight, bias)
    expected = torch.autograd.grad(y, exact, upstream.double())
    torch.autograd.grad(norm(leaves[0]), leaves, upstream)  # PyTorch's, as the first of a kind
    found = torch.autograd.grad(norm(leaves[0]), leaves, upstream)
    rows = overrides.report().rows  # of the reference, too
    assert sum(row.taken for row in rows) == 1
    assert {row.reason for row in rows} == {""}
    bits = torch.finfo(dtype).eps  # of the statistics, besides the results'
    for one, exactly in zip(found, expected, strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(one.double(), exactly, rtol=4 * bits, atol=4 * bits * float(exactly.abs().max()))


@pytest.mark.parametrize("types", [(F32, F32, F32), (F64, F64, F64), (BF16, BF16, F32), (F16, F16, F32)])
@pytest.mark.parametrize("mask", [(True, True), (True, False), (False, True)])
def test_rms_norms(types: tuple[Any, Any, Any], mask: tuple[bool, bool]) -> None:
    grad, x, shape, _, rstd, weight, _, _ = norm_arguments((3, 5, 40), 1, types, (True,))
    dtypes = lambda g, x, s, r, w, mask: (x.dtype, w.dtype)  # noqa: E731
    kernel = kernel_of("_fused_rms_norm_backward", in_float64("_fused_rms_norm_backward", dtypes))
    check(kernel, grad, x, shape, rstd, weight, list(mask))


# --- batch norm -------------------------------------------------------------------------------------------------------


def batch_norm_arguments(shape: tuple[int, ...], types: tuple[Any, Any, Any], order: Any = None) -> dict[str, Any]:
    T, V, U = types
    x = normal(*shape, dtype=T)
    x = x if order is None else x.to(memory_format=order)
    over = tuple(axis for axis in range(len(shape)) if axis != 1)
    return {
        "grad": normal(*shape, dtype=T).to(memory_format=order or torch.preserve_format),
        "x": x.requires_grad_(),
        "weight": torch.nn.Parameter(normal(shape[1], dtype=V)),
        "running_mean": normal(shape[1], dtype=U),
        "running_var": normal(shape[1], dtype=U).abs() + 0.1,
        "mean": x.detach().double().mean(over).to(U),
        "inv_std": (x.detach().double().var(over, correction=0) * 9 + 1e-5).rsqrt().to(U),  # far from 1, and not x's
    }


ORDERS = {4: torch.channels_last, 5: torch.channels_last_3d}


@pytest.mark.parametrize("shape", [(16, 5), (4, 5, 7), (4, 3, 5, 7), (2, 4, 3, 4, 5)])
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("last", [False, True])
def test_batch_norms_of_every_rank_and_order(shape: tuple[int, ...], train: bool, last: bool) -> None:
    if last and len(shape) not in ORDERS:
        pytest.skip("has no channels-last order")
    given = batch_norm_arguments(shape, (F32, F32, F32), ORDERS[len(shape)] if last else None)
    check(kernel_of("native_batch_norm_backward"), *given.values(), train, 1e-3, [True] * 3)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("train", [True, False])
def test_batch_norms_give_what_the_mask_asks_for(mask: tuple[bool, ...], train: bool) -> None:
    given = batch_norm_arguments((4, 3, 5, 7), (F32, F32, F32))
    results = check(kernel_of("native_batch_norm_backward"), *given.values(), train, 1e-3, list(mask))
    assert all(each is not None for each, asked in zip(results, mask, strict=True) if asked)


@pytest.mark.parametrize(
    "types", [(F64, F64, F64), (F16, F32, F32), (F16, F16, F32), (BF16, BF16, F32), (BF16, F32, F32)]
)
@pytest.mark.parametrize("name", ["cudnn_batch_norm_backward", "native_batch_norm_backward"])
def test_batch_norms_of_every_type(name: str, types: tuple[Any, Any, Any]) -> None:
    grad, x, weight, *statistics = batch_norm_arguments((4, 3, 5, 7), types).values()
    kernel = kernel_of(name, in_float64(name, lambda *_: (types[0], types[1], types[1])))
    if name.startswith("cudnn"):
        check(kernel, x, grad, weight, *statistics, 1e-3, torch.empty(0, dtype=torch.uint8))
    else:
        check(kernel, grad, x, weight, *statistics, True, 1e-3, [True] * 3)


@pytest.mark.parametrize("train", [True, False])
def test_batch_norms_without_a_weight(train: bool) -> None:
    given = batch_norm_arguments((4, 3, 5, 7), (F32, F32, F32)) | {"weight": None}
    check(kernel_of("native_batch_norm_backward"), *given.values(), train, 1e-3, [True, False, False])


def test_the_consolidated_batch_norm_takes_both_kinds() -> None:
    given = batch_norm_arguments((4, 3, 5, 7), (F32, F32, F32))
    for train in (True, False):
        reserve = torch.empty(0, dtype=torch.uint8)
        check(kernel_of("batch_norm_backward"), *given.values(), train, 1e-3, [True] * 3, reserve)


def test_a_frozen_batch_norm_without_running_statistics_is_pytorchs() -> None:
    given = batch_norm_arguments((4, 3, 5, 7), (F32, F32, F32)) | {"running_mean": None, "running_var": None}
    kernel = kernel_of("native_batch_norm_backward", lambda *args: (args[2], None, None))
    kernel.options = Options.of(None, ("cpu",), 0, "torch", "now")
    kernel.answer(KEYS, *given.values(), False, 1e-3, [True, False, False])
    assert kernel.signatures()[0].reason == "there are no running statistics"


# --- batch norm over several devices ----------------------------------------------------------------------------------

IN_PARTS = [(F64, F64, F64), (F32, F32, F32), (F16, F32, F32), (BF16, BF16, F32)]


def kernel_in_parts(step: str) -> Kernel:
    name = f"batch_norm_backward_{step}"

    def types(grad: Any, x: Any, mean: Any, inv_std: Any, weight: Any, *_: Any) -> Any:
        kind = mean.dtype if weight is None else weight.dtype
        return (mean.dtype, mean.dtype, kind, kind) if step == "reduce" else (x.dtype,)

    return kernel_of(name, in_float64(name, types))


def part_arguments(shape: tuple[int, ...], types: tuple[Any, Any, Any], last: bool = False) -> tuple[Any, ...]:
    given = batch_norm_arguments(shape, types, ORDERS[len(shape)] if last else None)
    return tuple(given[name] for name in ("grad", "x", "mean", "inv_std", "weight"))


@pytest.mark.parametrize(("shape", "last"), [((16, 5), False), ((4, 3, 5, 7), True), ((2, 4, 3, 4, 5), False)])
@pytest.mark.parametrize("types", IN_PARTS)
def test_the_steps_of_a_batch_norm_over_several_devices(shape: Any, last: bool, types: Any) -> None:
    args = part_arguments(shape, types, last)
    asked = True, True, True
    results = check(kernel_in_parts("reduce"), *args, *asked)
    exact = batch_norm_sums(*map(wide, args), *asked)
    for place, name in ((2, "dScale"), (3, "dBias")):
        assert results[place].dtype is types[1]
        assert_close("BatchNormalizationGrad", name, torch_as_numpy(results[place]), exact[place].numpy())
    assert len({each.data_ptr() for each in results}) == 4
    count = torch.tensor([40, 0, 75], dtype=torch.int32)
    check(kernel_in_parts("elemt"), *args, *results[:2], count)


def test_a_batch_norm_over_several_devices_without_a_weight() -> None:
    *args, _ = part_arguments((4, 3, 5, 7), (F32, F32, F32))
    sums = check(kernel_in_parts("reduce"), *args, None, True, False, False)
    assert sums[2:] == (None, None)
    check(kernel_in_parts("elemt"), *args, None, *sums[:2], torch.tensor([140], dtype=torch.int32))


def test_of_a_batch_norm_over_several_devices_only_sums_that_are_given_out_are_taken() -> None:
    args = part_arguments((4, 3, 5, 7), (F32, F32, F32))
    kernel = kernel_in_parts("reduce")
    results = check(kernel, *args, True, False, True)
    assert [each is None for each in results] == [False, False, True, False]
    kernel.options = Options.of(None, ("cpu",), 0, "torch", "now")
    results = kernel.answer(KEYS, *args, False, True, True)
    assert [each is None for each in results] == [True, True, False, False]
    assert kernel.signatures()[-1].reason == "only gradients of parameters are wanted, not the sums"


# --- convolution ------------------------------------------------------------------------------------------------------

CONVOLUTIONS = {
    "1-D, strided": ((2, 4, 11), (6, 4, 3), [2], [1], [1], 1),
    "2-D": ((2, 3, 8, 7), (4, 3, 3, 3), [1, 1], [1, 1], [1, 1], 1),
    "grouped, dilated": ((2, 4, 9, 9), (6, 2, 3, 2), [1, 2], [2, 0], [2, 1], 2),
    "depthwise": ((2, 5, 8, 8), (5, 1, 3, 3), [1, 1], [1, 1], [1, 1], 5),
    "pointwise, one number for both axes": ((2, 5, 6, 7), (3, 5, 1, 1), [1], [0], [1], 1),
    "3-D": ((1, 2, 5, 6, 7), (3, 2, 3, 2, 3), [1, 1, 1], [1, 0, 1], [1, 1, 2], 1),
}


def conv_arguments(
    case: str,
    dtype: Any = F32,
    mask: Any = (True, True, True),
    transposed: bool = False,
    output_padding: int = 0,
) -> list[Any]:
    size, kernel, stride, padding, dilation, groups = CONVOLUTIONS[case]
    x, weight = normal(*size, dtype=dtype, grad=True), torch.nn.Parameter(normal(*kernel, dtype=dtype))
    spatial = len(size) - 2
    if transposed:
        weight = torch.nn.Parameter(normal(size[1], kernel[0] // groups, *kernel[2:], dtype=dtype))
    y = torch.ops.aten.convolution(
        x.detach().double(),
        weight.detach().double(),
        None,
        stride,
        padding,
        dilation,
        transposed,
        [output_padding] * spatial,
        groups,
    )
    filters = [y.shape[1]]
    rest = [stride, padding, dilation, transposed, [output_padding] * spatial, groups, list(mask)]
    return [normal(*y.shape, dtype=dtype), x, weight, filters, *rest]


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_of_every_kind(case: str) -> None:
    check(kernel_of("convolution_backward"), *conv_arguments(case))


@pytest.mark.parametrize("mask", MASKS)
def test_convolutions_give_what_the_mask_asks_for(mask: tuple[bool, ...]) -> None:
    results = check(kernel_of("convolution_backward"), *conv_arguments("2-D", mask=mask))
    assert all(each is not None for each, asked in zip(results, mask, strict=True) if asked)


@pytest.mark.parametrize("dtype", [F64, F16, BF16])
def test_convolutions_of_every_type(dtype: Any) -> None:
    kernel = kernel_of("convolution_backward", in_float64("convolution_backward", lambda *_: (dtype,) * 3))
    check(kernel, *conv_arguments("grouped, dilated", dtype))


def test_convolutions_of_channels_last_arrays() -> None:
    grad, x, weight, *rest = conv_arguments("2-D")
    grad, x, weight = (each.detach().to(memory_format=torch.channels_last) for each in (grad, x, weight))
    check(kernel_of("convolution_backward"), grad, x, weight, *rest)


@pytest.mark.parametrize(
    ("case", "dtype", "mask", "more"),
    [
        ("1-D, strided", F32, (True, True, True), 1),
        ("2-D", F32, (True, False, False), 0),
        ("2-D", BF16, (False, True, True), 0),
        ("grouped, dilated", F32, (True, True, True), 1),
        ("pointwise, one number for both axes", F64, (False, False, True), 0),
        ("3-D", F32, (True, True, False), 0),
    ],
)
def test_transposed_convolutions(case: str, dtype: Any, mask: tuple[bool, ...], more: int) -> None:
    kernel = kernel_of("convolution_backward", in_float64("convolution_backward", lambda *_: (dtype,) * 3))
    results = check(kernel, *conv_arguments(case, dtype, mask, transposed=True, output_padding=more))
    assert all(each is not None for each, asked in zip(results, mask, strict=True) if asked)


# --- GELU -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("shape", [(7,), (5, 9), (3, 4, 5), (2, 3, 4, 5), (2, 3, 2, 4, 5)])
def test_gelus_of_every_rank(shape: tuple[int, ...], approximate: str) -> None:
    x = normal(*shape, grad=True)
    check(kernel_of("gelu_backward"), normal(*shape), x, approximate=approximate)


@pytest.mark.parametrize("dtype", [F64, F16, BF16])
def test_gelus_of_every_type(dtype: Any) -> None:
    check(kernel_of("gelu_backward"), normal(6, 40, dtype=dtype), normal(6, 40, dtype=dtype))


def test_gelus_of_arrays_in_any_dense_order() -> None:
    x = normal(2, 3, 4, 5).to(memory_format=torch.channels_last)
    check(kernel_of("gelu_backward"), torch.randn_like(x), x)
    x = normal(4, 6).t()
    check(kernel_of("gelu_backward"), torch.randn_like(x), x)


VIEWS: dict[str, Any] = {
    "a chunk of columns": lambda x: x.chunk(2, -1)[1],
    "a slice of columns": lambda x: x[..., 3:11],
    "a slice of rows": lambda x: x[:, 1:3],
    "a slice of planes": lambda x: x[1:],
    "every second column": lambda x: x[..., ::2],
    "every second row": lambda x: x[:, ::2],
    "a chunk in another order": lambda x: x.transpose(0, 2).chunk(2, 0)[1],
    "a slice of a transposed one": lambda x: x.mT[..., 1:3],
    "one column": lambda x: x[..., :1],
    "one row": lambda x: x[:, :1],
    "rows that repeat": lambda x: x[:, None].expand(-1, 3, -1, -1),
    "columns that repeat": lambda x: x[..., None].expand(-1, -1, -1, 3),
    "rows and columns that repeat": lambda x: x[:, None, :, :, None].expand(-1, 2, -1, -1, 3),
    "one element everywhere": lambda x: x[1, 2, 3].expand(3, 4),
    "one element": lambda x: x[1, 2, 3],
    "one element of every row": lambda x: x[..., 5],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("gradient", ["dense", "a view", "transposed"])
def test_gelus_of_views_are_taken(view: str, dtype: Any, gradient: str) -> None:
    """As GEGLU's, of half of what a linear layer gives."""
    x = VIEWS[view](normal(4, 5, 16, dtype=dtype))
    grad = normal(*x.shape, dtype=dtype)
    if gradient == "a view":
        grad = VIEWS[view](normal(4, 5, 16, dtype=dtype))
    elif gradient == "transposed" and x.dim() > 1:
        grad = normal(*x.shape[::-1], dtype=dtype).permute(*range(x.dim())[::-1])
    check(kernel_of("gelu_backward"), grad, x)


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_gelus_of_some_channels_are_taken(order: Any) -> None:
    x = normal(2, 6, 4, 5).to(memory_format=order).chunk(2, 1)[1]
    check(kernel_of("gelu_backward"), torch.randn_like(x), x)
    check(kernel_of("gelu_backward"), normal(*x.shape), x)


def test_geglu_trains_on_gradkerns_kernel(overrides: Any) -> None:
    x, upstream = normal(6, 32, grad=True), normal(6, 16)

    def step(x: torch.Tensor) -> torch.Tensor:
        data, gate = x.chunk(2, -1)
        return data * torch.nn.functional.gelu(gate)

    exact = x.detach().double().requires_grad_()
    (expected,) = torch.autograd.grad(step(exact), exact, upstream.double())
    for _ in range(2):
        (found,) = torch.autograd.grad(step(x), x, upstream)
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
    rows = overrides.report().rows  # of the reference, too
    assert sum(row.taken for row in rows) == 1
    assert {row.reason for row in rows} == {""}


# --- softmax ----------------------------------------------------------------------------------------------------------

SOFTMAXES = {"_softmax_backward_data": torch.softmax, "_log_softmax_backward_data": torch.log_softmax}


def softmax_arguments(name: str, shape: tuple[int, ...], dim: int, dtype: Any = F32) -> tuple[Any, ...]:
    output = SOFTMAXES[name](torch.randn(shape, dtype=F64), dim).to(dtype)
    return normal(*shape, dtype=dtype), output, dim, dtype


@pytest.mark.parametrize("name", SOFTMAXES)
@pytest.mark.parametrize("shape", [(7,), (5, 9), (3, 4, 5), (2, 3, 4, 5)])
def test_softmaxes_over_every_dimension(name: str, shape: tuple[int, ...]) -> None:
    for dim in range(-len(shape), len(shape)):
        check(kernel_of(name), *softmax_arguments(name, shape, dim))


@pytest.mark.parametrize("name", SOFTMAXES)
@pytest.mark.parametrize("dtype", [F64, F16, BF16])
def test_softmaxes_of_every_type(name: str, dtype: Any) -> None:
    check(kernel_of(name), *softmax_arguments(name, (6, 40), 1, dtype))


@pytest.mark.parametrize("name", SOFTMAXES)
@pytest.mark.parametrize("dtype", [F16, BF16])
def test_the_gradient_of_a_softmax_that_widens_its_input_has_the_inputs_type(name: str, dtype: Any) -> None:
    original = in_float64(name, lambda *args: (dtype,))
    kernel = kernel_of(name, lambda keys, *args: original(keys, *args)[0])
    args = (*softmax_arguments(name, (6, 40), 1)[:3], dtype)
    first = kernel.answer(KEYS, *args)
    second = kernel.answer(KEYS, *args)
    assert kernel.signatures()[0].taken.value == 1
    assert first.dtype == second.dtype == dtype
    torch.testing.assert_close(first, second, rtol=2**-7, atol=1e-6)


@pytest.mark.parametrize("name", SOFTMAXES)
def test_softmaxes_of_arrays_in_any_order(name: str) -> None:
    for dim in range(4):
        grad, output, *rest = softmax_arguments(name, (2, 3, 4, 5), dim)
        last = torch.channels_last
        check(kernel_of(name), grad.to(memory_format=last), output.to(memory_format=last), *rest)
        check(kernel_of(name), grad.to(memory_format=last), output, *rest)


def test_a_softmax_without_dimensions_is_pytorchs() -> None:
    kernel = kernel_of("_softmax_backward_data")
    kernel.options = Options.of(None, ("cpu",), 0, "torch", "now")
    kernel.answer(KEYS, torch.tensor(2.0), torch.tensor(1.0), 0, F32)
    assert kernel.signatures()[0].reason


# --- group norm -------------------------------------------------------------------------------------------------------


def group_norm_arguments(
    shape: tuple[int, ...], group: int, dtype: Any = F32, weighted: bool = True
) -> tuple[Any, ...]:
    N, C = shape[:2]
    x, HxW = 3 + normal(*shape, dtype=F64), math.prod(shape[2:])
    x = x.to(dtype)
    wide = x.double()
    _, mean, rstd = torch.ops.aten.native_group_norm(wide, None, None, N, C, HxW, group, 1e-3)
    weight = normal(C, dtype=dtype) if weighted else None
    statistics = F64 if dtype == F64 else F32
    sizes = N, C, HxW, group
    return normal(*shape, dtype=dtype), x, mean.to(statistics), rstd.to(statistics), weight, *sizes, [True] * 3


GROUP_NORM = "native_group_norm_backward"


@pytest.mark.parametrize("shape", [(3, 8), (2, 6, 9), (2, 12, 4, 5), (1, 8, 2, 3, 4)])
def test_group_norms_of_every_rank(shape: tuple[int, ...]) -> None:
    for group in (1, 2, shape[1]):
        if math.prod(shape[1:]) > group:
            check(kernel_of(GROUP_NORM), *group_norm_arguments(shape, group))


@pytest.mark.parametrize("dtype", [F64, F16, BF16])
def test_group_norms_of_every_type(dtype: Any) -> None:
    kernel = kernel_of(GROUP_NORM, in_float64(GROUP_NORM, lambda *args: (dtype,) * 3))
    check(kernel, *group_norm_arguments((2, 12, 4, 5), 3, dtype))


@pytest.mark.parametrize("mask", MASKS)
def test_group_norms_give_what_is_asked_for(mask: Any) -> None:
    results = check(kernel_of(GROUP_NORM), *group_norm_arguments((2, 12, 4, 5), 3)[:-1], list(mask))
    assert [each is not None for each in results] == list(mask)


def test_a_group_norm_without_weight() -> None:
    *given, _ = group_norm_arguments((2, 12, 4, 5), 3, weighted=False)
    check(kernel_of(GROUP_NORM), *given, [True, False, False])


# --- all --------------------------------------------------------------------------------------------------------------

ARGUMENTS = {
    "native_layer_norm_backward": lambda: norm_arguments((6, 8), 1, (F32, F32, F32), MASKS[0]),
    "native_batch_norm_backward": lambda: (
        *batch_norm_arguments((4, 3, 5, 7), (F32, F32, F32)).values(),
        True,
        1e-3,
        [True] * 3,
    ),
    "native_group_norm_backward": lambda: group_norm_arguments((4, 6, 5, 7), 3),
    "convolution_backward": lambda: conv_arguments("2-D"),
    "gelu_backward": lambda: (normal(6, 40), normal(6, 40)),
    "_softmax_backward_data": lambda: softmax_arguments("_softmax_backward_data", (6, 40), 1),
    "_log_softmax_backward_data": lambda: softmax_arguments("_log_softmax_backward_data", (6, 40), 0),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_expanded_gradient_is_read_as_it_lies(name: str) -> None:
    _, *rest = ARGUMENTS[name]()
    grad = ARGUMENTS[name]()[0]
    check(kernel_of(name), torch.tensor(0.7).expand(grad.shape), *rest, terms=grad.numpy())  # which may cancel
    check(kernel_of(name), grad[:1].expand(grad.shape), *rest)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_transposed_gradient_is_read_as_it_lies(name: str) -> None:
    grad, *rest = ARGUMENTS[name]()
    kernel = kernel_of(name)
    if name == GROUP_NORM:  # autograd gives PyTorch's kernel contiguous gradients only: it ignores strides
        original = kernel.override.original
        kernel.override.original = lambda keys, grad, *args: original(keys, grad.contiguous(), *args)
    kernel.options = Options.of(None, ("cpu",), 0, "torch", "now")
    turned = (
        torch.empty(grad.shape[::-1]).copy_(grad.permute(*range(grad.dim())[::-1])).permute(*range(grad.dim())[::-1])
    )
    first = kernel.answer(KEYS, turned, *rest)
    again = kernel.answer(KEYS, turned, *rest)
    for one, other in zip(first, again, strict=True) if isinstance(first, tuple) else [(first, again)]:
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_what_is_empty_is_pytorchs(name: str) -> None:
    kernel = kernel_of(name)
    grad, x, *rest = ARGUMENTS[name]()
    kernel.override.original = lambda keys, *args, **named: "PyTorch"
    assert kernel.answer(KEYS, grad[:0], x[:0], *rest) == "PyTorch"
    assert kernel.small.value == 1


@pytest.mark.parametrize("name", ARGUMENTS)
def test_integers_are_pytorchs(name: str) -> None:
    kernel = kernel_of(name, lambda keys, *args, **named: tuple(args[:3]))
    kernel.options = Options.of(None, ("cpu",), 0, "torch", "now")
    grad, x, *rest = ARGUMENTS[name]()
    kernel.answer(KEYS, grad.int(), x.detach().int(), *rest)
    assert kernel.signatures()[0].reason


def test_every_translation_is_of_a_registered_operator() -> None:
    known = gradkern.operators()
    assert {each.name for each in TRANSLATIONS} == set(BY_NAME)
    for name, make in ARGUMENTS.items():
        assert BY_NAME[name].request(*make()).op in known
