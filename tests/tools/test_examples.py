"""Each example runs as a user would run it, with few steps: that a loss falls is what other tests show."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import notebooks
import pytest
from helpers.checkout import ROOT

EXAMPLES = sorted((ROOT / "tools" / "examples").glob("*.py"))
NEEDS = {
    "accelerate_training": "accelerate",
    "cupy_gradients": "cupy",
    "diffusion_unet": "diffusers",
    "hugging_face_trainer": "transformers",
    "jax_training": "jax",
    "lightning_training": "lightning",
    "onnx_training": "array_api_compat",
    "timm_training": "timm",
}
WITH_TORCHVISION = ("diffusion_unet", "hugging_face_trainer", "lightning_training", "timm_training")
OPTIONS = {"timm_training": ["--size", "64"], "diffusion_unet": ["--size", "16"]}
SAYS = {"numpy_gradients": "the same bits: True", "cupy_gradients": "the same: True"}
RUN = "import sys, runpy, helpers.models as m; m.torchvision(); runpy.run_path(sys.argv.pop(1), None, '__main__')"
"""With PyTorch's CPU build torchvision's own operators are missing: helpers.models puts some in their place."""


def marks(name: str) -> list[pytest.MarkDecorator]:
    kinds = [pytest.mark.thorough]
    if name not in ("numpy_gradients", "cupy_gradients", "jax_training", "onnx_training"):
        kinds.append(pytest.mark.torch)
    if name in ("timm_training", "diffusion_unet"):
        kinds.append(pytest.mark.models)
    if name in ("accelerate_training", "hugging_face_trainer", "lightning_training"):
        kinds.append(pytest.mark.trainers)
    if name == "cupy_gradients":
        kinds.append(pytest.mark.gpu)
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
    steps = [] if name in SAYS else ["--steps", "2"]
    how = ["-c", RUN] if name in WITH_TORCHVISION else []
    found = ran(*how, str(example), *steps, *OPTIONS.get(name, []))
    assert SAYS.get(name, "loss") in found


@pytest.mark.parametrize(
    "notebook",
    [
        pytest.param(each, id=each.stem, marks=[pytest.mark.torch] * ("torch" in each.read_text(encoding="utf-8")))
        for each in sorted((ROOT / "tools" / "examples").glob("*.ipynb"))
    ],
)
@pytest.mark.thorough
def test_a_notebook_runs_and_holds_what_it_prints(notebook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for tables of kernels and counts of calls, which depend on the machine."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    kept, new = nbformat.read(notebook, as_version=4), notebooks.executed(notebook)
    printed, anew = (
        [each.get("text") for cell in book.cells for each in cell.get("outputs", ())] for book in (kept, new)
    )
    assert len(printed) >= 3
    assert printed == anew


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("kind", [[], ["--fsdp"]], ids=["DDP", "FSDP2"])
def test_the_example_of_several_processes_runs(kind: list[str]) -> None:
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    found = ran(*start, str(ROOT / "tools" / "examples" / "distributed.py"), *kind, "--steps", "2")
    assert "mean loss of 2 processes" in found
