"""Each example runs as a user would run it, with few steps: that a loss falls is what other tests show."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.checkout import ROOT

EXAMPLES = sorted((ROOT / "tools" / "examples").glob("*.py"))
NEEDS = {
    "jax_training": "jax",
    "onnx_training": "array_api_compat",
    "timm_training": "timm",
    "diffusion_unet": "diffusers",
}
OPTIONS = {"timm_training": ["--size", "64"], "diffusion_unet": ["--size", "16"]}
RUN = "import sys, runpy, helpers.models as m; m.torchvision(); runpy.run_path(sys.argv.pop(1), None, '__main__')"
"""With PyTorch's CPU build torchvision's own operators are missing: helpers.models puts some in their place."""


def marks(name: str) -> list[pytest.MarkDecorator]:
    kinds = [pytest.mark.thorough]
    if name not in ("numpy_gradients", "jax_training", "onnx_training"):
        kinds.append(pytest.mark.torch)
    if name in ("timm_training", "diffusion_unet"):
        kinds.append(pytest.mark.models)
    if name == "diffusion_unet":
        kinds.append(pytest.mark.slow)  # Inductor compiles a minute
    return kinds


def ran(*command: str) -> str:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "example",
    [pytest.param(each, id=each.stem, marks=marks(each.stem)) for each in EXAMPLES if each.stem != "distributed"],
)
def test_an_example_runs(example: Path) -> None:
    name = example.stem
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    steps = [] if name == "numpy_gradients" else ["--steps", "2"]
    how = ["-c", RUN] if name in ("timm_training", "diffusion_unet") else []
    found = ran(*how, str(example), *steps, *OPTIONS.get(name, []))
    assert ("the same bits: True" if name == "numpy_gradients" else "loss") in found


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("kind", [[], ["--fsdp"]], ids=["DDP", "FSDP2"])
def test_the_example_of_several_processes_runs(kind: list[str]) -> None:
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    found = ran(*start, str(ROOT / "tools" / "examples" / "distributed.py"), *kind, "--steps", "2")
    assert "mean loss of 2 processes" in found
