"""The measurement of cold starts: the gradients of known networks, fresh processes, and the table of their times."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from collections import Counter
from pathlib import Path

import cold_start
import networks
import numpy as np
import pytest
import result_tables
from helpers.calls import FakeProvider, prepare_any
from helpers.checkout import ROOT

import gradkern
from gradkern.contract.schema import shape_of
from gradkern.cuda import packs


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        ("ResNet-50", {"ConvGrad": 23, "BatchNormalizationGrad": 12}),
        ("ConvNeXt-T", {"ConvGrad": 8, "LayerNormalizationGrad": 5, "BiasGeluGrad_dX": 4}),
    ],
)
def test_a_networks_gradients_are_distinct_and_fit_their_contracts(
    network: str, expected: dict[str, int], provider: FakeProvider
) -> None:
    gradients = networks.gradients_of(network, batch=2)
    assert Counter(each.operator for each in gradients) == expected
    for each in gradients:
        inputs = gradkern.operators()[each.operator].inputs_of(each.example.axes)
        arrays = {given.name: np.empty(shape_of(given.shape, each.example.axes), np.float32) for given in inputs}
        plan = prepare_any(each.operator, **arrays, outputs=each.outputs, **each.example.attributes)
        assert (*plan.call.outputs,) == each.outputs
    assert len(provider.calls) == len(gradients)


def test_an_operators_gradient_is_its_first_benchmark() -> None:
    (gradient,) = networks.gradients_of("BiasGeluGrad_dX")
    assert (gradient.operator, gradient.outputs) == ("BiasGeluGrad_dX", ("dX", "dB"))
    assert gradient.example == gradkern.operators()["BiasGeluGrad_dX"].benchmarks[0]


def row(work: str, process: str, first: float, slowest: float, **more: object) -> dict[str, object]:
    calls = [{"what": "a", "seconds": first - slowest}, {"what": "b", "seconds": slowest}]
    return {"work": work, "process": process, "type": "bfloat16", "first_seconds": first, "calls": calls, **more}


def test_the_table_has_a_line_for_each_work_and_says_what_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        row("ResNet-50", "empty", 250, 200, framework_seconds=2.5, import_seconds=0.25, libraries_seconds=1.5),
        row("ResNet-50", "pack", 5.5, 4, framework_seconds=2, import_seconds=0.25, libraries_seconds=0.5),
        row("ResNet-50", "background", 2.25, 1, tune_seconds=20.5, libraries_seconds=0.5),
        row("ResNet-50", "second", 2.75, 1, framework_seconds=2, import_seconds=0.5, libraries_seconds=0.125),
        row("ResNet-50", "torch", 1.5, 1, framework_seconds=3),
        row("ConvGrad", "empty", 4, 3, framework_seconds=1, import_seconds=0.25, libraries_seconds=1),
        {"work": "ConvGrad", "process": "torch", "failed": "RuntimeError: no"},
        row("ConvNeXt-T", "background", 0.75, 0.5, tune_seconds=8),
    ]
    machine = {"gpu": "a GPU", "driver": "580.1", "cuda": "13.0", "date": "2026-11-22", "packages": {"torch": "2.11.0"}}
    monkeypatch.setattr(result_tables, "RESULTS", tmp_path)
    assert result_tables.cold() == ""
    (tmp_path / "cold.json").write_text(json.dumps({"machine": machine, "rows": rows}))
    lines = result_tables.cold().splitlines()
    assert lines[2] == "| `ResNet-50` | bfloat16 | 2 | 250.00 | 5.50 | 2.25 | 20.50 | 2.75 | 1.50 | 200.00 |"
    assert lines[3] == "| `ConvGrad` | bfloat16 | 2 | 4.00 | - | - | - | - | - | 3.00 |"
    assert lines[4] == "| `ConvNeXt-T` | bfloat16 | 2 | - | - | 0.75 | 8.00 | - | - | - |"
    loads = "PyTorch and its context 3.0 s, gradkern 0.5 s, the libraries that gradkern calls 1.5 s."
    assert lines[6] == f"Loading takes at most: {loads}"
    assert lines[8] == "Measured 2026-11-22 on one a GPU, driver 580.1, CUDA 13.0, torch 2.11.0."


@pytest.mark.slow
def test_a_second_process_starts_faster_than_one_with_an_empty_cache(tmp_path: Path) -> None:
    """On the CPU, where a kernel is compiled by the first process and read by the second."""
    path = tmp_path / "cold.json"
    command = [sys.executable, ROOT / "tools" / "cold_start.py", "BiasGeluGrad_dX", "--provider", "cpu"]
    command += ["--type", "float32", "--processes", "empty,second", "--json", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    empty, second = json.loads(path.read_text())["rows"]
    assert (empty["process"], second["process"]) == ("empty", "second")
    assert second["first_seconds"] < empty["first_seconds"]
    assert 0 < empty["next_seconds"] < empty["first_seconds"]


def test_a_process_that_fails_is_told_and_is_exit_code_1(tmp_path: Path) -> None:
    """This operator does not take integers."""
    path = tmp_path / "cold.json"
    command = [sys.executable, ROOT / "tools" / "cold_start.py", "ConvGrad", "--provider", "cpu"]
    command += ["--type", "int8", "--processes", "empty", "--json", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ConvGrad, empty: " in done.stderr
    (told,) = json.loads(path.read_text())["rows"]
    assert told["failed"]


def test_the_process_with_a_pack_has_the_one_that_is_named_or_those_that_are_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sound, stale = (packs.Found(tmp_path / name, (9, 0), None, 1, fault) for name, fault in (("a", None), ("b", "no")))
    monkeypatch.setattr(packs, "found", lambda: [sound, stale])
    named = tmp_path / "named"
    asked = Namespace(provider="cuda", pack=None)
    assert cold_start._packs(asked) == [sound.path]
    assert cold_start._packs(Namespace(provider="cuda", pack=named)) == [named]
    assert cold_start._packs(Namespace(provider="cpu", pack=named)) == []
    monkeypatch.setattr(packs, "found", lambda: [stale])
    assert cold_start._packs(asked) == []
    assert "`gradkern pack build` makes one" in capsys.readouterr().err


def test_a_pack_that_is_refused_ends_the_measurement(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "no pack").write_text("a note")
    with pytest.raises(SystemExit) as caught:
        cold_start._take_packs([tmp_path / "no pack"], tmp_path / "cache")
    assert caught.value.code == 1
    assert "no pack is not taken: it is no pack of this format" in capfd.readouterr().err
