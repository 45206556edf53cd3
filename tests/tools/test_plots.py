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


def test_lines_go_to_the_right_and_leave_out_odd_widths() -> None:
    chosen = [row for row in rows("h200.json") if row["operator"] == "LayerNormalizationGrad"]
    (panel,) = bench_plot._shares(chosen).axes
    drawn: list[tuple[Any, list[float]]] = [(line, list(np.asarray(line.get_xdata()))) for line in panel.lines]
    lines = [places for line, places in drawn if line.get_linestyle() == "-" and places]
    assert len(lines) == 4  # gradkern and three peers
    assert all(each == sorted({*each}) and not any(x % 2 for x in each) for each in lines)
    hollow = {x for line, places in drawn if line.get_fillstyle() == "none" for x in places}
    assert hollow == {4097}


def test_a_share_is_the_rate_over_that_of_the_limit() -> None:
    row = next(row for row in rows("h200.json") if row["peers"])
    assert bench_plot._share(row, "gradkern") == pytest.approx(row["share_of_limit"], rel=1e-6)
    peer, microseconds = next(iter(row["peers"].items()))
    slower = microseconds / row["microseconds"]
    assert bench_plot._share(row, peer) == pytest.approx(row["share_of_limit"] / slower, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "operator"), [("h200.json", "BatchNormalizationGrad"), ("cpu.json", "LayerNormalizationGrad")]
)
def test_a_file_of_results_is_drawn_anew(
    name: str, operator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = tmp_path / "new.png"
    monkeypatch.setattr(sys, "argv", ["bench_plot.py", str(RESULTS / name), str(picture), operator])
    assert bench_plot.main() == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_every_convolution_measured_is_a_point() -> None:
    measured = rows("conv.json")
    assert conv_plot.drawn(measured, "svg").count(b"<use ") >= len(measured)
