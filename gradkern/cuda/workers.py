"""Compiles kernels in parallel, in processes without a GPU: see `worker`.

The processes are started as separate programs with this process's paths, so that none of the user's code is imported or
run again. They are kept for some time for the next kernels, and end with this process, however it ends.
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

_START = 60.0  # seconds until a worker sends its first message
_PATIENCE = 180.0  # seconds for one kernel: they take one or two
_LONGEST = 1 << 28  # bytes of a reply, at most
_KEPT = 20.0  # seconds without work, at most, for getting more: a worker ends by itself after three times as many
_MOST = 16  # workers: each takes 300 MB, and some more with every kernel
_RENEWED = 100  # kernels of a worker, then a new one replaces it
_CODE = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from gradkern.cuda.worker import main; main()"


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
        try:
            self._process = subprocess.Popen(
                _command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
                start_new_session=True,  # Ctrl-C on the terminal is for this process only
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
        """Kill it, even during a compilation."""
        self._process.kill()

    def close(self) -> None:
        """Kill it and release its resources."""
        self.kill()
        self._process.wait()
        self._drop()

    def _drop(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def forget(self) -> None:
        """Forget the parent's worker, in a forked child."""
        self._process.returncode = 0
        self._drop()


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

    make: called with a worker and a spec, in a thread.
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
            except Exception as error:  # every spec needs a reply
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
            worker.kill()  # its thread handles the rest
        raise
    finally:
        for each in threads:
            each.join()


def _taken(busy: list[Worker]) -> Worker:
    """An idle worker, or a new one."""
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
    """End idle workers."""
    with _lock:
        while _idle:
            _idle.pop().close()


def _tell(error: Exception) -> None:
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
