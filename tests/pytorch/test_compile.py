"""Models under torch.compile and torch.export: what runs is what was asked for, also where caches are warm."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import compiled_models, compiled_steps
from helpers.compiled_steps import Model, calls, gradients

import gradkern.torch
from gradkern.errors import ArgumentError

pytestmark = pytest.mark.torch

WHOLE = ("layer_norm", "gelu")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    from torch._inductor.decomposition import select_decomp_table

    torch.compiler.reset()
    gradkern.torch.forget()
    before, tag = dict(select_decomp_table()), torch.compiler.config.cache_key_tag
    yield
    gradkern.torch.disable()
    gradkern.torch.forget()
    torch.compiler.reset()
    assert dict(select_decomp_table()) == before
    assert torch.compiler.config.cache_key_tag == tag


@pytest.mark.thorough
def test_inductor_calls_what_it_is_told_to_by_a_warm_cache_too(tmp_path: Path) -> None:
    """In two processes, the second of which finds all that the first has compiled: off, on, off again, and on."""
    environment = compiled_models.environment(tmp_path)
    expected = gradients(Model())
    for _ in range(2):
        command = [sys.executable, compiled_steps.__file__, str(tmp_path / "gradients.pt")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        convolutions = {"convolution_backward": 1}
        every = {**convolutions, "gelu_backward": 1, "native_layer_norm_backward": 1}
        assert found == {"off": {}, "on": convolutions, "compiled": every, "off again": {}, "on again": convolutions}
        for way, grads in torch.load(tmp_path / "gradients.pt").items():
            for one, other in zip(grads, expected, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6, msg=lambda text, way=way: f"{way}: {text}")


class Permuted(torch.nn.Module):
    """Norms whose inputs and gradients lie in different orders."""

    def __init__(self, channels_last: bool) -> None:
        super().__init__()
        self.channels_last = channels_last
        self.conv, self.batch_norm = torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)
        self.layer_norm = torch.nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x)
        x = x.contiguous(memory_format=torch.channels_last) if self.channels_last else x
        y = self.batch_norm(x).relu().permute(0, 2, 3, 1)
        return self.layer_norm(y).permute(0, 3, 1, 2).contiguous()


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of Inductor's own imports
@pytest.mark.parametrize("channels_last", [False, True])
def test_norms_may_be_left_whole_whatever_the_order_of_their_gradients(channels_last: bool) -> None:
    torch.manual_seed(0)
    model, x = Permuted(channels_last), torch.randn(2, 3, 8, 8)
    weights = torch.randn(2, 8, 6, 6).contiguous(memory_format=torch.channels_last)
    found = []
    for run in (model, torch.compile(model)):
        with gradkern.torch.enabled(devices="cpu", min_bytes=0, plan="now", inductor=("layer_norm", "batch_norm")):
            for _ in range(2):
                model.zero_grad()
                (run(x).sin() * weights).sum().backward()
        found.append([each.grad.clone() for each in model.parameters() if each.grad is not None])
    assert {"native_layer_norm_backward", "native_batch_norm_backward"} <= calls().keys()
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_the_caches_key_names_what_is_left_whole() -> None:
    config: Any = torch.compiler.config  # its functions are installed as it is imported
    with config.patch(cache_key_tag="mine"):
        with gradkern.torch.enabled(devices="cpu", inductor=WHOLE):
            both = config.cache_key_tag
            assert re.fullmatch("mine gradkern [0-9a-f]{16}: gelu, layer_norm", both)
            with gradkern.torch.enabled(devices="cpu", inductor="gelu"):
                assert config.cache_key_tag == both.removesuffix(", layer_norm")
            assert config.cache_key_tag == both
        assert config.cache_key_tag == "mine"
        with gradkern.torch.enabled(devices="cpu", inductor=WHOLE):
            config.cache_key_tag = "changed meanwhile"
        assert config.cache_key_tag == "changed meanwhile"


def test_what_cannot_be_left_whole_is_named() -> None:
    wrong: Any = "yes"
    with pytest.raises(ArgumentError, match="inductor has 'conv'; expected layer_norm, rms_norm"):
        gradkern.torch.enable(devices="cpu", inductor="conv")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ArgumentError, match="inductor has 'gelu', but ops does not"):
        gradkern.torch.enable("layer_norm", devices="cpu", inductor="gelu")
    with pytest.raises(ArgumentError, match="inductor is 3; expected names of layer_norm, rms_norm"):
        gradkern.torch.enable(devices="cpu", inductor=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ArgumentError, match="only_faster is 'yes'; expected True or False"):
        gradkern.torch.enable(devices="cpu", only_faster=wrong)
    assert not gradkern.torch.is_enabled()


def test_an_exported_model_has_none_of_it() -> None:
    model, x = Model(), torch.randn(2, 3, 8, 8)
    with gradkern.torch.enabled(devices="cpu", min_bytes=0, plan="now", inductor=WHOLE):
        exported = torch.export.export(model, (x,))
    assert "gradkern" not in str(exported.graph)
    torch.testing.assert_close(exported.module()(x), model(x))
    assert calls() == {}
