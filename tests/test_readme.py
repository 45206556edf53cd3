"""What the pages say: their snippets run, the errors are those that callers get, the tables are as measured."""

import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import conv_tables
import numpy as np
import pytest
import readme
import result_tables
from conv_layers import Layer
from helpers.calls import run_any
from helpers.checkout import ROOT

import gradkern
from gradkern.cudnn.engine import Config
from gradkern.ops.conv.cuda.cudnn import CudnnCandidate
from gradkern.ops.conv.cuda.gemm.candidates import GemmAlgorithm

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("tools/docs/*.md"))]
SNIPPETS = [
    pytest.param(
        code,
        id=f"{page.stem}-{number}",
        marks=[
            mark
            for word, mark in (
                ("torch", pytest.mark.torch),
                ("Trainer", pytest.mark.trainers),
                ("accelerate import", pytest.mark.trainers),
            )
            if word in code
        ],
    )
    for page in PAGES
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
]
README = PAGES[0].read_text(encoding="utf-8")
EXAMPLE = next(code for code in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "import numpy" in code)
ERRORS = (ROOT / "tools" / "docs" / "arrays.md").read_text(encoding="utf-8").split("```")[1::2]
QUOTED = next(block for block in ERRORS if "ConvGrad:" in block).strip().splitlines()
BEFORE = """
import numpy as np
import gradkern

dY = X = np.ones((2, 4, 8, 8), np.float32)
W = np.ones((4, 4, 3, 3), np.float32)
step = lambda batch=None: gradkern.run("ConvGrad", dY, X, W, pads=[1, 1, 1, 1])
batch = None
"""
"""What a user's program has before a snippet of the pages."""
BEFORE_TORCH = """
import functools
import torch
import gradkern.torch

gradkern.torch.enable = functools.partial(gradkern.torch.enable, min_bytes=0)
gradkern.torch.enable()
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16))
batch = torch.ones(4, 8)


def step(batch):
    model(batch).sum().backward()
"""
BEFORE_ONNX = f"""
import runpy
from pathlib import Path

example = runpy.run_path({str(ROOT / "tools" / "examples" / "onnx_training.py")!r})
example["write"](Path())
import onnx

weights = [(name, np.ones(size, np.float32)) for name, size in example["SIZES"].items()]
initializers = [onnx.numpy_helper.from_array(array, name) for name, array in weights]
onnx.save(example["model"]([], [], [], initializers), "forward_model.onnx")
x, labels = np.ones((5, 2), np.float32), np.array([0, 1, 2, 0, 1])
"""
BEFORE_TRAINER = """
from helpers.models import torchvision

torchvision()
import transformers

arguments = transformers.TrainingArguments(use_cpu=True, report_to=[])
"""


def test_the_example_runs_with_numpy_alone() -> None:
    done = subprocess.run([sys.executable, "-c", EXAMPLE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("(8, 512) (512,) (512,)\n<gradkern plan LayerNormalizationGrad on cpu")


@pytest.mark.parametrize("code", SNIPPETS)
def test_a_snippet_runs(code: str, tmp_path: Path) -> None:
    program = (BEFORE_TORCH if "torch" in code else BEFORE) + BEFORE_TRAINER * ("Trainer" in code)
    program += BEFORE_ONNX * ("gradkern.onnx" in code) + code
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.torch
def test_the_names_the_pages_have_of_gradkern_torch_are_there() -> None:
    import gradkern.torch

    named = {name for page in PAGES for name in re.findall(r"gradkern\.torch\.(\w+)", page.read_text(encoding="utf-8"))}
    assert {"enable", "tune", "report", "graphed", "accelerate", "SyncBatchNorm"} <= named
    subpackages = {each.name for each in pkgutil.iter_modules(gradkern.torch.__path__) if each.ispkg}
    assert named <= {*gradkern.torch.__all__, *subpackages}


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 160


def test_the_readme_counts_every_operator() -> None:
    lines = readme.families()
    named = re.findall(r"`(\w+)`", lines)
    assert set(named) <= set(gradkern.operators())
    assert len(named) + sum(map(int, re.findall(r", (\d+) more", lines))) == len(gradkern.operators())
    assert max(map(len, lines.splitlines())) <= 120


def arrays(*shapes: tuple[int, ...], dtype: str = "float32") -> list[np.ndarray]:
    return [np.zeros(shape, dtype) for shape in shapes]


@pytest.mark.parametrize(
    ("line", "operator", "inputs", "attributes"),
    [
        (0, "ConvGrad", arrays((2, 4, 9), (2, 4, 9), (2, 4, 9)), {}),
        (1, "ConvGrad", arrays((2, 4, 9), (2, 4, 9), (4, 4, 1)), {"pad": [0, 0]}),
        (
            2,
            "LayerNormalizationGrad",
            [*arrays((2, 3)), *arrays((2, 3), (3,), dtype="float16"), *arrays((2,), (2,))],
            {},
        ),
    ],
)
def test_a_quoted_error_is_what_the_call_raises(
    line: int, operator: str, inputs: list[np.ndarray], attributes: dict
) -> None:
    with pytest.raises(gradkern.GradkernError) as caught:
        run_any(operator, *inputs, **attributes)
    assert len(QUOTED) == 3
    quoted = QUOTED[line].removesuffix(" ...").rstrip(",")
    assert len(quoted) > 60
    assert str(caught.value).startswith(quoted)


def test_a_page_says_that_there_are_no_measurements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "README.md"
    path.write_text("<!-- begin conv -->\nold\n<!-- end conv -->\n")
    monkeypatch.setattr(result_tables, "RESULTS", tmp_path)
    for name, value in (("ROOT", tmp_path), ("PAGES", {"README.md": {"conv": readme.conv}})):
        monkeypatch.setattr(readme, name, value)
    monkeypatch.setattr(sys, "argv", ["readme.py", "--check"])
    assert readme.main() == 1
    monkeypatch.setattr(sys, "argv", ["readme.py"])
    assert readme.main() == 0
    assert path.read_text() == "<!-- begin conv -->\nNot measured for the present version.\n<!-- end conv -->\n"


def test_a_part_that_a_page_does_not_have_is_an_error() -> None:
    with pytest.raises(SystemExit, match=r"README\.md has no part <!-- begin operators -->"):
        readme.filled("README.md", "nothing", {"operators": readme.operators})


def test_what_all_operators_share_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of the table of operators stands there where one of them differs."""
    named, usual = gradkern.operators().items(), gradkern.operators()["ConvGrad"].data_types
    known = {str(name): each for name, each in named if list(each.providers) == ["cuda", "cpu"]}
    odd = "BatchNormalizationMergeStatistics"  # which has statistics in place of data
    known = {name: each for name, each in known.items() if name == odd or each.data_types == usual}
    monkeypatch.setattr(gradkern, "operators", lambda: known)
    assert readme.operators().splitlines()[0].endswith("| types of the data |")
    del known[odd]
    assert "types of the data float32" in readme.operators().splitlines()[-1]
    first = next(iter(known))
    known[first] = replace(known[first], combinations=known[first].combinations[:1])
    head, _, line, *_, last = readme.operators().splitlines()
    assert head.endswith("| types of the data |")
    assert line.endswith("| float32 |")
    assert last == "The same for all: providers cuda, cpu."


def test_the_summary_is_worked_out_from_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Medians and least values, each kind of gradient for itself; a peer that has no such gradient is left out."""
    norms = [("LayerNormalizationGrad", 10, 0.5, {"torch": 20, "compile": 30}), ("Simplified...", 99, 0.1, {})]
    norms += [("InvertibleLayerNormalizationGrad", 10, 0.9, {}), ("LayerNormalizationGrad", 10, 0.8, {"torch": 40})]
    bench = [
        {"operator": name, "microseconds": time, "share_of_limit": share, "peers": peers}
        for name, time, share, peers in norms
    ]
    conv = [
        {"outputs": outputs, "layer": layer, "microseconds": 10, "torch_microseconds": time}
        for outputs, layer, time in (("dX", "3x3", 15), ("dX,dW,dB", "3x3", 1), ("dW", "3x3 depthwise", 25))
    ]
    for name, rows in (("h200", bench), ("conv", conv)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"rows": rows}))
    monkeypatch.setattr(result_tables, "RESULTS", tmp_path)
    lines = readme.summary().splitlines()[2:]
    assert lines[0] == "| layer norms | 3 | 0.80 (0.50) | 3.00 (2.00) | 3.00 (3.00) |"
    assert lines[-2:] == [
        "| convolution | 1 | - | 1.50 (1.50) | - |",
        "| convolution, depthwise | 1 | - | 2.50 (2.50) | - |",
    ]


NOTHING: Any = None  # of what a name does not depend on
CUDNN = CudnnCandidate(NOTHING, NOTHING, "NCHW", Config(35, ((2, 1),)), frozenset(), NOTHING).name
GEMM = GemmAlgorithm("taps", 256 << 20).name
DEPTHWISE = "depthwise_1x8_threads32x4x1_stages3"
MEASURED = {  # of dX, dW and all three: the winner, and gradkern's and PyTorch's microseconds
    Layer("ResNet-50", 128, 64, (56, 56), 64, 3, 2): [(CUDNN, 10, 20), (CUDNN, 40, 20), (CUDNN, 50, 50)],
    Layer("ResNet-50", 128, 64, (56, 56), 256, 1): [(GEMM, 30, 30), (CUDNN, 40, 80), (CUDNN, 50, 100)],
    Layer("WaveNet", 8, 128, (16000,), 256, 3, dilation=16): [(GEMM, 10, 40), (GEMM, 50, 50), (GEMM, 50, 100)],
    Layer("ConvNeXt-T", 64, 96, (56, 56), 96, 7, group=96): [(DEPTHWISE, 10, 80), (DEPTHWISE, 5, 80), (GEMM, 20, 20)],
}


def test_the_convolutions_in_the_readme_are_what_the_benchmark_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The benchmark's own rows, of a GPU that is not there: only winners and times are given."""
    torch = MagicMock(__version__="2.11.0")
    torch.backends.cudnn.version.return_value = 91900
    monkeypatch.setitem(sys.modules, "torch", torch)
    for name in ("conv_bench", "gpu_timing"):  # to be imported with this torch, and forgotten with it
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]
    conv_bench = importlib.import_module("conv_bench")
    winners, times = (iter([row for rows in MEASURED.values() for row in rows]) for _ in range(2))

    def prepare(*_: object, outputs: tuple[str, ...], **__: object) -> SimpleNamespace:
        winner = next(winners)[0]
        return SimpleNamespace(kernel="; ".join(f"{name}: {winner}" for name in outputs), scratch=0, plan=None)

    def device_times(*_: object) -> dict[str, list[float]]:
        return {name: [time / 1e6] for name, time in zip(("gradkern", "torch"), next(times)[1:], strict=True)}

    monkeypatch.setattr(gradkern, "prepare", prepare)
    monkeypatch.setattr(gradkern, "run", lambda *_, **__: None)
    for name, value in {
        "LAYERS": tuple(MEASURED),
        "torch_peer": lambda *_: lambda: None,
        "device_times": device_times,
        "machine": lambda: {"gpu": "a GPU", "cuda": "13.0", "driver": "580.1"},
        "_apart": lambda *_: 0.0,
        "require_gpu": lambda parser: None,
    }.items():
        monkeypatch.setattr(conv_bench, name, value)
    files = tmp_path / "conv.json", tmp_path / "conv.png"
    command = ["conv_bench.py", "--settings", "bfloat16", "--json", str(files[0]), "--plot", str(files[1])]
    monkeypatch.setattr(sys, "argv", command)
    assert conv_bench.main() == 0
    assert files[1].read_bytes().startswith(b"\x89PNG")

    monkeypatch.setattr(result_tables, "RESULTS", tmp_path)
    text = conv_tables.conv()
    lines = [line for line in text.splitlines() if "bfloat16" in line and line.startswith("|")]
    assert lines == [
        "| ResNet-50 | 3×3, 1×1 | 2 | bfloat16, channels-last"
        " | 50 | 40 | 1.25 | cuDNN 35 (1), GEMM (1) | 100 | 80 | 1.25 | cuDNN 35 (2) |",
        "| ResNet-50 | 3×3 | 1 | bfloat16, channels-last"
        " | 20 | 10 | 2.00 | cuDNN 35 (1) | 20 | 40 | 0.50 | cuDNN 35 (1) |",
        "| ResNet-50 | 1×1 | 1 | bfloat16, channels-last | 30 | 30 | 1.00 | GEMM (1) | 80 | 40 | 2.00 | cuDNN 35 (1) |",
        "| WaveNet | 3 | 1 | bfloat16, NCL | 40 | 10 | 4.00 | GEMM (1) | 50 | 50 | 1.00 | GEMM (1) |",
        "| ConvNeXt-T | 7×7 depthwise | 1 | bfloat16, channels-last"
        " | 80 | 10 | 8.00 | depthwise (1) | 80 | 5 | 16.00 | depthwise (1) |",
        "| bfloat16 | 2.00 (1.00) | 1.00 (0.50) | 1.59 (1.00) | 8.00 (8.00) | 16.00 (16.00) | 1.00 (1.00) |",
    ]
    assert "12 measurements PyTorch takes 2.00 times as long" in text
    assert "0.50 times at the least (ResNet-50 `64x56x56 -> 64, 3x3/2`, bfloat16, channels-last, dW); in 1 of" in text
    assert "one a GPU, driver 580.1, CUDA 13.0, torch 2.11.0, cuDNN 9.19.0, gradkern " in text


def test_engines_on_copies_are_told_from_those_on_the_arrays() -> None:
    names = "dX: channels_last_cudnn_NCHW_eng63_k2=1", "dW: cudnn_NC1L_eng62", "dW: gemm pointwise"
    assert [conv_tables._winner({"kernel": name}) for name in names] == ["cuDNN 63 on copies", "cuDNN 62", "GEMM"]
