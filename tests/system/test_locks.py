"""A child forked at any moment gets locks that nobody holds, and can compute."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gradkern.errors import ProviderError
from gradkern.system import locks, own_thread

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


def in_child(check) -> bool:
    """Whether this is true in a forked child, before ten seconds have passed."""
    child = os.fork()
    if child == 0:
        threading.Timer(10, os._exit, (2,)).start()
        os._exit(0 if check() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@contextmanager
def held_elsewhere(lock) -> Iterator[None]:
    """Another thread holds this lock within."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


def refused(call) -> bool:
    """Whether this raises what a child that was forked too early has to say."""
    try:
        call()
    except ProviderError as error:
        return "forked while its parent had been importing or compiling" in str(error)
    return False


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("make", [locks.lock, locks.reentrant_lock])
def test_a_lock_that_another_thread_holds_is_free_in_the_child(make) -> None:
    lock = make()
    with held_elsewhere(lock):
        assert in_child(lock.acquire)
    assert lock.acquire(timeout=1)  # the parent's own is as it was


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_waits_for_what_is_just_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = locks.wait_before_fork(locks.reentrant_lock())
    state = []

    def make() -> None:
        with lock:
            held.set()
            time.sleep(0.3)
            state.append("made")

    for patience, expected in ((5.0, ["made"]), (0.01, [])):
        monkeypatch.setattr(locks, "_PATIENCE", patience)
        held = threading.Event()
        state.clear()
        thread = threading.Thread(target=make)
        thread.start()
        held.wait()
        assert in_child(lambda expected=expected: state == expected and lock.acquire(timeout=1))
        thread.join()
    assert lock.acquire(timeout=1)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_waits_for_what_the_import_that_it_waited_for_has_begun() -> None:
    """As the first call's import brings the lock under which that call is planned."""
    importing, held, state = locks.wait_before_fork(locks.reentrant_lock()), threading.Event(), []

    def first_call() -> None:
        with importing:
            held.set()
            time.sleep(0.2)
            planning = locks.wait_before_fork(locks.reentrant_lock())
            planning.acquire()
        time.sleep(0.3)
        state.append("planned")
        planning.release()

    thread = threading.Thread(target=first_call)
    thread.start()
    held.wait()
    assert in_child(lambda: state == ["planned"])
    thread.join()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_takes_an_innermost_lock_after_those_that_it_is_taken_under(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of compiling, which comes later than that of plans and is taken under it."""
    planning, held, state = locks.wait_before_fork(locks.reentrant_lock()), threading.Event(), []
    compiling = locks.wait_before_fork(locks.reentrant_lock(), innermost=True)
    monkeypatch.setattr(locks, "_PATIENCE", 5.0)

    def plan() -> None:
        with planning:
            held.set()
            time.sleep(0.3)
            with compiling:
                state.append("compiled")

    thread = threading.Thread(target=plan)
    thread.start()
    held.wait()
    assert in_child(lambda: state == ["compiled"] and not locks._cut_off)
    thread.join()


def read_the_registry() -> None:
    from gradkern.contract import registry

    registry.operators.__wrapped__()


def compile_a_kernel() -> None:
    from gradkern.cpu.compile import kernel

    kernel(lambda: None)()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("make", "part"),
    [
        (read_the_registry, "gradkern.contract.registry._contracts"),
        (compile_a_kernel, "gradkern.cpu.compile.Kernel._load_or_compile"),
    ],
)
def test_a_fork_waits_for_what_is_made_outside_a_plan(make, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the helpers' kernel is. While pydantic checks the registry's first entry, it holds a lock, and so do Numba and
    LLVM: a child that was forked then waited for it for ever, as for a module that was half imported.
    """
    held, state = threading.Event(), []

    def slow(*_: object) -> None:
        held.set()
        time.sleep(0.3)
        state.append("made")

    monkeypatch.setattr(part, slow)
    thread = threading.Thread(target=make)
    thread.start()
    held.wait()
    assert in_child(lambda: state == ["made"])
    thread.join()


FORKS = """
import faulthandler, os, sys, threading, time
import numpy as np
import gradkern
X, row = np.ones((20, 30), np.float32), np.ones(30, np.float32)
failed = []

def first_call():
    gradkern.run("BiasGeluGrad_dX", X, X, row)

thread = threading.Thread(target=first_call)
thread.start()
children = []
while thread.is_alive() and len(children) < 3:
    time.sleep(0.3)
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(400, exit=True)  # says where a child waits for ever
        same = gradkern.run("BiasGeluGrad_dX", X, X, row).dX.shape == X.shape
        os._exit(0 if same else 1)
    children.append(child)
thread.join()
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
sys.exit(f"{codes}" if any(codes) or not codes else 0)
"""


FIRST_USE = """
import os, signal, sys, threading, time
import gradkern
begun = threading.Event()

class Slow:
    def find_spec(self, *_):
        if not begun.is_set():
            begun.set()
            time.sleep(0.5)

sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=lambda: gradkern.operators)
thread.start()
begun.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(0 if gradkern.operators else 1)
thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


LOGGING = """
import os, sys, threading, time
from gradkern.system import locks
import logging  # after it, as it is where Numba's import comes to it
locks._PATIENCE = 5.0
lock, held = locks.wait_before_fork(locks.reentrant_lock()), threading.Event()

def importing():
    with lock:
        held.set()
        time.sleep(0.3)
        logging.getLogger("new")  # as modules do; its lock is taken before a fork, too

thread = threading.Thread(target=importing)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    os._exit(1 if locks._cut_off else 0)
thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_waits_for_an_import_before_it_takes_what_the_import_needs() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", LOGGING], timeout=60, check=False)
    assert done.returncode == 0


def test_a_fork_waits_for_the_import_of_the_first_use() -> None:
    """Also for that of what guards imports: a child that was forked in between waited for ever."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FIRST_USE], timeout=100, check=False)
    assert done.returncode == 0


@pytest.mark.thorough
def test_children_forked_during_a_first_call_compute(tmp_path) -> None:
    environment = {**os.environ, "GRADKERN_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS],
        env=environment, timeout=500, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_a_fork_that_waited_in_vain_says_that_it_cannot_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    import gradkern

    def call(dtype: type) -> None:
        x = np.ones((2, 3), dtype)
        gradkern.run("BiasFastGeluGrad_dX", x, x, x[0])

    monkeypatch.setattr(locks, "_PATIENCE", 0.01)
    monkeypatch.setattr("gradkern.ops.bias_gelu.cpu._rows._compiled", {})
    call(np.float32)
    planning = locks.wait_before_fork(locks.reentrant_lock())
    try:
        with held_elsewhere(planning):
            assert in_child(lambda: call(np.float32) is None)  # what is there can be called
            assert in_child(lambda: refused(lambda: call(np.float64)))
    finally:
        locks._waited_for.remove(planning)
    call(np.float64)  # the parent is as it was


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_a_fork_that_waited_in_vain_says_that_it_cannot_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor read the registry: a module that its parent has half imported it would wait for for ever."""
    from gradkern.contract import registry
    from gradkern.system import importing

    monkeypatch.setattr(locks, "_PATIENCE", 0.01)
    importing.load("gradkern.policy")
    importing._loaded.pop("gradkern.version", None)
    for does_not in (lambda: importing.load("gradkern.version"), registry.operators.__wrapped__):
        with held_elsewhere(own_thread.working):
            assert in_child(lambda: importing.load("gradkern.policy") is not None)
            assert in_child(lambda does_not=does_not: refused(does_not))
        assert does_not() is not None  # the parent is as it was


def test_every_lock_of_gradkern_is_one_that_a_child_gets_anew() -> None:
    import gradkern

    root = os.path.dirname(gradkern.__file__)
    makers = ("threading.Lock(", "threading.RLock(", "= Lock(", "= RLock(", "threading.Condition(", "Semaphore(")
    own = {"system/locks.py", "system/notice.py"}  # which makes them, and whose are short-lived
    found = []
    for folder, _, files in os.walk(root):
        for name in files:
            path = os.path.join(folder, name)
            if name.endswith(".py") and os.path.relpath(path, root) not in own:
                with open(path, encoding="utf-8") as file:
                    text = file.read()
                found += [f"{path}: {maker}" for maker in makers if maker in text]
    assert not found
