"""Imports and compilations, in a thread of gradkern's own.

Signal handlers run in the main thread, so what they raise (KeyboardInterrupt, a time limit's exception) ends the wait
for such work and not the work: no module is left half imported, and no exception is lost in a function that LLVM calls.
A caller's depth of recursion does not count there, either. The next call waits for the same work, or finds it done.

Nor does the work leave anything of its caller behind. Numba keeps exceptions in cycles, with the frames that they
passed, and a frame has those that called it: all arrays of a first call would live on until Python's garbage collector
comes. PyTorch's CUDA graph trees then find tensors that should be gone ("storage data ptrs are not allocated in pool").
"""

from __future__ import annotations

import gc
import inspect
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast

from gradkern.system import locks

Result = TypeVar("Result")

working: Any = locks.wait_before_fork(locks.reentrant_lock(), innermost=True)
"""Held by the thread that works: one at a time, and a fork waits for it. No other lock of gradkern is taken under it,
but by a finalizer that the garbage collector runs there, see `turn`.
"""

_SECONDS = 1.0  # between checks that the thread still exists: in a child that was forked meanwhile it does not
_this_thread = threading.local()


def in_own_thread(function: Callable[[], Result]) -> Result:
    """function(), waited for; what it raises is raised here. Within such a thread, it is called at once.

    So it is during an import: that holds locks of modules, and the thread might wait for these for ever.
    """
    if is_own_thread() or in_import() or sys.is_finalizing():
        return function()
    results: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def work() -> None:
        _this_thread.is_own = True
        with working:  # until the result is set: a child that was forked before would wait for it for ever
            try:
                results.put((function(), None))
            except BaseException as error:
                results.put((None, error))

    thread = threading.Thread(target=work, name="gradkern imports or compiles")
    try:
        thread.start()
    except RecursionError:
        raise
    except RuntimeError:  # no more threads, as while Python ends
        return function()
    while True:
        try:
            result, error = results.get(timeout=_SECONDS)
            break
        except Empty:
            if not thread.is_alive() and results.empty():
                return in_own_thread(function)
    if error is None:
        return cast(Result, result)
    try:
        raise error
    finally:
        del error  # it refers to this frame


def is_own_thread() -> bool:
    """Whether this is a thread of gradkern's own."""
    return getattr(_this_thread, "is_own", False)


def turn(lock: Any) -> AbstractContextManager[Any]:
    """The lock, to hold it while plans are made; nothing in a thread of gradkern's own.

    There, only a finalizer comes to plan, that the garbage collector runs in the middle of an import or a compilation.
    Whoever waits for that may hold the lock, and the finalizer would wait for it in vain.
    """
    return nullcontext() if is_own_thread() else lock


@contextmanager
def without_collection() -> Generator[None]:
    """No garbage is collected meanwhile: a compiler makes millions of objects that live until its end, and Python would
    look at all of them again and again.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def in_import() -> bool:
    """Whether this thread is in the middle of an import."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == "_load_unlocked" and frame.f_globals.get("__name__") == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False
