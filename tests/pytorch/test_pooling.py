"""Gradients of pools and upsampling in PyTorch: its own samples, both orders of memory, deterministic algorithms."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from helpers import opinfo
from helpers.tolerance import NORM
from torch.nn import functional

import gradkern.torch
from gradkern.torch.overrides import switch

pytestmark = [pytest.mark.torch, pytest.mark.thorough]

devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
FUNCTIONS = {
    "max_pool1d": 12,
    "max_pool2d": 12,
    "max_pool3d": 12,
    "avg_pool1d": 8,
    "avg_pool2d": 8,
    "avg_pool3d": 8,
    "adaptive_avg_pool1d": 6,
    "adaptive_avg_pool2d": 6,
    "adaptive_avg_pool3d": 6,
}
"""How many samples of each: of max pools there are hundreds, in the order of their options."""


def compared(function: Callable[[Any], Any], x: Any, device: str, dtype: Any = torch.float32, of: str = "cpu") -> str:
    """Of gradkern's answer to a second call, against PyTorch's in float64 on device `of`. Returns the report."""
    wide = x.detach().double().to(of).requires_grad_()
    y = function(wide)
    upstream = torch.randn_like(y)
    (exact,) = torch.autograd.grad(y, wide, upstream)
    leaf = x.detach().to(device, dtype).requires_grad_()
    with gradkern.torch.enabled(devices=device, min_bytes=0, plan="now", on_refusal="raise"):
        found: Any = None
        for _ in range(2):  # the first is PyTorch's
            y = function(leaf)
            (found,) = torch.autograd.grad(y, leaf, upstream.to(device, dtype))
        report = gradkern.torch.report()
        said = f"{report.taken} {report}"
    gradkern.torch.forget()
    wrong, bound = (found.double().cpu() - exact.cpu()).norm(), 4 * NORM[str(dtype).removeprefix("torch.")]
    assert wrong <= bound * float(exact.norm()) + 1e-12, said
    return said


@devices
@pytest.mark.parametrize("name", FUNCTIONS)
def test_pytorchs_samples(name: str, device: str) -> None:
    samples = [each for each in opinfo.samples(f"nn.functional.{name}") if not each.kwargs.get("return_indices")]
    taken = 0
    for sample in samples[:: max(1, len(samples) // FUNCTIONS[name])]:
        if sample.input.numel():
            said = compared(lambda x, s=sample: getattr(functional, name)(x, *s.args, **s.kwargs), sample.input, device)
            taken += int(said.split()[0])
    assert taken


def channels_last(x: Any) -> Any:
    return x.contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)


@devices
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("last", [False, True])
def test_types_and_orders_of_memory(last: bool, dtype: Any, device: str) -> None:
    """Elements of 16 bits are few numbers, so that the largest are the same in float64."""
    for shape in ((2, 5, 11, 8), (2, 3, 5, 6, 7)):
        if device == "cpu" and dtype == torch.bfloat16 and len(shape) == 5:
            continue  # PyTorch has no such kernel
        rank = len(shape) - 2
        x = torch.randint(-64, 64, shape).double()
        x = channels_last(x) if last else x
        for name, how in (("max", {"dilation": 2}), ("avg", {"ceil_mode": True}), ("avg", {"divisor_override": 3})):
            function = getattr(functional, f"{name}_pool{rank}d")
            assert compared(lambda x, f=function, h=how: f(x, 3, 2, 1, **h), x, device, dtype).startswith("1 ")


MODES = [
    *(
        (size, scale, mode)
        for size, mode in (((7,), "linear"), ((7, 5), "bilinear"), ((3, 4, 5), "trilinear"))
        for scale in (None, 1.7)
    ),
    ((7, 5), None, "bicubic"),
    ((7, 5), 0.6, "bicubic"),
    *(((17, 9), scale, f"{mode} antialiased") for scale in (0.3, 0.6, 1.7) for mode in ("bilinear", "bicubic")),
    *(((17, 9), scale, "lanczos antialiased") for scale in (0.3, 1.7)),
    *(
        (size, scale, mode)
        for size in ((7,), (7, 5), (3, 4, 5))
        for scale in (None, 2.0, 1.3)
        for mode in ("nearest", "nearest-exact")
    ),
]


@devices
@pytest.mark.parametrize(("size", "scale", "mode"), MODES)
def test_every_mode_of_upsampling(size: Any, scale: float | None, mode: str, device: str) -> None:
    if "lanczos" in mode and (device != "cpu" or not hasattr(torch.ops.aten, "_upsample_lanczos2d_aa")):
        pytest.skip("PyTorch has it from 2.13 on, for the CPU alone")
    x = torch.randn(2, 3, *size)
    for last in {False, len(size) > 1}:
        for corners in (None,) if mode.startswith(("nearest", "lanczos")) else (False, True):
            how: dict[str, Any] = {"mode": mode.split()[0], "align_corners": corners, "antialias": "anti" in mode}
            how |= {"size": [2 * each + 1 for each in size]} if scale is None else {"scale_factor": scale}
            given = channels_last(x) if last else x
            of = device if mode == "nearest" else "cpu"  # the devices differ where a size stays
            said = compared(lambda x, h=how: functional.interpolate(x, **h), given, device, of=of)
            assert said.startswith("1 "), said


@devices
@pytest.mark.parametrize(
    "mode",
    ["linear", "bilinear", "trilinear", "bicubic", "nearest", "nearest-exact", "bilinear antialiased"],
)
@pytest.mark.parametrize("size", [(5, 3, 7), (5, 3, 20)])
def test_scales_that_change_no_size(size: tuple[int, ...], mode: str, device: str) -> None:
    """PyTorch's kernels copy along an axis of the same size, some only if all sizes stay; others go by the scale."""
    ranks = {"linear": (1,), "bilinear": (2,), "trilinear": (3,), "bicubic": (2,)}.get(mode.split()[0], (1, 2, 3))
    for rank in ranks:
        leaf = torch.randn(2, 3, *size[-rank:], device=device, requires_grad=True)
        y = functional.interpolate(leaf, scale_factor=1.1, mode=mode.split()[0], antialias="anti" in mode)
        upstream = torch.randn_like(y)
        (expected,) = torch.autograd.grad(y, leaf, upstream, retain_graph=True)
        with gradkern.torch.enabled(devices=device, min_bytes=0, plan="now", on_refusal="raise"):
            found = [torch.autograd.grad(y, leaf, upstream, retain_graph=True)[0] for _ in "ab"]
            assert gradkern.torch.report().taken == 1
        gradkern.torch.forget()
        torch.testing.assert_close(found[1], expected, rtol=1e-4, atol=1e-5)


DETERMINISTIC: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "max_pool2d": ((2, 4, 9, 8), lambda x: functional.max_pool2d(x, 3, 2, 1)),
    "max_pool3d": ((2, 4, 5, 6, 7), lambda x: functional.max_pool3d(x, 3, 2, 1)),
    "avg_pool2d": ((2, 4, 9, 8), lambda x: functional.avg_pool2d(x, 3, 2, 1)),
    "avg_pool3d": ((2, 4, 5, 6, 7), lambda x: functional.avg_pool3d(x, 3, 2, 1)),
    "adaptive_avg_pool2d": ((2, 4, 9, 8), lambda x: functional.adaptive_avg_pool2d(x, (4, 3))),
    "adaptive_avg_pool3d": ((2, 4, 5, 6, 7), lambda x: functional.adaptive_avg_pool3d(x, (4, 3, 2))),
    "linear": ((2, 4, 9), lambda x: functional.interpolate(x, 20, mode="linear")),
    "bilinear": ((2, 4, 9, 8), lambda x: torch.ops.aten.upsample_bilinear2d(x, (20, 13), False)),
    "trilinear": ((2, 4, 5, 6, 7), lambda x: functional.interpolate(x, (9, 8, 7), mode="trilinear")),
    "bicubic": ((2, 4, 9, 8), lambda x: functional.interpolate(x, (20, 13), mode="bicubic")),
    "bilinear antialiased": (
        (2, 4, 9, 8),
        lambda x: functional.interpolate(x, (4, 3), mode="bilinear", antialias=True),
    ),
    "bicubic antialiased": ((2, 4, 9, 8), lambda x: functional.interpolate(x, (4, 3), mode="bicubic", antialias=True)),
    "nearest": ((2, 4, 5, 6, 7), lambda x: functional.interpolate(x, scale_factor=2, mode="nearest")),
    "nearest-exact": ((2, 4, 9, 8), lambda x: functional.interpolate(x, scale_factor=2, mode="nearest-exact")),
}


@devices
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", DETERMINISTIC)
def test_deterministic_algorithms_are_gradkerns_where_pytorch_has_none(
    name: str, last: bool, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the default options, under the gate and before any tune. On the CPU PyTorch's kernels raise nothing: there its
    error is made.
    """
    shape, function = DETERMINISTIC[name]
    x = torch.randn(shape)
    x = channels_last(x) if last and x.dim() > 3 else x
    wide = x.double().requires_grad_()
    y = function(wide)
    upstream = torch.randn_like(y)
    (exact,) = torch.autograd.grad(y, wide, upstream)
    if device == "cpu":
        error = RuntimeError("it does not have a deterministic implementation")
        monkeypatch.setattr(
            "gradkern.torch.overrides.override.Override.original", lambda *_, **__: (_ for _ in ()).throw(error)
        )
    leaf = x.to(device).requires_grad_()
    torch.use_deterministic_algorithms(True)
    try:
        with gradkern.torch.enabled(devices=device):
            y = function(leaf)
            found = [
                torch.autograd.grad(y, leaf, upstream.to(device, torch.float32), retain_graph=True)[0] for _ in "ab"
            ]
            report = gradkern.torch.report()
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(found[0], found[1])
    if report.taken:  # on a GPU some of PyTorch's kernels are deterministic; 2.11's of average pools is wrong here
        torch.testing.assert_close(found[0].cpu().double(), exact, rtol=1e-4, atol=1e-5)
    if device == "cpu":
        assert (report.taken, report.declined) == (2, 0), str(report)


@pytest.fixture
def raising() -> Iterator[None]:
    """PyTorch's kernel on the CPU raises where its kernel on GPUs does."""
    name = "upsample_bilinear2d_backward"
    kernel = next(each for each in switch._kernels() if each.translation.name == name and each.key == "CPU")
    assert kernel.override.remove()
    below = torch.library.get_kernel(f"aten::{name}", "CPU")

    def answer(keys: Any, *args: Any, **named: Any) -> Any:
        if torch.are_deterministic_algorithms_enabled():
            raise RuntimeError(f"{name} does not have a deterministic implementation")
        return below.call_boxed(keys, *args, **named)

    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is replaced
        library.impl(name, answer, "CPU", with_keyset=True, allow_override=True)
    yield
    torch.use_deterministic_algorithms(False)
    gradkern.torch.disable()
    assert kernel.override.remove()
    library._destroy()


def test_tuning_leaves_nothing_to_kernels_that_raise(raising: None) -> None:
    leaf = torch.randn(2, 4, 9, 8, requires_grad=True)

    def step() -> Any:
        y = torch.ops.aten.upsample_bilinear2d(leaf, (20, 13), False)
        return torch.autograd.grad(y.square().sum(), leaf)[0]

    expected = step()
    torch.use_deterministic_algorithms(True)
    with pytest.raises(RuntimeError, match="deterministic"):
        step()
    gradkern.torch.enable("resize", devices="cpu")
    gradkern.torch.tune(step, repeats=1)
    torch.testing.assert_close(step(), expected)
