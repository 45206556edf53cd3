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
from helpers.checkout import ROOT

RESULTS = ROOT / "tools" / "results"


def rows(name: str) -> list[dict[str, Any]]:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))["rows"]


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


@pytest.mark.parametrize("name", ["h200.json", "cpu.json"])
def test_a_file_of_results_is_drawn_anew(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture, operator = tmp_path / "new.png", rows(name)[0]["operator"]
    monkeypatch.setattr(sys, "argv", ["bench_plot.py", str(RESULTS / name), str(picture), operator])
    assert bench_plot.main() == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_every_convolution_measured_is_a_point() -> None:
    points = rows("conv.json")
    assert conv_plot.drawn(points, "svg").count(b"<use ") >= len(points)
