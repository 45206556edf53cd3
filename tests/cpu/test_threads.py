"""Kernels on several threads: every task once, the same bits for any number of threads, any number of callers."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers.calls import run_any

from gradkern.cpu import threads
from gradkern.cpu.compile import kernel, settings
from gradkern.cpu.element_types import array_type, load, real, store
from gradkern.cpu.threads import QUEUE, take


@kernel
def count(queue, array):
    task = take(queue)
    while task >= 0:
        store(array, task, load(array, task) + real(array, 1))
        task = take(queue)


@pytest.fixture
def choose_threads(monkeypatch: pytest.MonkeyPatch):
    def choose(number: int) -> None:
        monkeypatch.setattr(settings, "NUMBA_NUM_THREADS", number)
        monkeypatch.setattr(threads, "WORTH_A_THREAD", 1)
        end_helpers()

    def end_helpers() -> None:
        threads._close()
        threads._pools.clear()

    yield choose
    end_helpers()


@pytest.mark.parametrize("number", [1, 2, 7])
def test_every_task_runs_once(choose_threads, number: int) -> None:
    choose_threads(number)
    array = np.zeros(100_000, np.float32)
    threads.run(count(QUEUE, array_type(array.dtype)), array.size, array.nbytes, array)
    np.testing.assert_array_equal(array, 1)
    assert len(threads._pools) == (number > 1)  # helpers were asked


@kernel
def meet(queue, array):
    """Each task marks its element, and doubles it when it sees the others marked, for which it waits a while."""
    task = take(queue)
    while task >= 0:
        store(array, task, real(array, 1))
        marked = looks = 0
        while marked < array.size and looks < 1 << 22:
            marked = 0
            for place in range(array.size):
                marked += array[place] >= 1
            looks += 1
            take(np.array((0, 0)))  # no memory is taken for known across it
        if marked == array.size:
            store(array, task, real(array, 2))
        task = take(queue)


@kernel
def demand(queue, array):
    """Each task asks for memory, as many PiB as its element says."""
    task = take(queue)
    while task >= 0:
        np.zeros(int(max(load(array, task), 0)) << 47)
        task = take(queue)


def helpers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("gradkern")]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_helper_takes_part(choose_threads, kind: type) -> None:
    """Two tasks meet only where two threads take them; on a busy machine a helper may be kept from one call."""
    choose_threads(2)
    compiled, array = meet(QUEUE, array_type(np.dtype(kind))), np.zeros(2, kind)
    for _ in range(50):
        array[...] = 0
        threads.run(compiled, 2, array.nbytes, array)
        if array.min() == 2:
            break
    np.testing.assert_array_equal(array, 2)


def test_a_helper_looks_again_where_somebody_called_since_its_last_look() -> None:
    """Its caller may have Python's lock when it stops looking: it cannot say so before the next call has begun."""
    looks: list[bool] = []
    looked_again = threading.Event()

    def serve(*_: object) -> None:
        looks.append(helper._asleep)
        if len(looks) == 1:
            helper.wake()  # by a caller that finds it awake, after its last look
        else:
            looked_again.set()

    helper = threads._Helper(0, 0, serve)
    helper.wake()
    assert looked_again.wait(60)
    helper.end()
    assert looks == [False, False]


@pytest.mark.parametrize("size", [2, 64])
def test_memory_that_a_kernel_does_not_get_is_an_error_on_any_thread(choose_threads, size: int) -> None:
    choose_threads(3)
    array = np.zeros(size, np.float32)
    for turn in range(20):
        array[...] = -1
        array[turn % size] = 8
        with pytest.raises(MemoryError):
            threads.run(demand(QUEUE, array_type(array.dtype)), size, array.nbytes, array)
    array[...] = 0
    threads.run(count(QUEUE, array_type(array.dtype)), size, array.nbytes, array)
    np.testing.assert_array_equal(array, 1)


def test_callers_that_begin_together_share_the_helpers(choose_threads) -> None:
    choose_threads(3)
    together = threading.Barrier(4)

    def call(_: int) -> object:
        together.wait()
        return threads._pool()

    before = threading.active_count()
    with ThreadPoolExecutor(4) as callers:
        assert len(set(callers.map(call, range(4)))) == 1
    assert threading.active_count() == before + 2


def test_helpers_sleep_and_are_woken(choose_threads) -> None:
    choose_threads(2)
    array = np.zeros(100_000, np.float32)
    compiled = count(QUEUE, array_type(array.dtype))
    for turn in range(4):
        threads.run(compiled, array.size, array.nbytes, array)
        np.testing.assert_array_equal(array, turn + 1)
        (helper,) = threads._pool()._helpers
        while not helper._asleep:
            time.sleep(0.001)


def test_helpers_end_where_they_are_not_wanted_any_more(choose_threads) -> None:
    choose_threads(4)
    array = np.zeros(1000, np.float32)
    compiled = count(QUEUE, array_type(array.dtype))
    threads.run(compiled, array.size, array.nbytes, array)
    assert len(helpers()) == 3
    threads._close()
    assert not helpers()
    threads.run(compiled, array.size, array.nbytes, array)  # alone
    np.testing.assert_array_equal(array, 2)


def calls(rng: np.random.Generator):
    D, X = rng.standard_normal((2, 500, 24, 8)).astype(np.float32)
    flat = {"Y_grad": D.reshape(500, 192), "X": X.reshape(500, 192), "scale": X[0].ravel()}
    rows = {"mean": D[:, 0, 0].copy(), "inv_std_dev": X[:, 0, 0].copy()}
    yield "LayerNormalizationGrad", {**flat, **rows}, ("X_grad", "scale_grad", "bias_grad")
    yield "BiasGeluGrad_dX", {"dY": D, "X": X, "B": X[0, 0]}, ("dX", "dB")
    channel = {"Scale": D[0, :, 0].copy(), "saved_mean": D[1, :, 0].copy(), "saved_inv_std": D[2, :, 0].copy()}
    yield "BatchNormalizationGrad", {"dY": D, "X": X, **channel}, ("dX", "dScale", "dBias")
    swapped = {"dY": D.transpose(0, 2, 1), "X": X.transpose(0, 2, 1), **{k: v[:8] for k, v in channel.items()}}
    yield "BatchNormalizationGrad", swapped, ("dX", "dScale", "dBias")


def test_results_are_the_same_bits_for_any_number_of_threads(choose_threads, rng: np.random.Generator) -> None:
    for name, inputs, outputs in calls(rng):
        choose_threads(1)
        alone = run_any(name, **inputs, outputs=outputs)
        for number in (2, 5):
            choose_threads(number)
            again = run_any(name, **inputs, outputs=outputs)
            for each in outputs:
                mine, theirs = getattr(alone, each), getattr(again, each)
                np.testing.assert_array_equal(mine.view(np.int32), theirs.view(np.int32))


def test_many_threads_may_call_at_once(choose_threads, rng: np.random.Generator) -> None:
    choose_threads(3)
    cases = [(case, run_any(case[0], **case[1], outputs=case[2])) for case in calls(rng)]
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        for turn in range(12):
            (name, inputs, outputs), expected = cases[(number + turn) % len(cases)]
            for mine, theirs in zip(expected, run_any(name, **inputs, outputs=outputs), strict=True):
                np.testing.assert_array_equal(mine, theirs)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


FORKED = """
import os, sys, threading
import numpy as np
import gradkern
X, row = np.ones((2000, 600), np.float32), np.ones(600, np.float32)
run = lambda: gradkern.run("BiasGeluGrad_dX", X, X, row, outputs=("dX", "dB")).dB.sum()
before = run()
child = os.fork()
if child == 0:
    same = run() == before
    helped = any(each.name.startswith("gradkern") for each in threading.enumerate())
    os._exit(0 if same and helped else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(threads.os, "fork"), reason="no fork on this system")
def test_a_forked_child_computes_too_and_with_helpers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED], timeout=120, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


LATE = """
import atexit
import numpy as np
import gradkern
X, row = np.ones((2000, 600), np.float32), np.ones(600, np.float32)
gradkern.run("BiasGeluGrad_dX", X, X, row)  # the helpers are there before the end begins
atexit.register(lambda: print(gradkern.run("BiasGeluGrad_dX", X, X, row).dX.shape))
"""


def test_a_call_while_the_interpreter_ends_works_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")
    done = subprocess.run([sys.executable, "-c", LATE], timeout=120, capture_output=True, text=True, check=False)
    assert done.stdout == "(2000, 600)\n", done.stderr
