"""Running one kernel on several threads.

A kernel's first argument is a queue. It takes tasks from it until none is left:

    task = take(queue)
    while task >= 0:
        ...
        task = take(queue)

Tasks depend on the shapes alone, and no two tasks write the same element: results do not depend on the number of
threads. The calling thread always works. Helpers join it (see jobs); a late one finds the queue empty.

Why not Numba's parallel=True: its `workqueue` layer aborts the process when two Python threads launch at once, its GNU
OpenMP layer aborts a forked child (PyTorch's data loader forks), TBB is an extra package; and a parallel and a serial
version must be compiled. Kernels release the GIL, so a pool of Python threads does the same without these problems.

After a call a helper polls its mailbox LOOKS times, for a few tenths of a millisecond, and serves the next call at
once. It does not poll longer, because it occupies a core that others may need, perhaps its own caller.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread, local
from typing import Any

import numpy as np
from numba import types

from gradkern.cpu.compile import kernel, settings
from gradkern.cpu.jobs import BEGUN, FAILED, FINISHED, MAILBOX, QUEUE, QUEUE_SIZE, TASKS, look
from gradkern.cpu.jobs import take as take  # for kernels, beside QUEUE
from gradkern.system.own_thread import in_own_thread

LOOKS = 10_000

# Waking a sleeping helper costs 15 to 20 microseconds: the time of one thread for this many bytes of a norm's tensors.
WORTH_A_THREAD = 1 << 19


def threads() -> int:
    """The most threads of one call: NUMBA_NUM_THREADS, by default the CPUs that this process may use."""
    return settings.NUMBA_NUM_THREADS


def run(compiled: Callable[..., None], tasks: int, nbytes: int, *arguments: Any) -> None:
    """Run a compiled kernel over tasks 0 .. tasks-1. nbytes, the size of the tensors that it reads and writes,
    determines the number of helpers; small calls get none.
    """
    if state.recording is not None:
        state.recording.run(compiled, tasks, nbytes, arguments)
        return
    helpers = 0 if nbytes < 2 * WORTH_A_THREAD else min(threads(), tasks, nbytes // WORTH_A_THREAD) - 1
    if helpers < 1:
        compiled(np.array((0, tasks)), *arguments)
    else:
        _pool().run(compiled, tasks, helpers, *arguments)


class Recording:
    """The kernels that this thread runs, each by itself, and the arguments that each has got: for a caller that repeats
    them from machine code.

    queues   of every launch: a queue as its kernel has filled it in, and its arguments
    memory   arrays that were made for kernels to write first
    """

    def __init__(self) -> None:
        self.queues: list[tuple[np.ndarray, tuple[Any, ...]]] = []
        self.memory: list[np.ndarray] = []
        self.parallel = False

    def run(self, compiled: Callable[..., None], tasks: int, nbytes: int, arguments: tuple[Any, ...]) -> None:
        self.parallel |= nbytes >= 2 * WORTH_A_THREAD and min(threads(), tasks) > 1
        queue = np.zeros(QUEUE_SIZE, np.int64)
        queue[TASKS] = tasks
        compiled(queue, *arguments)
        self.queues.append((queue, arguments))


class _State(local):
    recording: Recording | None = None


state = _State()
"""Of each thread: what it records."""


@kernel
def _serve(queue: Any, mailbox: int, times: int) -> None:
    look(mailbox, times)


class _Pool:
    """Helper threads. They are Python's: the interpreter ends them, and knows that a forked child has none."""

    def __init__(self) -> None:
        self._mailboxes = np.zeros((max(threads() - 1, 1), MAILBOX), np.int64)
        self._address = self._mailboxes.ctypes.data
        self._serve = _serve(QUEUE, types.int64, types.int64)
        self._helpers: list[_Helper] = []
        with suppress(RuntimeError):  # the interpreter is shutting down and starts no threads: callers work alone
            for number, mailbox in enumerate(self._mailboxes):
                self._helpers.append(_Helper(number, mailbox.ctypes.data, self._serve))

    def run(self, compiled: Callable[..., None], tasks: int, helpers: int, *arguments: Any) -> None:
        """Run a compiled kernel with some helpers; these are awake afterwards."""
        asked = self._helpers[:helpers]
        for helper in asked:
            helper.wake()
        queue = np.empty(QUEUE_SIZE, np.int64)
        queue[: FAILED + 1] = 0, tasks, self._address, len(asked), 0, 0, 0
        try:
            compiled(queue, *arguments)
        except BaseException:  # of the memory that a kernel asks for: it has not waited, and the queue must stay
            while queue[FINISHED] < queue[BEGUN]:
                for helper in asked:
                    helper.wake()
                time.sleep(0)
            raise
        if queue[FAILED]:
            raise MemoryError("a kernel of the CPU provider found no memory")

    def close(self) -> None:
        """End the threads; callers work alone from now on."""
        ended, self._helpers = self._helpers, []
        for helper in ended:
            helper.end()


class _Helper:
    """A thread that polls its mailbox, and sleeps when it has found nothing for some time."""

    def __init__(self, number: int, mailbox: int, serve: Callable[..., None]) -> None:
        self._mailbox, self._serve = mailbox, serve
        self._asleep, self._calls = True, 0
        self._bell: SimpleQueue[bool] = SimpleQueue()
        self._thread = Thread(target=self._help, name=f"gradkern_{number}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._calls += 1
        if self._asleep:
            self._asleep = False
            self._bell.put(True)

    def end(self) -> None:
        self._bell.put(False)
        self._thread.join()

    def _help(self) -> None:
        while self._bell.get():
            seen = None
            while seen != self._calls:  # whoever called since the last look may have found it awake
                seen, self._asleep = self._calls, False
                self._serve(np.array((0, 1)), self._mailbox, LOOKS)
                self._asleep = True


_pools: list[_Pool] = []
"""The pool of this process, once it was used."""


def _pool() -> _Pool:
    return _pools[0] if _pools else in_own_thread(_made)  # its threads' kernel is compiled


def _made() -> _Pool:
    if not _pools:
        _pools.append(_Pool())
    return _pools[0]


@atexit.register  # a thread must not return from a kernel to an interpreter that has ended
def _close() -> None:
    for each in _pools:
        each.close()


if hasattr(os, "register_at_fork"):  # threads do not survive a fork: the child makes its own pool
    os.register_at_fork(after_in_child=_pools.clear)
