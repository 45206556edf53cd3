"""Ctrl-C during imports and compilations: acted upon right after them, and never lost."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gradkern.system.interrupts import deferred


def interrupted(times: int) -> list[str]:
    """What a block does that is interrupted so often at its beginning."""
    seen: list[str] = []

    def block() -> None:
        with deferred():
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
            seen.append("passed")

    with pytest.raises(KeyboardInterrupt):
        block()
    return seen


def test_an_interrupt_comes_at_the_end_of_the_block() -> None:
    assert interrupted(times=1) == ["passed"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_comes_at_once() -> None:
    assert interrupted(times=2) == []


def test_nothing_changes_without_an_interrupt_nor_in_other_threads() -> None:
    handlers = []
    with deferred():
        pass

    def look() -> None:
        with deferred():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler] == [signal.getsignal(signal.SIGINT)]


INTERRUPTED = """
import sys
import numpy as np
X, row = np.ones((20, 30), np.float32), np.ones(30, np.float32)
try:
    print("ready", flush=True)
    import gradkern
    gradkern.run("BiasGeluGrad_dX", X, X, row)
    print("in time")
except KeyboardInterrupt:
    print("interrupted")
print(gradkern.run("BiasGeluGrad_dX", X, X, row).dX.shape)
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "seconds", [0.6, *(pytest.param(each, marks=pytest.mark.every_kernel) for each in (0.05, 0.3, 1.2, 2.5))]
)
def test_a_process_can_go_on_after_an_interrupt_in_its_first_call(seconds: float, tmp_path: Path) -> None:
    environment = {**os.environ, "GRADKERN_CACHE_DIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert out.splitlines()[-1] == "(20, 30)", err
    assert out.splitlines()[0] in ("interrupted", "in time")
