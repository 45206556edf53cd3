"""enable and disable while other threads train: in a process of its own, which crashed."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.torch

TRAINING = """
import sys, threading, time, warnings
import torch, gradkern.torch
from gradkern.torch.overrides import switch

warnings.simplefilter("ignore")
torch.set_num_threads(1)
way, device, errors, steps = sys.argv[1], sys.argv[3], [], [0] * 4
layers = torch.nn.Linear(40, 40), torch.nn.LayerNorm(40), torch.nn.GELU(), torch.nn.BatchNorm1d(40)
model, x = torch.nn.Sequential(*layers).to(device), torch.randn(6, 40, device=device)

def step():
    return torch.autograd.grad(model(x).square().sum(), list(model.parameters()))

def train(number):
    try:
        while time.monotonic() < end:
            for one, other in zip(step(), expected):
                torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
            steps[number] += 1
    except BaseException as error:
        errors.append(repr(error))

expected = step()
with gradkern.torch.enabled(devices=device, min_bytes=0, plan="now"):  # what is compiled once takes a while
    step(), step()
end = time.monotonic() + float(sys.argv[2])
threads = [threading.Thread(target=train, args=(number,)) for number in range(4)]
for each in threads:
    each.start()
if len(sys.argv) > 4:
    switch.enable.__kwdefaults__["native"] = True
variations = [{}, {"native": False}, {"ops": "layer_norm"}, {"plan": "tune"}, {"min_bytes": 1 << 20}]
changes = 0
while time.monotonic() < end and not errors:
    options = {"devices": device, "min_bytes": 0, "plan": "now"} | variations[changes % len(variations)]
    with gradkern.torch.enabled(**options):
        time.sleep(.005)
        for kernel in switch._kernels() if way == "resting" else ():
            if kernel.enabled:
                kernel.deactivate("for a while")
                time.sleep(.001)
                kernel.activate()
    changes += 1
for each in threads:
    each.join()
sys.exit(errors[0] if errors else 0 if changes > 1 and min(steps) > 1 else f"{changes} changes, steps {steps}")
"""


@pytest.mark.parametrize("native", [False, True], ids=["python", "native"])
@pytest.mark.parametrize(
    ("way", "seconds"),
    [
        ("switched", 4),
        ("resting", 4),
        *(pytest.param(each, 60, marks=pytest.mark.slow) for each in ("switched", "resting")),
    ],
)
def test_threads_train_while_overrides_come_and_go(way: str, seconds: int, native: bool) -> None:
    train_while(way, seconds, "cpu", native)


@pytest.mark.gpu
@pytest.mark.parametrize("native", [False, True], ids=["python", "native"])
@pytest.mark.parametrize("way", ["switched", "resting"])
def test_threads_train_on_a_gpu_while_overrides_come_and_go(way: str, native: bool) -> None:
    train_while(way, 8, "cuda", native)


def train_while(way: str, seconds: int, device: str, native: bool) -> None:
    command = [sys.executable, "-X", "faulthandler", "-c", TRAINING, way, str(seconds), device, *["native"] * native]
    done = subprocess.run(command, timeout=seconds + 150, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
