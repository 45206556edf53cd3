"""Pictures of measurements: what they draw is what the rows say."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import bench_plot
import conv_plot
import numpy as np
import pytest


def measured(columns: int, microseconds: float, **peers: float) -> dict[str, Any]:
    """A row of tools/bench.py of 4,096 rows in bfloat16, with a limit of 4 TB/s."""
    size = {"bytes": 6 * 4096 * columns, "microseconds": microseconds, "peers": peers, "limit": {"add": 4000.0}}
    share = size["bytes"] / microseconds / 1e3 / 4000.0
    called = {"operator": "LayerNormalizationGrad", "types": {"T": "bfloat16"}, "outputs": ["X_grad"]}
    return {**called, **size, "axes": {"rows": [4096], "columns": [columns]}, "share_of_limit": share}


def test_lines_go_to_the_right_and_leave_out_odd_widths() -> None:
    chosen = [measured(columns, 50.0, torch=90.0, liger=70.0) for columns in (4096, 4097, 1024, 768)]
    (panel,) = bench_plot._shares(chosen).axes
    drawn: list[tuple[Any, list[float]]] = [(line, list(np.asarray(line.get_xdata()))) for line in panel.lines]
    lines = [places for line, places in drawn if line.get_linestyle() == "-" and places]
    assert lines == [[768, 1024, 4096]] * 3  # gradkern and two peers
    hollow = [places for line, places in drawn if line.get_fillstyle() == "none"]
    assert hollow == [[4097]] * 3


def test_a_share_is_the_rate_over_that_of_the_limit() -> None:
    row = measured(1024, 8.0, torch=16.0)
    assert bench_plot._share(row, "gradkern") == pytest.approx(row["share_of_limit"], rel=1e-6)
    assert bench_plot._share(row, "torch") == pytest.approx(row["share_of_limit"] / 2, rel=1e-6)


@pytest.mark.parametrize("device", ["gpu", "cpu"])
def test_a_file_of_results_is_drawn_anew(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [measured(columns, 50.0, torch=90.0) for columns in (768, 1024)]
    rows = [{key: each for key, each in row.items() if device == "gpu" or key != "limit"} for row in rows]
    file, picture = tmp_path / "results.json", tmp_path / "new.png"
    file.write_text(json.dumps({"rows": [*rows, {**rows[0], "operator": "LayerNormalization"}]}))
    monkeypatch.setattr(sys, "argv", ["bench_plot.py", str(file), str(picture), "LayerNormalizationGrad"])
    assert bench_plot.main() == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_every_convolution_measured_is_a_point() -> None:
    row = {"network": "ResNet-50", "layer": "64x56x56 -> 64, 3x3", "setting": "tf32", "outputs": "dX"}
    ratios = [0.75 + n / 8 for n in range(20)]
    points = [{**row, "torch_over_gradkern": each} for each in ratios]
    points += [{**each, "layer": "96x56x56 -> 96, 7x7 depthwise", "setting": "bfloat16"} for each in points]
    assert conv_plot.drawn(points, "svg").count(b"<use ") - conv_plot.drawn(points[:1], "svg").count(b"<use ") >= 38
