"""torch.compile(backend="gradkern") of pools and upsampling: gradients of every kind against eager's, and models."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
from helpers.models import torchvision
from torch import nn
from torch._dynamo.backends.debugging import aot_eager
from torch.nn import functional

import gradkern.torch
from gradkern.torch.compile_backend.dynamo_graph import fusion, windows
from gradkern.torch.compile_backend.dynamo_graph.rewriting import rewrite
from gradkern.torch.compile_backend.gates import gates_of

pytestmark = [pytest.mark.torch, pytest.mark.thorough, pytest.mark.usefixtures("one_thread", "compiled_anew")]

devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "_ON_EVERY_DEVICE", True)


def rewritten(graph_module: Any, inputs: Any) -> Any:
    """The backend's first stage with autograd's graphs as they are: nothing is compiled."""
    rewrite(graph_module, gates_of(dict.fromkeys(windows._FUNCTIONS.values(), True)))
    return aot_eager(graph_module, inputs)


def taken() -> Counter[str]:
    return Counter(each.fusion for each in gradkern.torch.report().compiled if not each.reason)


def reasons() -> set[str]:
    return {each.reason for each in gradkern.torch.report().compiled if each.reason}


def gradients(function: Callable[[Any], Any], x: torch.Tensor) -> list[torch.Tensor]:
    leaf = x.detach().clone().requires_grad_()
    y = function(leaf)
    return [y.detach(), *torch.autograd.grad(y.cos().sum(), leaf)]


def resized(size: Any, mode: str, corners: bool | None = None) -> Callable[[Any], Any]:
    how = {"size": size} if isinstance(size, tuple) else {"scale_factor": size}
    return lambda x: functional.interpolate(x, mode=mode, align_corners=corners, **how)


PLANES, VOLUMES, ROWS = (2, 3, 9, 8), (2, 3, 5, 6, 7), (2, 3, 9)
CALLS: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "max": (PLANES, lambda x: functional.max_pool2d(x, 3, 2, 1)),
    "max, dilated": (PLANES, lambda x: functional.max_pool2d(x, (3, 2), 1, (1, 0), (2, 3), ceil_mode=True)),
    "max, 1-D": (ROWS, lambda x: functional.max_pool1d(x, 3, 2, 1, 1, True)),
    "max, 3-D": (VOLUMES, lambda x: functional.max_pool3d(x, 2)),
    "average": (PLANES, lambda x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
    "average, 1-D": (ROWS, nn.AvgPool1d(3, 2, 1, count_include_pad=False)),
    "average, 3-D": (VOLUMES, lambda x: functional.avg_pool3d(x, 2, ceil_mode=True, divisor_override=3)),
    "adaptive": (PLANES, lambda x: functional.adaptive_avg_pool2d(x, (4, 3))),
    "adaptive, 1-D": (ROWS, lambda x: functional.adaptive_avg_pool1d(x, 4)),
    "adaptive, 3-D": (VOLUMES, lambda x: functional.adaptive_avg_pool3d(x, (2, None, 3))),
    "nearest, 1-D": (ROWS, resized(2.0, "nearest")),
    "nearest": (PLANES, resized((13, 20), "nearest")),
    "exact": (PLANES, resized(1.7, "nearest-exact")),
    "nearest, 3-D": (VOLUMES, resized(2.0, "nearest")),
    "linear": (ROWS, resized((5,), "linear", True)),
    "bilinear": (PLANES, resized((13, 20), "bilinear", False)),
    "bilinear, corners": (PLANES, resized(2.0, "bilinear", True)),
    "bicubic": (PLANES, resized(2.0, "bicubic", False)),
    "antialiased": (PLANES, lambda x: functional.interpolate(x, (4, 3), mode="bicubic", antialias=True)),
    "trilinear": (VOLUMES, resized((7, 5, 9), "trilinear", False)),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", CALLS)
def test_gradients_of_every_kind(name: str, dtype: torch.dtype) -> None:
    shape, function = CALLS[name]
    x = torch.randn(shape, dtype=dtype)
    if len(shape) == 4 and dtype == torch.float32:
        x = x.contiguous(memory_format=torch.channels_last)
    found, expected = gradients(torch.compile(function, backend=rewritten), x), gradients(function, x)
    torch.testing.assert_close(found, expected)
    assert found[0].stride() == expected[0].stride()
    assert taken().total() == 1, gradkern.torch.report()


@devices
@pytest.mark.parametrize("dynamic", [False, None])
def test_inductor_has_our_gradients_and_its_own_forward_passes(device: str, dynamic: bool | None) -> None:
    from torch._inductor.utils import run_and_get_code

    of_planes = [function for shape, function in CALLS.values() if shape == PLANES]

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([each(x).flatten(1) for each in of_planes], 1)

    given: Any = dict.fromkeys(windows._FUNCTIONS.values(), True)
    compiled = torch.compile(function, backend="gradkern", dynamic=dynamic, options={"gradkern": given})
    for batch in (2, 3):
        x = torch.randn(batch, *PLANES[1:], device=device)
        found, code = run_and_get_code(lambda x=x: gradients(compiled, x))
        torch.testing.assert_close(found, gradients(function, x))
        text = "".join(code)
        assert all(each in text for each in ("max_pool_backward", "with_gradient_backward"))
        assert not re.search(r"with_gradient\b|index_put|aten.scatter|atomic_add\(", text)
        assert torch.equal(gradients(compiled, x)[1], found[1])
    assert {"max_pool", "avg_pool", "adaptive_avg_pool", "interpolate"} == taken().keys()


LEFT: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "its indices are wanted": (lambda x: functional.max_pool2d(x, 2, return_indices=True)[0], PLANES),
    "its windows have more than 256 elements": (lambda x: functional.max_pool2d(x, 17, 1), (1, 2, 20, 20)),
    "gradkern has no gradient of it": (lambda x: functional.max_pool1d(functional.max_pool2d(x, 2)[0], 2), PLANES[1:]),
    "no gradient of it is wanted": (lambda x: functional.avg_pool2d(x.detach(), 2).sum() * x, PLANES),
}


@pytest.mark.parametrize("reason", LEFT)
def test_what_is_left_is_computed_by_pytorch_and_has_a_reason(reason: str) -> None:
    function, shape = LEFT[reason]
    x = torch.randn(shape)
    compiled = torch.compile(function, backend=rewritten)
    torch.testing.assert_close(gradients(compiled, x), gradients(function, x))
    assert reasons() == {reason}
    assert not taken()


@pytest.mark.parametrize("name", ["max, 3-D", "nearest"])
def test_an_empty_batch_is_left_to_pytorch(name: str) -> None:
    shape, function = CALLS[name]
    x = torch.randn(0, *shape[1:])
    compiled = torch.compile(function, backend=rewritten, dynamic=False)
    assert gradients(compiled, x)[1].shape == x.shape
    assert not taken()


def test_average_pools_are_taken_on_request_and_means_are_not() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return functional.adaptive_avg_pool2d(x, 1) + functional.avg_pool2d(x, 8).mean()

    def default(graph_module: Any, inputs: Any) -> Any:
        rewrite(graph_module, gates_of({"max_pool": True}))
        return aot_eager(graph_module, inputs)

    x = torch.randn(PLANES)
    torch.testing.assert_close(gradients(torch.compile(function, backend=default), x), gradients(function, x))
    assert not taken()
    assert len([each for each in reasons() if each.startswith("off by default")]) == 1


def deeplab() -> nn.Module:
    models = torchvision().models
    layers, parts = import_module("torchvision.models._utils"), models.segmentation.deeplabv3
    backbone = layers.IntermediateLayerGetter(models.resnet18(), {"layer2": "out"})
    return parts.DeepLabV3(backbone, parts.DeepLabHead(128, 3, (2, 4)))


def diffusion_unet() -> nn.Module:
    torchvision()
    return import_module("diffusers").UNet2DModel(
        sample_size=32,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        attention_head_dim=None,
        layers_per_block=1,
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
    )


def monai_unet() -> nn.Module:
    torchvision()
    return import_module("monai.networks.nets").BasicUNet(2, 3, 2, (4, 4, 8, 8, 8, 4), upsample="nontrainable")


MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...], dict[str, int]]] = {
    "resnet18": (lambda: torchvision().models.resnet18(num_classes=5), (2, 3, 32, 32), {"max_pool": 1}),
    "deeplab": (deeplab, (2, 3, 64, 64), {"max_pool": 1, "interpolate": 2}),
    "diffusers": (diffusion_unet, (2, 3, 8, 8), {"interpolate": 1}),
    "monai": (monai_unet, (2, 3, 32, 32), {"max_pool": 4, "interpolate": 4}),
}


@pytest.mark.models
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # Dynamo's, of monai's
@pytest.mark.parametrize("name", MODELS)
def test_models_have_their_gradients(name: str) -> None:
    make, shape, expected_counts = MODELS[name]
    model = make().double()
    for each in model.modules():
        if isinstance(each, nn.Dropout):
            each.p = 0.0
    x = torch.randn(shape, dtype=torch.float64)

    def step(run: Any) -> list[Any]:
        model.zero_grad()
        result = run(x, 3) if name == "diffusers" else run(x)
        y: Any = next(iter(result.values())) if isinstance(result, dict) else result
        y.square().sum().backward()
        return [y.detach(), *[each.grad.clone() for each in model.parameters() if each.grad is not None]]

    torch.testing.assert_close(step(torch.compile(model, backend=rewritten)), step(model))
    assert taken() & Counter(max_pool=9, interpolate=9) == expected_counts
