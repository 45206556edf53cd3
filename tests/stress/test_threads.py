"""Threads, forks, signals and finalizers at random moments, each kind in processes of its own: which crashed, hung, or
were broken for good.

A few seconds each; for longer with --long. The seeds are drawn anew in every run and shown where a test fails.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no signals and forks on this system")

START = """
import os, random, signal, sys, threading, time
sys.modules["scipy"] = None  # which imports parts of NumPy that Numba would import later
import numpy as np
import gradkern
draw = random.Random(int(sys.argv[1]))
X, row = np.linspace(-3, 3, 600, dtype=np.float32).reshape(20, 30), np.ones(30, np.float32)
def call(x=X):
    return gradkern.run("BiasGeluGrad_dX", x, x, row).dX
"""

SHAPES = (
    START
    + """
class Changing:
    def __init__(self):
        self.arrays = [np.full(shape, 3, np.float32) for shape in ((20, 30), (1, 600), (600, 1), (40, 15))]
    @property
    def __array_interface__(self):
        return draw.choice(self.arrays).__array_interface__

expected = call()
end, victim, errors = time.monotonic() + 2, X.copy(), []
def reshape():
    while time.monotonic() < end:
        victim.shape = draw.choice([(20, 30), (1, 600), (600, 1), (40, 15)])
def compute():
    try:
        while time.monotonic() < end:
            if draw.random() < .3:
                gradkern.plan_cache.clear()
            try:
                result = call(draw.choice([victim, Changing()]))
                assert result.shape == (20, 30)
            except gradkern.ShapeError:
                pass
            assert np.array_equal(call(), expected)
    except BaseException as error:
        errors.append(repr(error))
threads = [threading.Thread(target=each) for each in (reshape, compute, compute, compute)]
for each in threads:
    each.start()
for each in threads:
    each.join()
sys.exit(errors[0] if errors else 0)
"""
)

FORKS = (
    START
    + """
def first_call():
    time.sleep(draw.uniform(0, .3))
    call()
def fork():
    time.sleep(draw.uniform(0, 4))
    child = os.fork()
    if child == 0:
        threading.Timer(90, os._exit, (2,)).start()
        os._exit(0 if call().shape == (20, 30) else 3)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
codes = []
threads = [threading.Thread(target=each) for each in (first_call, first_call, fork, fork, fork, fork)]
for each in threads:
    each.start()
for each in threads:
    each.join()
sys.exit(f"{codes}" if codes != [0] * 4 else 0)
"""
)

SIGNALS = (
    START
    + """
class TimeLimit(Exception): pass
def handler(number, frame):
    raise KeyboardInterrupt if number == signal.SIGINT else TimeLimit
numbers = signal.SIGUSR1, signal.SIGINT, signal.SIGALRM
for each in numbers:
    signal.signal(each, handler)
raised = 0
for _ in range(draw.randrange(1, 8)):
    try:
        timer = None
        if draw.random() < .5:
            signal.setitimer(signal.ITIMER_REAL, draw.uniform(.001, 2))
        else:
            timer = threading.Timer(draw.uniform(.001, 2), os.kill, (os.getpid(), draw.choice(numbers)))
            timer.start()
        call()
        time.sleep(.01)
    except (TimeLimit, KeyboardInterrupt):
        raised += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if timer:
            timer.cancel()
for each in numbers:
    signal.signal(each, signal.SIG_IGN)
sys.exit(0 if call().shape == (20, 30) else 1)
"""
)

DEPTHS = (
    START
    + """
sys.setrecursionlimit(draw.randrange(150, 600))
def down(depth):
    return down(depth - 1) if depth else call()
for depth in sorted((draw.randrange(1, sys.getrecursionlimit()) for _ in range(30)), reverse=True):
    try:
        down(depth)
    except RecursionError:
        pass
sys.setrecursionlimit(1000)
sys.exit(0 if call().shape == (20, 30) else 1)
"""
)

FIRST_CALLS = (
    START
    + """
from importlib import import_module
barrier, results = threading.Barrier(64), []
def first_call():
    barrier.wait()
    time.sleep(draw.uniform(0, .01))
    results.append(call().tobytes())
threads = [threading.Thread(target=first_call) for _ in range(64)]
for each in threads:
    each.start()
for each in threads:
    each.join()
misses = gradkern.plan_cache.statistics().misses
reads = import_module("gradkern.contract.registry")._contracts.cache_info().misses
sys.exit(0 if len(set(results)) == 1 and len(results) == 64 and reads == 1 else f"{reads} {misses} {len(results)}")
"""
)

HANDLERS = (
    START
    + """
import gc, weakref
calls, within, kept = 0, False, []
def cold():
    global calls
    x = np.ones((draw.randrange(1, 5000), 30), np.float32)
    calls += call(x).shape == x.shape
def handler(*_):
    global within
    if not within:  # or handlers would pile up where one takes longer than the time between two
        within = True
        cold()
        within = False
class Cycle:
    def __init__(self):
        self.me = self
    def __del__(self):
        cold()
def callback(reference):
    kept.remove(reference)
    cold()
gc.set_threshold(draw.randrange(10, 200))
signal.signal(signal.SIGALRM, handler)
between = draw.uniform(.002, .02)
signal.setitimer(signal.ITIMER_REAL, between, between)
def use():
    while time.monotonic() < end:
        kept.append(weakref.ref(Cycle(), callback))
        cold()
        if draw.random() < .05:
            gradkern.plan_cache.clear()
        with gradkern.tune():
            cold()
end = float("inf")
threads = [threading.Thread(target=use, daemon=True) for _ in range(2)]
for each in threads:
    each.start()
cold()
end = time.monotonic() + 4
use()
for each in threads:
    each.join()
signal.setitimer(signal.ITIMER_REAL, 0)
sys.exit(0 if calls else "no calls")
"""
)

KINDS = {
    "shapes": SHAPES, "forks": FORKS, "signals": SIGNALS, "depths": DEPTHS, "first calls": FIRST_CALLS,
    "handlers": HANDLERS,
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("seconds", [1, pytest.param(120, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_process_does_what_it_is_asked_to(kind: str, seconds: int, tmp_path: Path) -> None:
    """Again and again, half of them with an empty cache."""
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        seed = random.SystemRandom().randrange(2**32)
        cache = tmp_path / str(number // 2)
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-W", "ignore", "-c", KINDS[kind], str(seed)],
            env={**os.environ, "GRADKERN_CACHE_DIR": str(cache)}, timeout=150,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"seed {seed}: {done.returncode} {done.stderr[-4000:]}"
        number += 1
