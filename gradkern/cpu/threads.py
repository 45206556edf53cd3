"""Running one kernel on several threads.

A kernel takes a queue first and asks it for the next task until none is left:

    task = take(queue)
    while task >= 0:
        ...
        task = take(queue)

What a task is depends on the shapes alone, and no two tasks write the same element: so the bits do not depend on the
number of threads. The calling thread always works; helpers join it when they wake up, and one that comes too late
finds the queue empty.

Why not Numba's parallel=True: its `workqueue` layer aborts the process when two Python threads launch at once, its GNU
OpenMP layer aborts a forked child (PyTorch's data loader forks), TBB is an extra package; and each form, parallel and
serial, must be compiled. Kernels release the GIL, so a pool of Python threads does the same with none of that.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from numba import types

from gradkern.cpu.compile import instruction, settings
from gradkern.cpu.llvm import ir, make_array

__all__ = ["QUEUE", "WORTH_A_THREAD", "run", "take", "threads"]

QUEUE = types.Array(types.int64, 1, "C")  # [the next task, the number of tasks]

# Waking a helper costs 15 to 20 microseconds, as long as one thread takes for this many bytes of a norm's tensors.
WORTH_A_THREAD = 1 << 19


@instruction
def take(typing: Any, queue: Any) -> Any:
    """The next task of the queue, or -1. Each task is given out once, whichever threads ask."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        head = make_array(signature.args[0])(context, builder, arguments[0]).data
        count = builder.load(builder.gep(head, [ir.Constant(ir.IntType(64), 1)]))
        task = builder.atomic_rmw("add", head, ir.Constant(ir.IntType(64), 1), "monotonic")
        left = builder.icmp_signed("<", task, count)
        return builder.select(left, task, ir.Constant(ir.IntType(64), -1))

    return types.int64(queue), generate


def threads() -> int:
    """How many threads may work on one call: NUMBA_NUM_THREADS, by default the CPUs this process may use."""
    return settings.NUMBA_NUM_THREADS


def run(compiled: Callable[..., None], tasks: int, nbytes: int, *arguments: Any) -> None:
    """Run a compiled kernel over tasks 0 .. tasks-1. nbytes, the size of the tensors it reads and writes, decides how
    many helpers are worth their waking; small calls get none.
    """
    queue = np.array((0, tasks))
    helpers = 0 if nbytes < 2 * WORTH_A_THREAD else min(threads(), tasks, nbytes // WORTH_A_THREAD) - 1
    if helpers < 1:
        compiled(queue, *arguments)
        return
    try:
        waiting = [_pool().submit(compiled, queue, *arguments) for _ in range(helpers)]
    except RuntimeError:  # the interpreter is shutting down and starts no threads: the caller works alone
        waiting = []
    try:
        compiled(queue, *arguments)
    finally:
        for helper in waiting:  # one that has not begun need not begin; one that works still writes to our arrays
            if not helper.cancel():
                helper.result()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=max(1, threads() - 1), thread_name_prefix="gradkern")


if hasattr(os, "register_at_fork"):  # threads do not survive a fork: the child makes its own pool
    os.register_at_fork(after_in_child=_pool.cache_clear)
