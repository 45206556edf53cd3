"""What type checkers and editors see of gradkern: a user's script is checked by pyright in strict mode against the
wheel. That the stubs are what tools/stubs.py writes is one of the checks of test_style.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from helpers.calls import run_any

import gradkern
from gradkern import results

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[1]

USED = """
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import gradkern
from gradkern.results import ConvGrad, InvertibleLayerNormalizationGrad, LayerNormalizationGrad

Single = NDArray[np.float32]
Half = NDArray[np.float16]


def right(dY: Single, X: Single, W: Single, r: Single, half: Half) -> ConvGrad[Single]:
    grads = gradkern.run("ConvGrad", dY, X, W, pads=[1, 1, 1, 1], group=2, auto_pad="NOTSET")
    assert_type(grads, ConvGrad[Single])
    print(grads.dX.shape, grads.dW.sum() + 1, grads._fields)
    dX, dW, dB = grads
    print(dX.dtype, dW.dtype, dB.dtype)
    gradkern.run("ConvGrad", dY=dY, X=X, W=W, outputs=["dX", "dW"], out={"dX": X}, policy={"deterministic": True})
    gradkern.run("ConvGrad", dY, X, W, outputs="dB", provider="cpu", stream=0, domain="com.microsoft", version=1)

    norm = gradkern.run("LayerNormalizationGrad", half, X, half, r, r, axis=1)
    assert_type(norm, LayerNormalizationGrad[Single, Half])
    inverse = gradkern.run("InvertibleLayerNormalizationGrad", X, half, half, half, r, X_grad_type=np.float32)
    assert_type(inverse, InvertibleLayerNormalizationGrad[Half])
    gradkern.run("BatchNormalizationGradFromSums", dY, X, r, r, r, r, r, count=6)
    gradkern.run("BatchNormalizationGradFromSums", dY, X, r, r, r, r, r, r)

    plan = gradkern.prepare("ConvGrad", dY, X, W, strides=(2, 2))
    print(plan.kernel.upper(), plan.scratch + 1)
    assert_type(plan(dY, X, W=W), ConvGrad[Single])
    for name, operator in gradkern.operators().items():
        results = gradkern.run(name, *[X for _ in operator.inputs])
        assert_type(results, Any)
        print(gradkern.prepare(name, *results, provider="cpu").kernel, gradkern.operators()["ConvGrad"].doc)
    with gradkern.policy({"search": "heuristic"}, deterministic=True, workspace_limit=1 << 20) as policy:
        print(gradkern.run("ConvGrad", dY, X, W, policy=policy).dX, gradkern.results.ConvGrad, gradkern.torch.enable)
    return grads


def wrong(dY: Single, X: Single, W: Single, r: Single) -> None:
    gradkern.run("ConvGrd", dY, X, W)  # error
    gradkern.run("ConvGrad", dY, X)  # error
    gradkern.run("ConvGrad", dY, X, W, r)  # error
    gradkern.run("ConvGrad", dY, X, [[1.0]])  # error
    gradkern.run("ConvGrad", dY, X, W, pad=[1, 1])  # error
    gradkern.run("ConvGrad", dY, X, W, pads=1)  # error
    gradkern.run("ConvGrad", dY, X, W, auto_pad="SAME")  # error
    gradkern.run("ConvGrad", dY, X, W, outputs=["dx"])  # error
    gradkern.run("ConvGrad", dY, X, W, out={"dx": X})  # error
    gradkern.run("BatchNormalizationGradFromSums", dY, X, r, r, r, r, count=6)  # error
    gradkern.run("ConvGrad", dY, X, W).X_grad  # error
    dX, dW = gradkern.run("ConvGrad", dY, X, W)  # error
    gradkern.prepare("ConvGrad", dY, X, W, pad=[1, 1])  # error
    gradkern.prepare("ConvGrad", dY, X, W)(dY, X)  # error
    gradkern.prepare("ConvGrad", dY, X, W)(dY, X, W, group=2)  # error
    gradkern.bake("ConvGrad", dY, X, W)  # error
    gradkern.run("ConvGrad", dY, X, W, provider="gpu")  # error
    gradkern.run("ConvGrad", dY, X, W, policy={"serach": "heuristic"})  # error
    gradkern.prepare("ConvGrad", dY, X, W, policy={"search": "fast"})  # error
    gradkern.policy({"deterministic": "yes"})  # error
    gradkern.policy(detrministic=True)  # error
    gradkern.policy(search="fast")  # error
"""
TENSORS = """
from typing import assert_type

from torch import Tensor

import gradkern
from gradkern.results import ConvGrad


def tensors(dY: Tensor, X: Tensor, W: Tensor) -> Tensor:
    assert_type(gradkern.run("ConvGrad", dY, X, W), ConvGrad[Tensor])
    gradkern.run("ConvGrad", dY, X, W, outputs=["dX"], out={"dX": X}).dX.nope  # error
    gradkern.torch.enable(["conv", "gelu"], devices=X.device.type, min_bytes={"conv": 0}, on_refusal="warn")
    gradkern.torch.enable("conv2d")  # error
    gradkern.torch.enable(on_refusal="ignore")  # error
    gradkern.torch.enable(min_bytes={"convolution": 0})  # error
    with gradkern.torch.enabled("gelu", plan="later"):  # error
        gradkern.torch.tune(lambda: gradkern.torch.LayerNorm(64, eps=1e-6, autocast="input")(X), repeats=3)
    gradkern.torch.BatchNorm2d(8, 1e-5, None, affine=False, activation="relu")
    gradkern.torch.LayerNorm(64, esp=1e-6)  # error
    gradkern.torch.BatchNorm2d("8")  # error
    gradkern.torch.CrossEntropyLoss(zloss=1e-4)  # error
    return gradkern.run("ConvGrad", dY, X, W).dX.contiguous()
"""

FOLLOWED = """
[mypy]
follow_imports = skip

[mypy-gradkern.*,numpy.*,script]
follow_imports = normal
"""
"""Of mypy: it is to read neither PyTorch nor Numba, which take it half a minute and give the script no type."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel has, as users have it."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def wrong_lines(script: str) -> set[int]:
    return {number for number, line in enumerate(script.splitlines(), 1) if line.endswith("# error")}


@pytest.mark.parametrize("script", [USED, pytest.param(TENSORS, marks=pytest.mark.torch)], ids=["numpy", "torch"])
def test_a_users_script_is_typed(script: str, installed: Path, tmp_path: Path) -> None:
    """Pyright finds an error in every line that says so, and in no other."""
    (tmp_path / "script.py").write_text(script)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "pythonVersion": "3.11"}')
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    found = {
        each["range"]["start"]["line"] + 1: each["message"]
        for each in json.loads(done.stdout)["generalDiagnostics"]
        if each["severity"] == "error" and each.get("rule") != "reportUnusedExpression"
    }
    assert found.keys() == wrong_lines(script), json.dumps(found, indent=1)
    missing = script[: script.find('run("ConvGrad", dY, X)  #')].count("\n") + 1
    assert script is TENSORS or "ConvGrad_takes_dY_X_W" in found[missing]


def test_mypy_says_in_a_line_or_two_what_is_wrong(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(USED)
    (tmp_path / "mypy.ini").write_text(FOLLOWED)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "script.py"]
    environment = {**os.environ, "MYPYPATH": str(installed)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    lines = [line.split(":")[1:3] for line in done.stdout.splitlines() if line.startswith("script.py:")]
    assert {int(number) for number, kind in lines if kind == " error"} == wrong_lines(USED), done.stdout
    assert len(lines) < 2 * len(wrong_lines(USED)), done.stdout


@pytest.mark.parametrize("name", gradkern.operators())
def test_the_result_of_an_operator_is_a_named_tuple_of_a_module(name: str) -> None:
    outputs = [each.name for each in gradkern.operators()[name].outputs if not each.appended]
    result = getattr(results, name)
    assert (result.__name__, result.__module__, [*result._fields]) == (name, "gradkern.results", outputs)
    assert result is getattr(results, name)
    assert name in dir(results)
    with pytest.raises(AttributeError, match=r"^module 'gradkern.results' has no attribute 'NoGrad'$"):
        getattr(results, "NoGrad")  # noqa: B009  type checkers know that it is not there


def test_an_appended_output_is_a_field_where_it_was_asked_for():
    x, one = np.ones((2, 3, 4)), np.ones(3)
    operands = (x, x, one, one, one)
    assert len(run_any("BatchNormalizationGrad", *operands)) == 3
    more = run_any("BatchNormalizationGrad", *operands, outputs=["dX", "dZ"])
    assert more._fields == ("dX", "dScale", "dBias", "dZ")
    assert more.dScale is None
    assert np.array_equal(pickle.loads(pickle.dumps(more)).dZ, x)
    out = np.empty_like(x)
    assert run_any("BatchNormalizationGrad", *operands, out={"dZ": out}).dZ is out


def test_a_result_can_be_pickled_and_copied(tmp_path: Path) -> None:
    """Also into another process, which has not called anything yet."""
    grads = run_any("BiasGeluGrad_dX", *np.ones((2, 3, 4), np.float32), np.ones(4, np.float32))
    for same in (pickle.loads(pickle.dumps(grads)), copy.deepcopy(grads)):
        assert type(same) is type(grads) is results.BiasGeluGrad_dX
        assert np.array_equal(same.dX, grads.dX)
        assert same.dB is None
    (tmp_path / "grads").write_bytes(pickle.dumps(grads))
    code = f"import pickle; print(pickle.load(open({str(tmp_path / 'grads')!r}, 'rb')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "BiasGeluGrad_dX(dX=ndarray float32 (3, 4) cpu, dB=None)\n"
