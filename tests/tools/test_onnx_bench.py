"""tools/onnx_bench.py with a small graph on the CPU: its losses are PyTorch's, or it says that they are not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.models]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    from tests.helpers.models import torchvision

    pytest.importorskip("onnx")
    torchvision()  # which transformers imports
    import onnx_bench

    monkeypatch.setattr(onnx_bench.torch, "compile", lambda model: model)  # what Inductor makes is no matter here
    return onnx_bench


def test_graphs_train_as_pytorch_does_and_every_column_has_a_time(
    bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["onnx_bench.py", "--tiny", "--seconds", "0.1", "--json", str(tmp_path / "f")])
    bench.main()
    found = json.loads((tmp_path / "f").read_text())
    assert set(found["quartiles"]) == {"eager", "compile", "graphs"}
    assert found["losses"]["graphs"] == pytest.approx(found["losses"]["eager"], rel=1e-4)
    assert len(set(found["losses"]["eager"])) == 3  # it trains
    assert "| graphs |" in capsys.readouterr().out


def test_other_losses_end_it(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["onnx_bench.py", "--tiny", "--seconds", "0.1"])
    monkeypatch.setattr(bench.FromFile, "__call__", lambda self: bench.torch.tensor(0.5))
    with pytest.raises(SystemExit, match="the losses of the graphs are not those of PyTorch"):
        bench.main()
