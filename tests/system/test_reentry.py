"""gradkern called where its own thread is in the middle of a call, by signal handlers, finalizers and callbacks of weak
references, and forks of several threads at once. In processes of their own, which hung.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gradkern.contract import registry

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no signals and forks on this system")

WORK = """
import faulthandler, gc, os, random, signal, sys, threading, time, weakref
import numpy as np
import gradkern
end = float("inf")  # until the first call is over
draw = random.Random(int(sys.argv[2]))
def call():
    rows = draw.randrange(1, 2000)
    x = np.ones((rows, 30), np.float32)
    return gradkern.run("BiasGeluGrad_dX", x, x, x[0]).dX.shape == x.shape
"""

WATCHED = (
    WORK
    + """
faulthandler.dump_traceback_later(float(sys.argv[1]) + 40, exit=True)  # says where it hangs
"""
)

HANDLERS = (
    WATCHED
    + """
calls = 0
within = False
def handler(*_):
    global calls, within
    if not within:  # or handlers would pile up where one takes longer than the time between two
        within = True
        calls += call()
        within = False
def use():
    call()
    if draw.random() < .05:
        gradkern.plan_cache.clear()
    gradkern.plan_cache.statistics(), gradkern.plan_cache.entries()
    with gradkern.tune():
        call()
def others():
    while time.monotonic() < end:
        use()
threads = [threading.Thread(target=others, daemon=True) for _ in range(2)]
for each in threads:
    each.start()
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, .004, .004)
use()
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    use()
signal.setitimer(signal.ITIMER_REAL, 0)
for each in threads:
    each.join()
statistics = gradkern.plan_cache.statistics()
sys.exit(0 if calls and 0 < statistics.size <= statistics.bound else f"{calls} calls, {statistics}")
"""
)

FINALIZERS = (
    WATCHED
    + """
calls = 0
class Cycle:
    def __init__(self):
        self.me = self
    def __del__(self):
        global calls
        calls += call()
kept = []
def callback(reference):
    global calls
    kept.remove(reference)
    calls += call()
def use():
    cycle, other = Cycle(), Cycle()
    other.other = [other]
    kept.append(weakref.ref(cycle, callback))
    call()
    if draw.random() < .05:
        gradkern.plan_cache.clear()
    gradkern.plan_cache.entries()
def others():
    while time.monotonic() < end:
        use()
gc.set_threshold(20)
threads = [threading.Thread(target=others, daemon=True) for _ in range(2)]
for each in threads:
    each.start()
use()
end = time.monotonic() + float(sys.argv[1])
others()
for each in threads:
    each.join()
sys.exit(0 if calls else "no calls")
"""
)

FORKS = (
    WORK
    + """
call()
codes = []
end = time.monotonic() + float(sys.argv[1])
def fork():
    barrier.wait()
    while time.monotonic() < end:
        child = os.fork()
        if child == 0:
            threading.Timer(30, os._exit, (2,)).start()
            os._exit(0 if call() else 3)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
barrier = threading.Barrier(6)
threads = [threading.Thread(target=fork) for _ in range(6)]
for each in threads:
    each.start()
while time.monotonic() < end:
    call()
for each in threads:
    each.join()
sys.exit(0 if len(codes) >= 6 and not any(codes) and call() else f"{codes}")
"""
)


@pytest.mark.parametrize(
    ("code", "seconds"),
    [(HANDLERS, 3), (FINALIZERS, 3), (FORKS, 3)]
    + [pytest.param(code, 60, marks=pytest.mark.slow) for code in (HANDLERS, FINALIZERS, FORKS)],
    ids=["handlers", "finalizers", "forks", "handlers for long", "finalizers for long", "forks for long"],
)
def test_nothing_waits_for_itself(code: str, seconds: int, seed_of_test: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(seconds), str(seed_of_test)],
        env={**os.environ, "GRADKERN_CACHE_DIR": str(tmp_path)}, timeout=seconds + 60,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-1000:]} {done.stderr[-5000:]}"


def test_threads_that_call_at_once_read_the_registry_once(monkeypatch: pytest.MonkeyPatch) -> None:
    load, reads = registry.load, []
    monkeypatch.setattr(registry, "load", lambda name: (reads.append(name), load(name))[1])
    registry.operators.cache_clear()
    registry._contracts.cache_clear()
    barrier = threading.Barrier(64)
    found = []

    def first_call() -> None:
        barrier.wait()
        found.append(registry.operators())

    threads = [threading.Thread(target=first_call) for _ in range(64)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(reads) == 1
    assert len(found) == 64
    assert all(each is found[0] for each in found)
