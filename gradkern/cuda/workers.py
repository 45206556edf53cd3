"""Several kernels compiled at once, in processes that see no GPU: see `worker`.

They are started as programs of their own, so that nothing of the user's is imported or run again, and take this
process's paths. They are kept a while for what comes next, and end with this process, however it ends.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pickle
import queue
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

from gradkern.cuda import worker as protocol
from gradkern.cuda.compile import Compiled
from gradkern.cuda.spec import KernelSpec
from gradkern.system import locks
from gradkern.system.notice import warn

__all__ = ["WorkerError", "available", "close_idle", "compiled", "cores"]

_START = 60.0  # seconds until a worker says that it is there
_PATIENCE = 180.0  # seconds for one kernel: they take one or two
_LONGEST = 1 << 28  # bytes of an answer
_KEPT = 20.0  # seconds without work, at most, for getting more: a worker ends by itself after three times as many
_MOST = 16  # workers: each takes 300 MB, and some more with every kernel
_RENEWED = 100  # kernels of a worker, then a new one replaces it
_CODE = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from gradkern.cuda.worker import main; main()"


class WorkerError(Exception):
    """Why a worker has made no kernel. The kernel is then compiled by who asked for it."""


class StartError(WorkerError):
    """Why no worker can be started: another would not be either."""


Make = Callable[["Worker", KernelSpec], "Compiled | None"]


def available() -> bool:
    """Whether workers can be started: not where Python is inside another program, or frozen into one."""
    program = Path(sys.executable or "").name.lower()
    return os.name == "posix" and "python" in program and not getattr(sys, "frozen", False)


def cores() -> int:
    """How many processors this process may use: its share, where torchrun says how many there are of its like."""
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
        """Raises StartError where it cannot be started."""
        try:
            self._process = subprocess.Popen(
                _command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
                start_new_session=True,  # Ctrl-C on the terminal is for this process alone
            )
        except OSError as error:
            raise StartError(f"cannot be started: {error}") from error
        self._greeted = False
        self.compiled = 0
        self.idle_since = 0.0  # of time.monotonic, while it waits for work

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def compile(self, spec: KernelSpec) -> Compiled:
        """The kernel. Raises WorkerError where it cannot be had, after which the worker is of no use if it is not
        alive.
        """
        try:
            request = pickle.dumps(spec)
        except Exception as error:  # it has one for every kind of object
            raise WorkerError(f"cannot be told of {spec.name}: {error}") from error
        try:
            if not self._greeted:
                self._greet()
            assert self._process.stdin is not None
            self._process.stdin.write(protocol.LENGTH.pack(len(request)) + request)
            self._process.stdin.flush()
            answer = self._receive(_PATIENCE)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise WorkerError(f"has ended: {error}") from error
            raise
        if not answer.startswith(protocol.DONE):
            raise WorkerError(f"has failed: {answer[1:].decode(errors='replace')}")
        self.compiled += 1
        return Compiled.unpacked(answer[1:])

    def _greet(self) -> None:
        try:
            if self._receive(_START) != protocol.HELLO:
                raise WorkerError("is another program")
        except (WorkerError, OSError) as error:
            raise StartError(str(error)) from error
        self._greeted = True

    def _receive(self, seconds: float) -> bytes:
        end = time.monotonic() + seconds
        (length,) = protocol.LENGTH.unpack(self._read(protocol.LENGTH.size, end))
        if length > _LONGEST:
            raise WorkerError("is another program")
        return self._read(length, end)

    def _read(self, count: int, end: float) -> bytes:
        assert self._process.stdout is not None
        handle, data = self._process.stdout.fileno(), b""
        while len(data) < count:
            if not select.select([handle], [], [], max(0.0, end - time.monotonic()))[0]:
                raise WorkerError("does not answer")
            more = os.read(handle, min(count - len(data), 1 << 20))
            if not more:
                raise WorkerError(f"has ended (exit code {self._process.wait()})")
            data += more
        return data

    def kill(self) -> None:
        """End it, whatever it does."""
        self._process.kill()

    def close(self) -> None:
        """End it, and let go of all that is its."""
        self.kill()
        self._process.wait()
        self._drop()

    def _drop(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def forget(self) -> None:
        """In a forked child, whose parent's it is."""
        self._process.returncode = 0
        self._drop()


def _command() -> list[str]:
    """The interpreter with this one's paths: nothing of the working folder's gets in their way."""
    return [sys.executable, "-P", "-c", _CODE, json.dumps([each or os.getcwd() for each in sys.path])]


# --- many at once ----------------------------------------------------------------------------------------------------

_lock = locks.lock()
_idle: list[Worker] = []
_timer: threading.Timer | None = None
_warned = False


def compiled(
    specs: Iterable[KernelSpec], jobs: int, make: Make = Worker.compile
) -> Generator[tuple[KernelSpec, Compiled | None]]:
    """The kernels as they come, compiled by so many workers at once; None of one that no worker has made.

    make: what is done with a worker and a spec, in a thread.
    """
    wanted = list(specs)
    ahead: queue.SimpleQueue[KernelSpec] = queue.SimpleQueue()
    for each in wanted:
        ahead.put(each)
    results: queue.SimpleQueue[tuple[KernelSpec, Compiled | None, Exception | None]] = queue.SimpleQueue()
    busy: list[Worker] = []
    stopped, hopeless = threading.Event(), threading.Event()

    def serve() -> None:
        worker: Worker | None = None
        while not stopped.is_set():
            try:
                spec = ahead.get_nowait()
            except queue.Empty:
                break
            kernel, problem = None, None
            try:
                worker = worker or (None if hopeless.is_set() else _taken(busy))
                kernel = None if worker is None or stopped.is_set() else make(worker, spec)
            except Exception as error:  # every spec must have its answer
                problem = error
                if isinstance(error, StartError):
                    hopeless.set()
            if worker is not None and not (worker.alive and worker.compiled < _RENEWED):
                busy.remove(worker)
                worker.close()
                worker = None
            results.put((spec, kernel, problem))
        if worker is not None:
            busy.remove(worker)
            worker.close() if stopped.is_set() else _give_back(worker)

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(min(jobs, len(wanted), _MOST))]
    for each in threads:
        each.start()
    try:
        for _ in wanted:
            spec, kernel, problem = results.get()
            if problem is not None:
                _tell(problem)
            yield spec, kernel
    except BaseException:
        stopped.set()
        for worker in [*busy]:
            worker.kill()  # its thread does the rest
        raise
    finally:
        for each in threads:
            each.join()


def _taken(busy: list[Worker]) -> Worker:
    """A worker that waits, or a new one."""
    with _lock:
        while _idle:
            worker = _idle.pop()
            if worker.alive and time.monotonic() - worker.idle_since < _KEPT:
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
    """End the workers that wait."""
    with _lock:
        while _idle:
            _idle.pop().close()


def _tell(error: Exception) -> None:
    """Say once what happened: it costs time, and nothing else."""
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
