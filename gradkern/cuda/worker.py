"""A process that compiles kernels for another, and sees no GPU: started by `workers`, spoken to through pipes.

A message is its length in 8 bytes and that many bytes. The worker says `HELLO` first; then it gets a pickled KernelSpec
at a time, and answers with `DONE` and the kernel, or with `FAILED` and the reason. It ends when its standard input does
(the other process has ended, however), and when nothing has come for a while.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import struct
import threading
from typing import BinaryIO

__all__ = ["DONE", "FAILED", "HELLO", "LENGTH", "main"]

HELLO, DONE, FAILED = b"gradkern worker 1", b"+", b"-"
LENGTH = struct.Struct("<Q")
_IDLE = 60.0  # seconds


def main() -> None:
    """Serve until there is nobody to serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process decides
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no reply
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(os.fdopen(os.dup(0), "rb"), requests), daemon=True).start()
    _send(replies, HELLO)
    while True:
        try:
            request = requests.get(timeout=_IDLE)
        except queue.Empty:
            return
        try:
            answer = DONE + pickle.loads(request).compile().packed()
        except Exception as error:  # whatever it is, the other process compiles it by itself and sees
            answer = FAILED + f"{type(error).__name__}: {error}".encode()
        _send(replies, answer)


def _listen(source: BinaryIO, requests: queue.SimpleQueue[bytes]) -> None:
    while True:
        start = source.read(LENGTH.size)
        data = source.read(LENGTH.unpack(start)[0]) if len(start) == LENGTH.size else b""
        if not data:
            os._exit(0)  # in the middle of a compilation, too: nobody waits for it
        requests.put(data)


def _send(target: BinaryIO, data: bytes) -> None:
    target.write(LENGTH.pack(len(data)) + data)
    target.flush()
