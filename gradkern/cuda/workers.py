"""Compiles kernels in parallel, in processes without a GPU.

The processes are started as separate programs with this process's paths, so that none of the user's code is imported or
run again. They are kept for some time for the next kernels, and end with this process, however it ends.

A worker's standard input is a connection (multiprocessing.connection) to the process that started it. It first sends
`HELLO`. Then it receives one pickled KernelSpec at a time, and replies with the kernel, or with the reason as text. It
ends when the other process has ended, or after some time without messages.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from itertools import groupby
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from gradkern.cuda.compile import Compiled
from gradkern.cuda.spec import KernelSpec
from gradkern.system import locks
from gradkern.system.notice import warn

HELLO = "gradkern worker 2"
_START = 60.0  # seconds until a worker sends its first message
_PATIENCE = 180.0  # seconds for one kernel: they take one or two
_KEPT = 20.0  # seconds without work, at most, for getting more: a worker ends by itself after _MOST_IDLE
_MOST_IDLE = 60.0
_MOST = 16  # workers: each takes 300 MB, and some more with every kernel
_RENEWED = 100  # kernels of a worker, then a new one replaces it
_CODE = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from gradkern.cuda.workers import main; main()"


class WorkerError(Exception):
    """Why a worker did not compile a kernel. The process that needs the kernel then compiles it."""


class StartError(WorkerError):
    """Why no worker can be started: another attempt would fail, too."""


Make = Callable[["Worker", KernelSpec], "Compiled | None"]


def available() -> bool:
    """Whether workers can be started: not if Python is embedded in another program, or frozen."""
    program = Path(sys.executable or "").name.lower()
    return os.name == "posix" and "python" in program and not getattr(sys, "frozen", False)


def cores() -> int:
    """The number of processors for this process: its share, if torchrun reports the number of local processes."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # a container's limit
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        usable = min(usable, -(-int(quota) // int(period)))
    with contextlib.suppress(ValueError):
        usable //= max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    return max(1, usable)


class Worker:
    """One process. It compiles one kernel at a time."""

    def __init__(self) -> None:
        """Raises StartError if it cannot be started."""
        self._connection, other = Pipe()
        try:
            self._process = subprocess.Popen(
                _command(),
                stdin=other.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
                start_new_session=True,  # Ctrl-C on the terminal is for this process only
            )
        except OSError as error:
            self._connection.close()
            raise StartError(f"cannot be started: {error}") from error
        finally:
            other.close()
        self._greeted = False
        self.compiled = 0
        self.idle_since = 0.0  # of time.monotonic, while it waits for work

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def compile(self, spec: KernelSpec) -> Compiled:
        """The kernel. Raises WorkerError if the worker could not compile it; the worker is then unusable if it is not
        alive.
        """
        try:
            request = pickle.dumps(spec)
        except Exception as error:  # pickle has one for every kind of object
            raise WorkerError(f"cannot be told of {spec.name}: {error}") from error
        try:
            if not self._greeted:
                self._greet()
            self._connection.send_bytes(request)
            answer = self._receive(_PATIENCE)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise WorkerError(f"has ended: {error}") from error
            raise
        if not isinstance(answer, Compiled):
            raise WorkerError(f"has failed: {answer}")
        self.compiled += 1
        return answer

    def _greet(self) -> None:
        try:
            if self._receive(_START) != HELLO:
                raise WorkerError("is another program")
        except (WorkerError, OSError) as error:
            raise StartError(str(error)) from error
        self._greeted = True

    def _receive(self, seconds: float) -> Any:
        if not self._connection.poll(seconds):
            raise WorkerError("does not answer")
        try:
            return self._connection.recv()
        except (EOFError, ConnectionError):
            raise WorkerError(f"has ended (exit code {self._process.wait()})") from None

    def kill(self) -> None:
        """Kill it, even during a compilation."""
        self._process.kill()

    def close(self) -> None:
        """Kill it and release its resources."""
        self.kill()
        self._process.wait()
        self._connection.close()

    def forget(self) -> None:
        """Forget the parent's worker, in a forked child."""
        self._process.returncode = 0
        self._connection.close()


def _command() -> list[str]:
    """The interpreter with this one's paths, without the working folder."""
    return [sys.executable, "-P", "-c", _CODE, json.dumps([each or os.getcwd() for each in sys.path])]


# --- many at once ----------------------------------------------------------------------------------------------------

_lock = locks.reentrant_lock()
_idle: list[Worker] = []
_timer: threading.Timer | None = None
_warned = False


def compiled(
    specs: Iterable[KernelSpec], jobs: int, make: Make = Worker.compile
) -> Generator[tuple[KernelSpec, Compiled | None]]:
    """Yields kernels as they are compiled, by `jobs` workers in parallel; None for one that no worker could compile.

    One thread compiles neighbours that differ in the architecture only, by the worker that it gave back last: that has
    the kernel's IR already.

    make: called with a worker and a spec, in a thread.
    """
    wanted = list(specs)
    if not wanted:
        return
    busy: list[Worker] = []
    stopped, hopeless = threading.Event(), threading.Event()

    def made(spec: KernelSpec) -> Compiled | None:
        if hopeless.is_set():
            return None
        try:
            worker = _taken(busy)
            try:
                return None if stopped.is_set() else make(worker, spec)
            finally:
                busy.remove(worker)
                _give_back(worker) if worker.alive and not stopped.is_set() else worker.close()
        except StartError:
            hopeless.set()
            raise

    def all_made(alike: list[KernelSpec]) -> list[tuple[KernelSpec, Compiled | None, Exception | None]]:
        found: list[tuple[KernelSpec, Compiled | None, Exception | None]] = []
        for spec in alike:
            try:
                found.append((spec, made(spec), None))
            except Exception as error:  # the others are made nevertheless
                found.append((spec, None, error))
        return found

    pool = ThreadPoolExecutor(min(jobs, len(wanted), _MOST))
    try:
        runs = [pool.submit(all_made, [*alike]) for _, alike in groupby(wanted, lambda spec: spec.on((0, 0)))]
        for each in as_completed(runs):
            for spec, kernel, problem in each.result():
                if problem is not None:
                    _tell(problem)
                yield spec, kernel
    except BaseException:
        stopped.set()
        for worker in [*busy]:
            worker.kill()  # its thread handles the rest
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _taken(busy: list[Worker]) -> Worker:
    """An idle worker, or a new one."""
    with _lock:
        while _idle:
            worker = _idle.pop()
            if worker.alive and worker.compiled < _RENEWED and time.monotonic() - worker.idle_since < _KEPT:
                break
            worker.close()
        else:
            worker = Worker()
        busy.append(worker)
        return worker


def _give_back(worker: Worker) -> None:
    global _timer
    with _lock:
        worker.idle_since = time.monotonic()
        _idle.append(worker)
        if _timer is not None:
            _timer.cancel()
        _timer = threading.Timer(_KEPT, close_idle)
        _timer.daemon = True
        _timer.start()


@atexit.register
def close_idle() -> None:
    """End idle workers."""
    with _lock:
        while _idle:
            _idle.pop().close()


def _tell(error: BaseException) -> None:
    """Warn once of a failure: it only costs time."""
    global _warned
    if not _warned:
        _warned = True
        text = f"gradkern: a process that compiles kernels {error}; they are compiled in this process"
        warn(text, stacklevel=2)


def _in_child() -> None:
    global _timer
    _timer = None
    while _idle:
        _idle.pop().forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


# --- a worker ---------------------------------------------------------------------------------------------------------


def main() -> None:
    """Serve until the other process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process decides
    other = Connection(os.dup(0))
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(other, requests), daemon=True).start()
    other.send(HELLO)
    while True:
        try:
            request = requests.get(timeout=_MOST_IDLE)
        except queue.Empty:
            return
        answer: Compiled | str
        try:
            answer = replace(pickle.loads(request).compile(), ptx="")
        except Exception as error:  # the other process then compiles it itself and gets the error
            answer = f"{type(error).__name__}: {error}"
        other.send(answer)


def _listen(other: Connection, requests: queue.SimpleQueue[bytes]) -> None:
    while True:
        try:
            requests.put(other.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)  # even during a compilation: nobody waits for it
