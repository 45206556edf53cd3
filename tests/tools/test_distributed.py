"""The tools of several processes, on the CPU: the training of digits, and the benchmark with its simulation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.checkout import ROOT

pytestmark = pytest.mark.torch


def torchrun(size: int, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    command += [str(ROOT / "tests" / "helpers" / "run_tool.py"), str(ROOT / "tools" / tool), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=600)


@pytest.mark.slow
def test_digits_are_learned_by_the_same_steps_in_one_process_and_in_three() -> None:
    one, three = (torchrun(size, "train_digits_ddp.py", "--epochs", "3") for size in (1, 3))
    assert (one.returncode, three.returncode) == (0, 0), three.stderr
    assert one.stdout.splitlines()[:3] == three.stdout.splitlines()[:3]


@pytest.mark.slow
def test_the_benchmark_runs_on_a_cpu(tmp_path: Path) -> None:
    done = torchrun(2, "distributed_bench.py", "--tiny", "--seconds", "0.1", "--json", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stderr
    assert "| 64, simulated |" in done.stdout
    assert (tmp_path / "found.json").exists()


@pytest.mark.models
@pytest.mark.slow
def test_models_train_under_ddp_and_fsdp2_compiled_by_every_process(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    done = torchrun(2, "distributed_bench.py", "--tiny", "--parts", "models", "--seconds", "0.1", "--json", str(file))
    assert done.returncode == 0, done.stderr
    llama = json.loads(file.read_text())["models"]["Llama 12x768"]
    losses = [each["loss"] for each in llama.values()]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-2)


@pytest.mark.parametrize("tool", ["train_digits_ddp.py", "distributed_bench.py"])
def test_a_tool_that_nobody_started_with_torchrun_says_so(tool: str) -> None:
    done = subprocess.run([sys.executable, str(ROOT / "tools" / tool)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("start it with torchrun, which says how many processes there are")


def test_how_long_some_of_several_kernels_run() -> None:
    pytest.importorskip("torch")
    from distributed_bench import union

    spans = [(5.0, 6.0), (0.0, 2.0), (1.0, 3.0), (1.5, 1.75), (6.0, 8.0)]
    every_quarter = [n / 4 + 0.125 for n in range(40)]
    assert union(spans) == sum(any(start < at < end for start, end in spans) for at in every_quarter) / 4
    assert union([]) == 0


def test_a_simulation_of_what_was_measured_is_what_was_measured() -> None:
    from distributed_tables import BETWEEN, message_us, simulated

    rows: Any = [
        {"size": size, "channels": 64, "us": {"gather": 10.0 + 3 * n, "reduce": 20.0 + n}}
        for n, size in enumerate((2, 4))
    ]
    assert message_us(rows, "gather", 64, 4) == pytest.approx(13)
    assert message_us(rows, "gather", 64, 8) == pytest.approx(16)
    assert message_us(rows, "reduce", 64, 64) == pytest.approx(22 + 3 * BETWEEN)
    found = {"messages": rows, "size": 4, "norms": {64: 10}, "ResNet-50": {"local": 1e4, "gradkern": 2e4}}
    assert simulated(found, 4) == pytest.approx({"local": 1e4, "gradkern": 2e4})
    assert simulated(found, 8) == pytest.approx({"local": 1e4, "gradkern": 2e4 + 10 * (3 + 1)})
