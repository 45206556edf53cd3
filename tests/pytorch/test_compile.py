"""Models under torch.compile and torch.export: what runs is what was asked for, also where caches are warm."""

from __future__ import annotations

import json
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


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    torch.compiler.reset()
    gradkern.torch.forget()
    yield
    gradkern.torch.disable()
    gradkern.torch.forget()
    torch.compiler.reset()


@pytest.mark.thorough
def test_inductor_calls_convolutions_by_a_warm_cache_too(tmp_path: Path) -> None:
    """In two processes, the second of which finds all that the first has compiled: off, on, off again, and on."""
    environment = compiled_models.environment(tmp_path)
    expected = gradients(Model())
    for _ in range(2):
        command = [sys.executable, compiled_steps.__file__, str(tmp_path / "gradients.pt")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        taken = {"convolution_backward": 1}
        assert found == {"off": {}, "on": taken, "off again": {}, "on again": taken}
        for way, grads in torch.load(tmp_path / "gradients.pt").items():
            for one, other in zip(grads, expected, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6, msg=lambda text, way=way: f"{way}: {text}")


def test_an_option_that_is_no_flag_is_named() -> None:
    wrong: Any = "yes"
    with pytest.raises(ArgumentError, match="only_faster is 'yes'; expected True or False"):
        gradkern.torch.enable(devices="cpu", only_faster=wrong)
    assert not gradkern.torch.is_enabled()


def test_an_exported_model_has_none_of_it() -> None:
    model, x = Model(), torch.randn(2, 3, 8, 8)
    with gradkern.torch.enabled(devices="cpu", min_bytes=0, plan="now"):
        exported = torch.export.export(model, (x,))
    assert "gradkern" not in str(exported.graph)
    torch.testing.assert_close(exported.module()(x), model(x))
    assert calls() == {}
