"""gradkern in the training loops of Hugging Face, Lightning and timm, on a CPU."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.models import torchvision
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

import gradkern.torch
from gradkern import ArgumentError

pytestmark = [
    pytest.mark.torch,
    pytest.mark.trainers,
    pytest.mark.usefixtures("one_thread", "compiled_anew"),
    pytest.mark.filterwarnings("ignore"),  # the packages' own
]

WIDTH, STEPS = 16, 4


@pytest.fixture(autouse=True)
def _disabled() -> Iterator[None]:
    torchvision()
    gradkern.torch.forget()
    yield
    gradkern.torch.disable()
    gradkern.torch.forget()


class Data(Dataset[Any]):
    """x and y of 32 samples."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        x = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(place))
        return {"x": x, "labels": x.sum()[None].sin()}


class Net(nn.Module):
    """A residual block with a norm and a GELU, and its loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.norm(x + functional.gelu(self.first(x)))
        return {"loss": functional.mse_loss(self.last(y).mean(1), labels)}


def taken() -> dict[str, int]:
    rows = gradkern.torch.report().rows
    names = {row.op for row in rows}
    return {name: sum(row.taken for row in rows if row.op == name) for name in names}


OPTIONS = {"devices": "cpu", "min_bytes": 0, "only_faster": False}


def hugging_face(folder: Path, callbacks: list[Any], model: nn.Module, **options: Any) -> dict[str, torch.Tensor]:
    transformers: Any = importlib.import_module("transformers")
    arguments = transformers.TrainingArguments(
        str(folder),
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_steps=STEPS,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        seed=3,
        **options,
    )
    transformers.Trainer(model, arguments, train_dataset=Data(), callbacks=callbacks).train()
    return {name: each.detach().clone() for name, each in model.state_dict().items()}


def test_hugging_faces_trainer_is_enabled_tuned_and_reported_by_one_callback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    integration: Any = importlib.import_module("gradkern.torch.integrations.transformers")
    expected = hugging_face(tmp_path, [], Net())
    callback = integration.GradkernCallback(**OPTIONS)
    found = hugging_face(tmp_path, [callback], Net())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    later = 2 * (STEPS - 2)  # micro-batches after the second step, in which the kernels are chosen
    assert taken() == {"native_layer_norm_backward": later, "gelu_backward": later}
    assert f"gradkern.torch: {2 * later} calls by gradkern" in caplog.text


def test_hugging_faces_trainer_trains_a_model_that_the_callback_compiles(tmp_path: Path) -> None:
    integration: Any = importlib.import_module("gradkern.torch.integrations.transformers")
    expected = hugging_face(tmp_path, [], Net())
    model = Net()
    callback = integration.GradkernCallback(compile={"options": {"gradkern": True}}, report=False, **OPTIONS)
    found = hugging_face(tmp_path, [callback], model)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert {each.fusion: each.reason for each in gradkern.torch.report().compiled} == {
        "linear + gelu": "",
        "add + layer_norm": "",
    }


def test_a_model_compiled_before_accelerate_gets_it_trains_with_gradkerns_graphs() -> None:
    accelerate: Any = importlib.import_module("accelerate")
    losses = []
    for backend in (None, "gradkern"):
        model = Net()
        if backend:
            model.compile(backend=backend, options={"gradkern": True})
        accelerator = accelerate.Accelerator(cpu=True)
        optimizer = torch.optim.AdamW(model.parameters())
        model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(Data(), 8))
        for batch in loader:
            optimizer.zero_grad()
            loss = model(**batch)["loss"]
            accelerator.backward(loss)
            optimizer.step()
            losses.append(loss.item())
    half = len(losses) // 2
    assert losses[half:] == pytest.approx(losses[:half], rel=1e-4)
    assert [each.reason for each in gradkern.torch.report().compiled] == ["", ""]


def test_lightnings_trainer_is_enabled_tuned_and_reported_by_one_callback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lightning: Any = importlib.import_module("lightning.pytorch")
    integration: Any = importlib.import_module("gradkern.torch.integrations.lightning")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: Any, place: int) -> Any:
            return self.net(**batch)["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    def fit(callbacks: list[Any]) -> dict[str, torch.Tensor]:
        module = Module()
        options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_steps=STEPS,
            callbacks=callbacks,
            default_root_dir=tmp_path,
            enable_model_summary=False,
            **options,
        )
        trainer.fit(module, DataLoader(Data(), 4))
        return {name: each.detach().clone() for name, each in module.state_dict().items()}

    expected = fit([])
    with caplog.at_level("INFO"):
        found = fit([integration.GradkernCallback(**OPTIONS)])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert taken() == {"native_layer_norm_backward": STEPS - 2, "gelu_backward": STEPS - 2}
    assert f"gradkern.torch: {2 * (STEPS - 2)} calls by gradkern" in caplog.text


def test_an_option_that_does_not_fit_is_refused() -> None:
    integration: Any = importlib.import_module("gradkern.torch.integrations.transformers")
    with pytest.raises(ArgumentError, match="compile is a str; expected True, False or a dict of options"):
        integration.GradkernCallback(compile="gradkern")
