"""A process that compiles kernels for another process, without a GPU: started by `workers`.

Its standard input is a connection (multiprocessing.connection) to the other process. The worker first sends `HELLO`.
Then it receives one pickled KernelSpec at a time, and replies with the kernel, or with the reason as text. It ends when
the other process has ended, or after some time without messages.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import threading
from dataclasses import replace
from multiprocessing.connection import Connection

from gradkern.cuda.compile import Compiled

HELLO = "gradkern worker 2"
_IDLE = 60.0  # seconds


def main() -> None:
    """Serve until the other process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process decides
    other = Connection(os.dup(0))
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(other, requests), daemon=True).start()
    other.send(HELLO)
    while True:
        try:
            request = requests.get(timeout=_IDLE)
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
