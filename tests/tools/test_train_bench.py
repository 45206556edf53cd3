"""The benchmark of training steps: its models, a row in small form on the CPU, and the processes of many rows."""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import train_bench
import train_tables
from kernel_kinds import by_kind, kind_of

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]
TINY = (
    *("Llama 12x768", "BERT-base", "GPT-2", "UNet2D", "wav2vec 2.0", "ResNet-50", "ConvNeXtV2-T", "DynUNet"),
    *("AutoencoderKL", "SegResNet", "MobileNetV3-L", "T5-base"),
)
PUBLISHED = {
    "ResNet-50": 25.6,
    "ResNeXt-50": 25.0,
    "EfficientNetV2-S": 21.5,
    "MobileNetV3-L": 5.5,
    "RegNetY-3.2GF": 19.4,
    "ConvNeXtV2-T": 28.6,
    "DenseNet-121": 8.0,
    "ViT-B/16": 86.6,
    "Swin-T": 28.3,
    "R(2+1)D-18": 31.5,
    "DeepLabV3-R50": 39.6,
    "SegFormer-B2": 27.5,
    "UNet2DCondition": 859.5,
    "AutoencoderKL": 83.65,
    "SegResNet": 4.7,
    "BERT-base": 109.5,
    "GPT-2": 124.4,
    "ModernBERT": 149.7,
    "T5-base": 222.9,
    "Whisper-small": 241.7,
    "wav2vec 2.0": 94.4,
}
"""Millions of parameters, by the packages' model cards."""


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "train_bench.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


# --- models -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def torchvision() -> None:
    """With which transformers and diffusers are imported, too."""
    from helpers.models import torchvision

    torchvision()


@pytest.mark.models
@pytest.mark.usefixtures("torchvision")
@pytest.mark.filterwarnings("ignore")  # the packages' own
@pytest.mark.parametrize("name", TINY)
def test_a_model_of_each_family_trains_and_without_dropout_does_the_same_each_time(name: str) -> None:
    import torch
    from train_models import TINY as TINY_MODELS
    from train_models import dropouts

    assert tuple(TINY_MODELS) == TINY
    record = TINY_MODELS[name]
    pytest.importorskip(record.package)
    torch.manual_seed(0)
    model, batch = record.make(), record.make_batch()
    dropouts(model, 0.0)
    assert dropouts(model) == {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss() -> Any:
        train_row_seed()
        return record.loss(model, batch)

    first, again = loss(), loss()
    assert first.equal(again)
    first.backward()
    gradients = {key: each.grad for key, each in model.named_parameters() if key != MASKED}
    assert all(each is not None and bool(each.isfinite().all()) for each in gradients.values())
    optimizer.step()
    assert float(loss()) < float(first)


MASKED = "wav2vec2.masked_spec_embed"  # stands where a random mask is, which may be nowhere in a short sound


def train_row_seed() -> None:
    from train_row import seed

    seed()


@pytest.mark.models
@pytest.mark.usefixtures("torchvision")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_has_as_many_parameters_as_was_published(name: str) -> None:
    import torch
    from train_models import MODELS

    pytest.importorskip(MODELS[name].package)
    with torch.device("cpu" if name == "RegNetY-3.2GF" else "meta"):
        count = sum(each.numel() for each in MODELS[name].make().parameters())
    assert count / 1e6 == pytest.approx(PUBLISHED[name], abs=0.06)


# --- a row ------------------------------------------------------------------------------------------------------------


@pytest.mark.models
@pytest.mark.filterwarnings("ignore")
def test_a_row_has_times_and_errors_of_gradients_and_a_column_that_fails_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("monai")
    import torch
    from train_row import TrainingRow

    row = TrainingRow("DynUNet", ["eager", "compile", "compile loss"], tiny=True)
    assert list(row.result["columns"]) == ["eager", "compile"]  # it is no language model
    loss = row._loss

    def failing(column: str) -> Any:
        if column == "compile":
            raise RuntimeError("no compiler\nand advice")
        return loss(column)

    monkeypatch.setattr(row, "_loss", failing)
    # PyTorch's own tests, once another test imports them, forbid to set the flags that a row sets.
    with torch.backends.__allow_nonbracketed_mutation():  # pyright: ignore[reportAttributeAccessIssue]
        row.prepare()
        row.tune()
        row.time(0.01)
        row.check()
    eager, compiled = row.result["columns"].values()
    assert compiled == {"error": "RuntimeError: no compiler"}
    first, third = eager["quartiles"]
    assert 0 < first <= eager["ms"] <= third < 1e4
    assert 0 < eager["gradient_error"] < 0.5  # bfloat16 on volumes of 8x8x8, with norms over 2x2x2
    assert row.result["parameters"] == 13979
    assert row.result["batch"] == {"x": [1, 1, 8, 8, 8], "target": [1, 8, 8, 8]}


@pytest.mark.models
@pytest.mark.filterwarnings("ignore")
def test_gradkern_is_enabled_in_its_column_alone_and_after_an_error_in_none() -> None:
    pytest.importorskip("monai")
    from train_row import TrainingRow

    import gradkern.torch

    row, seen = TrainingRow("DynUNet", ["eager", "enable"], tiny=True), {}

    def work(column: str) -> None:
        seen[column] = gradkern.torch.is_enabled()
        raise ValueError

    for column in ("enable", "eager"):
        row._do(column, lambda column=column: work(column))
    assert seen == {"enable": True, "eager": False}
    assert row.result["columns"]["enable"] == {"error": "ValueError"}


@pytest.mark.models
@pytest.mark.slow
def test_a_table_and_json_of_every_column(tmp_path: Path) -> None:
    pytest.importorskip("monai")
    file = tmp_path / "train.json"
    done = bench("DynUNet", "--tiny", "--seconds", "0.1", "--json", str(file))
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(file.read_text())["rows"]
    assert row["machine"]["packages"]["monai"]
    assert row["columns"]["gradkern"]["fused"] > 0
    assert {each["loss"] for each in row["columns"].values()}
    assert "| DynUNet (1x1x8x8x8) | CPU | gradkern |" in done.stdout
    again = bench("DynUNet", "--tiny", "--resume", "--json", str(file))
    assert again.returncode == 0
    assert json.loads(file.read_text())["rows"] == [row]


# --- the processes of rows --------------------------------------------------------------------------------------------


def asked(**options: Any) -> argparse.Namespace:
    given = {"columns": ["eager"], "jobs": 1, "limit": 20.0, "json": None, "resume": False, "commit": "0", **options}
    return argparse.Namespace(**given)


def found_by(monkeypatch: pytest.MonkeyPatch, programs: dict[str, str], **options: Any) -> dict[str, Any]:
    """The rows of processes that run these programs of Python."""
    monkeypatch.setattr(train_bench, "has_gpu", lambda: False)
    monkeypatch.setattr(train_bench, "_command", lambda name, _: [sys.executable, "-c", programs[name]])
    rows = train_bench.Rows(asked(**options), "caches")
    asyncio.run(rows.measure(list(programs)))
    return rows.rows


def saying(message: Any) -> str:
    return f"print({train_bench._MARK + json.dumps(message)!r}, flush=True)"


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("import sys; print('noise'); sys.exit(7)", "exit status 7"),
        (saying({"model": "a", "error": "no memory"}) + "; raise SystemExit(1)", "no memory"),
        ("import time; time.sleep(60)", "longer than 3 s"),
        (saying("ready") + "; import time; time.sleep(60)", "longer than 3 s"),
    ],
)
def test_a_row_that_fails_says_why_and_the_next_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, error: str
) -> None:
    file = tmp_path / "rows.json"
    good = {"model": "b", "columns": {"eager": {"ms": 1.0}}}
    rows = found_by(monkeypatch, {"a": program, "b": saying(good)}, limit=3.0, json=file)
    assert rows["a"]["error"] == error
    assert rows["b"]["columns"] == good["columns"]
    assert json.loads(file.read_text())["rows"] == [rows["a"], rows["b"]]


def test_each_row_has_caches_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that stands still while another is timed would hold the locks of common ones."""
    says = (
        f"import json, os; caches = {{each: os.environ[each] for each in {train_bench._CACHES}}}; "
        f"print({train_bench._MARK!r} + json.dumps({{'model': 'a', **caches}}))"
    )
    rows = found_by(monkeypatch, {"a": says, "b c": says.replace("'a'", "'b c'")})
    assert not {rows["a"][each] for each in train_bench._CACHES} & {rows["b c"][each] for each in train_bench._CACHES}


def test_what_a_row_has_found_before_it_fails_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    part = {"model": "a", "columns": {"eager": {"ms": 1.0}}}
    rows = found_by(monkeypatch, {"a": saying(part) + "; raise SystemExit(3)"})
    assert rows["a"]["columns"] == part["columns"]
    assert rows["a"]["error"] == "exit status 3"


def test_rows_that_are_there_with_all_columns_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    old = [
        {"model": "done", "columns": {"eager": {"ms": 1.0}, "compile": {"ms": 1.0}}},
        {"model": "failed", "columns": {"eager": {"ms": 1.0}, "compile": {"error": "no memory"}}},
    ]
    file.write_text(json.dumps({"rows": old}))
    new = {name: saying({"model": name, "columns": {}}) for name in ("done", "failed")}
    options = {"json": file, "resume": True, "columns": ["eager", "compile", "compile loss"]}
    rows = found_by(monkeypatch, new, **options)
    assert rows["done"] == old[0]
    assert rows["failed"]["columns"] == {}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")
def test_all_other_rows_and_their_children_stand_still_while_one_is_timed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ticks, spans = tmp_path / "ticks", tmp_path / "span"
    child = f"import time\nfor _ in range(60): open({str(ticks)!r}, 'a').write(f'{{time.time()}} '); time.sleep(0.05)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    timed = "\n".join(
        [
            "import sys, time",
            f"while not __import__('os').path.exists({str(ticks)!r}): time.sleep(0.05)",
            *(saying("ready"), "sys.stdin.readline()", "start = time.time()", "time.sleep(1)"),
            *(f"open({str(spans)!r}, 'w').write(f'{{start}} {{time.time()}}')", saying("measured")),
        ]
    )
    found_by(monkeypatch, {"compiling": parent, "timed": timed}, jobs=2)
    start, end = map(float, spans.read_text().split())
    seen = [float(each) for each in ticks.read_text().split()]
    assert len(seen) == 60
    assert not [each for each in seen if start + 0.1 < each < end - 0.1]
    assert max(seen) > end


def test_a_process_and_its_children_are_found() -> None:
    nested = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'], stdin=sys.stdin)"
    process = subprocess.Popen([sys.executable, "-c", nested], stdin=subprocess.PIPE)
    try:
        end = time.monotonic() + 20
        while len(train_bench.descendants(process.pid)) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        assert len(train_bench.descendants(process.pid)) == 2
    finally:
        process.communicate(b"\n")


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", "matrix products"),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm>", "matrix products"),
        ("sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc", "convolutions"),
        ("void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16>", "copies"),
        ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop", "attention"),
        ("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>", "optimizer"),
        ("triton_red_fused__log_softmax_nll_loss_forward_3", "loss"),
        ("triton_red_fused__to_copy_add_native_layer_norm_backward_12", "norms"),
        ("triton_per_fused_add_mean_mul_pow_rsqrt_7", "norms"),
        ("triton_poi_fused__to_copy_1", "copies"),
        ("triton_poi_fused_convolution_silu_4", "rest"),
        ("triton_poi_fused_gelu_gelu_backward_9", "rest"),
        ("gradkern_layer_norm_grad_bf16_1x256x2x8", "norms"),
        ("gradkern_batch_norm_persistent", "norms"),
        ("Memcpy DtoD (Device -> Device)", "copies"),
        ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float>", "loss"),
        ("void at::native::batch_norm_backward_reduce_kernel", "norms"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>", "rest"),
    ],
)
def test_the_kind_of_a_kernel_is_told_by_its_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_kernels_are_summed_up_by_kind() -> None:
    assert by_kind([("nvjet_a", 2, 1500.0), ("gemm_b", 1, 500.0), ("other", 1, 250.0)]) == {
        "matrix products": 2.0,
        "rest": 0.25,
    }


def test_gains_are_over_torch_compile_in_the_same_call() -> None:
    columns = {"compile": {"ms": 30.0}, "gradkern": {"ms": 20.0}, "compile+graph": {"ms": 25.0}}
    columns |= {"gradkern+graph": {"error": "it waits for the GPU"}, "gradkern loss": {"ms": 1.0}}
    row = {"model": "a", "columns": columns, "batch": {"x": [8, 3, 4], "y": [8]}, "machine": {"gpu": "NVIDIA H200"}}
    other = {**row, "model": "b", "columns": {"compile": {"ms": 10.0}, "gradkern": {"ms": 15.0}}}
    assert train_tables.ratio(row, "gradkern") == 1.5
    assert train_tables.ratio(row, "gradkern+graph") is None
    assert train_tables.ratio(row, "gradkern loss") is None
    text = train_tables.gains([row, other])
    assert "| a (8x3x4) | H200 | 30.0 | 20.0 | 1.500 | 25.0 |" in text
    assert text.endswith("Geometric means: 1.000 of 2 rows.")


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--columns", "eagre"), "no column 'eagre'; there are eager, enable, "),
        (("ResNet-5",), "no model 'ResNet-5'; there are ResNeXt-50, "),
        (("ResNet-50 @bf16",), "only language models are trained with parameters in bfloat16"),
    ],
)
def test_what_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], error: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["train_bench.py", *arguments])
    with pytest.raises(SystemExit, match="2"):
        train_bench.main()
    assert error in capsys.readouterr().err
