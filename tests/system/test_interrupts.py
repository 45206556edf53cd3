"""Exceptions of signal handlers, and too deep a recursion, in the middle of a first call: what is imported and compiled
then is whole, and the exception is not lost.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gradkern.system.own_thread import in_own_thread


class TimeLimit(Exception):  # noqa: N818  as a time limit by signal raises it
    """Not a KeyboardInterrupt."""


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeLimit])
def test_what_a_handler_raises_ends_the_wait_and_not_the_work(error: type[BaseException]) -> None:
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def handler(*_: Any) -> None:
        raise error

    def work() -> None:
        begun.set()
        assert go_on.wait(20)
        done.set()

    def interrupt() -> None:
        assert begun.wait(20)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(error):
            in_own_thread(work)
    finally:
        signal.signal(signal.SIGUSR1, before)
        thread.join()
    assert not done.is_set()
    go_on.set()
    in_own_thread(lambda: None)  # comes after it
    assert done.is_set()


def test_no_handler_is_touched() -> None:
    """So that one of asyncio, say, gets each signal once."""
    assert in_own_thread(lambda: signal.getsignal(signal.SIGINT)) is signal.default_int_handler


def in_process(code: str, cache: Path, *arguments: str, seconds: float = 100) -> str:
    """What a process prints, which ends well and in time."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "ignore", "-c", code, *arguments],
        env={**os.environ, "GRADKERN_CACHE_DIR": str(cache)}, timeout=seconds,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


WORK = """
import os, signal, sys, threading, time
import numpy as np
X, row = np.ones((20, 30), np.float32), np.ones(30, np.float32)
def call():
    import gradkern
    return gradkern.run("BiasGeluGrad_dX", X, X, row).dX.shape
"""

LIMITED = (
    WORK
    + """
class TimeLimit(Exception): pass
def handler(*_):
    raise TimeLimit
import gradkern
signal.signal(signal.SIGALRM, handler)
raised = 0
for _ in range(int(sys.argv[1])):
    signal.setitimer(signal.ITIMER_REAL, float(sys.argv[2]))
    try:
        call()
    except TimeLimit:
        raised += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
signal.signal(signal.SIGALRM, signal.SIG_IGN)
print(call(), raised)
"""
)


@pytest.mark.parametrize("seconds", [0.02, 0.2])
def test_a_process_can_go_on_after_time_limits_in_its_first_call(seconds: float, tmp_path: Path) -> None:
    shape, raised = in_process(LIMITED, tmp_path, "5", str(seconds)).rsplit(" ", 1)
    assert shape == "(20, 30)"
    assert int(raised) >= 1


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
import gradkern
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


DEEP = (
    WORK
    + """
import gradkern
sys.setrecursionlimit(400)
def down(depth):
    return down(depth - 1) if depth else call()
deepest = 0
for depth in range(395, 0, -5):
    try:
        down(depth)
        deepest = max(deepest, depth)
    except RecursionError:
        pass
print(call(), deepest)
"""
)


def test_a_recursion_too_deep_for_a_first_call_leaves_the_process_usable(tmp_path: Path) -> None:
    shape, deepest = in_process(DEEP, tmp_path).rsplit(" ", 1)
    assert shape == "(20, 30)"
    assert int(deepest) > 200  # imports and compilation need more than the rest


ASYNCIO = (
    WORK
    + """
import asyncio
async def main():
    seen = []
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, seen.append, 1)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    call()
    timer.join()
    await asyncio.sleep(0.2)
    print(seen)
asyncio.run(main())
"""
)


def test_one_interrupt_reaches_a_handler_of_asyncio_once(tmp_path: Path) -> None:
    assert in_process(ASYNCIO, tmp_path) == "[1]\n"


OUTSIDE = (
    "import sys\n"
    "sys.modules['scipy'] = None  # which would import parts of NumPy\n"
    + WORK
    + """
import gradkern
from gradkern.system import own_thread

found = []
class Finder:
    def find_spec(self, name, *_):
        if not own_thread.is_own_thread():
            found.append(name)

gradkern.operators()
sys.meta_path.insert(0, Finder())
call()
X = np.ones((2000, 3000), np.float32)
row = X[0].copy()
gradkern.run("BiasGeluGrad_dX", X, X, row, outputs=("dX", "dB"))
print(found)
"""
)


def test_a_first_call_imports_nothing_but_in_a_thread_of_gradkerns_own(tmp_path: Path) -> None:
    """Where a fork waits for it, and no handler raises. Also of what Numba and NumPy import when they need it."""
    assert in_process(OUTSIDE, tmp_path) == "[]\n"


ON_A_GPU = LIMITED.replace(
    "import gradkern\nsignal",
    """import gradkern, torch
X, row = torch.ones(20, 30, device="cuda"), torch.ones(30, device="cuda")
def call():
    return tuple(gradkern.run("BiasGeluGrad_dX", X, X, row).dX.shape)
signal""",
)


@pytest.mark.gpu
@pytest.mark.torch
@pytest.mark.parametrize("seconds", [0.05, 0.5])
def test_a_process_can_go_on_after_time_limits_in_its_first_call_on_a_gpu(seconds: float, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    shape, raised = in_process(ON_A_GPU, tmp_path, "5", str(seconds), seconds=200).rsplit(" ", 1)
    assert shape == "(20, 30)"
    assert int(raised) >= 1
